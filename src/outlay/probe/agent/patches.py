"""Changes to other modules: actions right after an import, and functions replaced and put back.

`after_import` waits for the script to import a module, without importing it for the script.
`FunctionPatches` keeps what was replaced, and undoes it. `hide_frames` keeps the agent out of the
script's own tracebacks.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Tracebacks


def hide_frames(error: BaseException) -> None:
    """Take the agent's own frames off the top of a traceback that passes through them.

    Called in `except BaseException as error:`, before a bare `raise`, which adds no frame again:
    whatever prints the script's errors shows them as they would be without the agent. (Python 3.9
    and 3.10 put the frames back.)
    """
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_globals.get("__package__") == __package__:
        traceback = traceback.tb_next
    error.__traceback__ = traceback


# Actions after an import

_actions: dict[str, list[Callable[[Any], None]]] = {}
"""What is to be done once a module is imported, by its name."""


def after_import(name: str, action: Callable[[Any], None]) -> None:
    """Call `action(module)` once the module is there: now, or when the script imports it."""
    module = sys.modules.get(name)
    if module is not None and not _is_loading(module):
        _call_safely(action, module)
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _actions.setdefault(name, []).append(action)


def cancel_after_import(name: str, action: Callable[[Any], None]) -> None:
    """Wait no longer; nothing is left behind once nobody waits."""
    waiting = _actions.get(name, [])
    if action in waiting:
        waiting.remove(action)
    if not waiting:
        _actions.pop(name, None)
    if not _actions:
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]


def _is_loading(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _call_safely(action: Callable[[Any], None], module: Any) -> None:
    """Whatever goes wrong in the agent, the script goes on."""
    try:
        action(module)
    except Exception as error:
        from .channel import log_error

        log_error(error)


class _Finder(MetaPathFinder):
    """Finds nothing itself; wraps the loader of the modules that are waited for.

    Who asks for a spec need not import: libraries ask whether torch is there long before they do.
    """

    def __init__(self) -> None:
        self._searching: set[str] = set()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if fullname not in _actions or fullname in self._searching:
            return None
        self._searching.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, fullname)
        return spec


class _Loader(Loader):
    """Loads as the original does, and then calls the actions."""

    def __init__(self, original: Any, name: str) -> None:
        self._original = original
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._original.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._original
        module.__loader__ = self._original
        try:
            self._original.exec_module(module)
        except BaseException as error:
            hide_frames(error)
            raise
        for action in _actions.pop(self._name, []):
            _call_safely(action, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


# Functions replaced


class FunctionPatches:
    """What was changed, and how to undo it."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def finally_do(self, undo: Callable[[], None]) -> None:
        """Call this when everything is undone."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Leave everything as it was, last change first."""
        while self._undo:
            self._undo.pop()()

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute until `undo`."""
        original = getattr(owner, name)
        setattr(owner, name, value)

        def undo() -> None:
            if getattr(owner, name) is value:  # else others have put theirs around ours
                setattr(owner, name, original)

        self._undo.append(undo)

    def wrap(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        """Put `wrapper(original, *args)` in the place of a function."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return wrapper(original, *args, **kwargs)
            except BaseException as error:
                hide_frames(error)
                raise

        self.replace(owner, name, call)

    def once_imported(self, name: str, action: Callable[[Any], None]) -> None:
        """Do something as soon as the script imports a module."""
        after_import(name, action)
        self._undo.append(lambda: cancel_after_import(name, action))


# Calls of modules. Not by torch's own hooks: with one, a module runs its forward from another line,
# which tracebacks show, and what is compiled meanwhile would have to go through us.

_Before = Callable[[Any, tuple[Any, ...]], None]
_After = Callable[[Any, tuple[Any, ...], Any], None]
_around: list[tuple[_Before, _After]] = []
"""What is called before and after each module just now, by whoever asks for it."""
_wrappers: list[tuple[Any, Any]] = []
"""Our function in the place of torch's, and torch's own, as long as somebody asks."""


def module_calls(torch: Any, before: _Before, after: _After | None = None) -> Callable[[], None]:
    """Call `before(module, inputs)` and `after(module, inputs, output)` around each module.

    Gives what ends that. Of a module that fails, the output is None.
    """
    pair = before, after or _nothing
    if not _wrappers:
        _wrap_calls(torch)
    _around.append(pair)

    def end() -> None:
        if pair in _around:
            _around.remove(pair)
        if not _around and _wrappers:
            ours, original = _wrappers[0]
            if torch.nn.Module._call_impl is ours:  # else others have put theirs around ours
                torch.nn.Module._call_impl = original
                _wrappers.clear()

    return end


def _nothing(*_: Any) -> None:
    pass


def _wrap_calls(torch: Any) -> None:
    original = torch.nn.Module._call_impl
    compiler = getattr(torch, "compiler", None)  # there is none before torch 2.1
    is_compiling = getattr(compiler, "is_compiling", lambda: False)

    def _call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(self, *args, **kwargs)
        around = _around[:]
        for before, _ in around:
            before(self, args)
        output = None
        try:
            output = original(self, *args, **kwargs)
            return output
        except BaseException as error:
            hide_frames(error)
            raise
        finally:
            for _, after in around:
                after(self, args, output)

    # What is compiled goes by the file: as torch's own it is compiled along, and does nothing.
    code = _call_impl.__code__.replace(co_filename=original.__code__.co_filename)
    _call_impl.__code__ = code
    functools.update_wrapper(_call_impl, original)
    torch.nn.Module._call_impl = _call_impl
    _wrappers.append((_call_impl, original))
