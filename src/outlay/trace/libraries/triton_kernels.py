"""Triton kernels, of any library and of the user's own: what their launches read and write.

A launch gets tensors that its caller has allocated, so memory is right as it is. Which of them the
kernel reads and which it writes is found in its source: the pointers that `tl.load` and `tl.store`
are given, in the branches that its constants choose. Every tensor counts once each way; what a
kernel computes is left out, unless it multiplies matrices (`tl.dot`): then its FLOPs are unknown,
and it is named.

Where Triton is not installed, modules of its names let kernels be defined, and never run.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from torch import Tensor

from outlay.trace.capture.wrappers import AttributePatches
from outlay.trace.libraries.kernel_launch import launch
from outlay.trace.profile import Kind

# What a kernel does to its pointers


_READ = frozenset({"load", "make_block_ptr", "make_tensor_descriptor"})
_WRITTEN = frozenset({"store"})
_ROWS = frozenset({"sum", "max", "min", "reduce", "argmax", "cumsum", "associative_scan"})
Names = frozenset[str]


class _Pointers(ast.NodeVisitor):
    """Goes through a kernel in order, following which arguments a name points into."""

    def __init__(self, arguments: Mapping[str, object]) -> None:
        self._arguments = arguments
        self._sources: dict[str, Names] = {name: frozenset({name}) for name in arguments}
        self.read: set[str] = set()
        self.written: set[str] = set()
        self.calls: set[str] = set()

    def visit_If(self, node: ast.If) -> None:
        """Only the branch that is taken, where the arguments say which."""
        test = self._value(node.test)
        self._of(node.test)
        for statement in [*(node.body if test is not False else ())]:
            self.visit(statement)
        for statement in [*(node.orelse if test is not True else ())]:
            self.visit(statement)

    def visit_Assign(self, node: ast.Assign) -> None:
        """A name for what the value points into."""
        sources = self._of(node.value)
        for target in node.targets:
            for name in _names(target):
                self._sources[name] = sources

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """The same with a type."""
        if node.value is not None:
            sources = self._of(node.value)
            for name in _names(node.target):
                self._sources[name] = sources

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """A pointer moved on still points into the same."""
        sources = self._of(node.value)
        for name in _names(node.target):
            self._sources[name] = self._sources.get(name, frozenset()) | sources

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call for what it does."""
        self._of(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        """What a helper returns may read."""
        if node.value is not None:
            self._of(node.value)

    def _of(self, node: ast.AST) -> Names:
        """The arguments that an expression points into; what it loads points into none."""
        if isinstance(node, ast.Name):
            return self._sources.get(node.id, frozenset())
        if isinstance(node, ast.IfExp):
            test = self._value(node.test)
            taken = [node.body] * (test is not False) + [node.orelse] * (test is not True)
            return frozenset().union(*map(self._of, taken))
        if isinstance(node, ast.Call):
            return self._called(node)
        return frozenset().union(*(self._of(part) for part in ast.iter_child_nodes(node)))

    def _called(self, node: ast.Call) -> Names:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        self.calls.add(name)
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        sources = [self._of(value) for value in values]
        base = self._of(node.func.value) if isinstance(node.func, ast.Attribute) else frozenset()
        first = (sources[0] if sources else frozenset()) | base
        if name in ("load", "store") or name.startswith("atomic_"):
            if name != "store":
                self.read |= first
            if name != "load":
                self.written |= first
            return frozenset()
        return frozenset().union(base, *sources)

    def _value(self, node: ast.expr) -> object:
        """What a condition comes to with the constants at hand; None where they do not say."""
        try:
            code = compile(ast.Expression(node), "<condition>", "eval")
            value = eval(code, {"__builtins__": {}}, dict(self._arguments))
        except Exception:  # anything may be asked of values nobody has
            return None
        return value if isinstance(value, bool) else None


def _names(target: ast.AST) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


class KernelSource:
    """A kernel as it is written."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._found: dict[object, _Pointers] = {}
        self.name = str(getattr(function, "__name__", "kernel"))

    @cached_property
    def arguments(self) -> list[str]:
        """Names of its arguments, in order."""
        return list(inspect.signature(self._function).parameters)

    @cached_property
    def _body(self) -> list[ast.stmt]:
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(self._function)))
        except (OSError, TypeError, SyntaxError):
            return []
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        return functions[0].body if functions else []

    @cached_property
    def _deciding(self) -> frozenset[str]:
        """The arguments that a condition asks for."""
        tests = (
            node.test
            for statement in self._body
            for node in ast.walk(statement)
            if isinstance(node, ast.If | ast.IfExp)
        )
        return frozenset(name for test in tests for name in _names(test)) & set(self.arguments)

    def bound(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The arguments of a launch by name, those that have a default with it."""
        parameters = inspect.signature(self._function).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        given = dict(zip(self.arguments, args, strict=False))
        return {**defaults, **given, **{k: v for k, v in kwargs.items() if k in self.arguments}}

    def pointers(self, arguments: Mapping[str, object]) -> _Pointers:
        """What a launch with these arguments does to them."""
        key = tuple(_constant(arguments.get(name)) for name in sorted(self._deciding))
        if key not in self._found:
            values = {name: _constant(value) for name, value in arguments.items()}
            found = _Pointers(values)
            for statement in self._body:
                found.visit(statement)
            self._found[key] = found
        return self._found[key]


def _constant(value: object) -> object:
    """A value that a condition may ask for; a tensor is only there, or not."""
    return value if isinstance(value, bool | int | float | str | None) else _THERE


_THERE = type("_There", (), {"__repr__": lambda _: "a tensor"})()


# A launch


def record_launch(
    source: KernelSource, args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    """Record one launch of a kernel."""
    arguments = source.bound(args, kwargs)
    tensors = {name: value for name, value in arguments.items() if isinstance(value, Tensor)}
    if not tensors:
        return
    found = source.pointers(arguments)
    read = [tensors[name] for name in tensors if name in found.read]
    written = [tensors[name] for name in tensors if name in found.written]
    if not read and not written:  # nothing is known of it: everything is read
        read = list(tensors.values())
    launch(
        f"triton.{source.name}",
        read,
        written,
        kind=_kind(source.name, found.calls),
        is_known="dot" not in found.calls,
    )


def _kind(name: str, calls: set[str]) -> Kind:
    """Rows that are summed up are a norm, or with exponentials a softmax; the rest is a pass."""
    if "dot" in calls or not calls & _ROWS:
        return "other" if "dot" in calls else "elementwise"
    return "softmax" if calls & {"exp", "exp2"} and "norm" not in name else "norm"


# Triton where it is installed: its launches are recorded instead


def patch_triton(patches: AttributePatches) -> None:
    """Record the launches of an imported Triton, which would ask for a GPU."""
    jit = sys.modules.get("triton.runtime.jit")
    autotuner = sys.modules.get("triton.runtime.autotuner")
    if jit is None or not hasattr(jit, "JITFunction"):
        return
    patches.set(jit.JITFunction, "run", _run)
    if autotuner is not None:
        patches.set(autotuner.Autotuner, "run", _run_first)


_sources: dict[object, KernelSource] = {}


def _run(
    kernel: Any, *args: object, grid: object = None, warmup: bool = False, **kwargs: object
) -> None:
    del grid
    if kernel not in _sources:
        _sources[kernel] = KernelSource(kernel.fn)
    if not warmup:
        record_launch(_sources[kernel], args, kwargs)


def _run_first(tuner: Any, *args: object, **kwargs: Any) -> object:
    """With the first of the configurations: which one is the fastest, only a GPU can say."""
    config = tuner.configs[0]
    tuner.best_config = config
    chosen = {**kwargs, **_options(config)}
    if getattr(config, "pre_hook", None) is not None:
        config.pre_hook({**dict(zip(tuner.arg_names, args, strict=False)), **chosen})
    result: object = tuner.fn.run(*args, **chosen)
    return result


def _options(config: Any) -> dict[str, object]:
    options: dict[str, object] = config.all_kwargs()
    return options


# Triton where it is not


class _Kernel:
    """A function that `triton.jit` was put before."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.fn = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self._source = KernelSource(function)

    @property
    def arg_names(self) -> list[str]:
        """Names of its arguments, in order."""
        return self._source.arguments

    @property
    def src(self) -> str:
        """Its source, from its first line on."""
        text = textwrap.dedent(inspect.getsource(self.fn))
        return text[text.index("def ") :]

    def __getitem__(self, grid: object) -> Callable[..., object]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)

    def run(
        self, *args: object, grid: object = None, warmup: bool = False, **kwargs: object
    ) -> None:
        """Record a launch."""
        del grid
        if not warmup:
            record_launch(self._source, args, kwargs)

    def warmup(self, *_: object, **__: object) -> None:
        """Nothing is compiled."""

    def __call__(self, *_: object, **__: object) -> None:
        raise RuntimeError(f"{self.__name__} is a Triton kernel: it is launched on a grid")


class _Tuned(_Kernel):
    """A kernel of several configurations, of which the first is taken."""

    def __init__(self, kernel: Any, configs: Sequence[_Config]) -> None:
        super().__init__(kernel.fn)
        self.inner, self.configs = kernel, list(configs) or [_Config({})]
        self.best_config = self.configs[0]

    def run(
        self, *args: object, grid: object = None, warmup: bool = False, **kwargs: object
    ) -> None:
        """Record a launch with the first configuration."""
        _run_first(_Inner(self, self.inner), *args, grid=grid, warmup=warmup, **kwargs)


class _Inner:
    """What `_run_first` asks of an autotuner."""

    def __init__(self, tuned: _Tuned, kernel: Any) -> None:
        self.configs, self.arg_names, self.fn = tuned.configs, tuned.arg_names, kernel


class _Heuristics(_Kernel):
    """A kernel some of whose arguments follow from the others."""

    def __init__(self, kernel: Any, values: Mapping[str, Callable[..., object]]) -> None:
        super().__init__(kernel.fn)
        self.inner, self.values = kernel, values

    def run(self, *args: object, grid: object = None, warmup: bool = False, **kwargs: Any) -> None:
        """Record a launch with the arguments that follow."""
        for name, value in self.values.items():
            kwargs[name] = value({**dict(zip(self.arg_names, args, strict=False)), **kwargs})
        self.inner.run(*args, grid=grid, warmup=warmup, **kwargs)


class _Config:
    """A choice of constants."""

    def __init__(
        self,
        kwargs: Mapping[str, object],
        num_warps: int = 4,
        num_stages: int = 2,
        *_: object,
        pre_hook: Callable[..., object] | None = None,
        **__: object,
    ) -> None:
        self.kwargs, self.num_warps, self.num_stages = dict(kwargs), num_warps, num_stages
        self.pre_hook = pre_hook

    def all_kwargs(self) -> dict[str, object]:
        """The constants, and how many threads run at once."""
        return {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages}


def _jit(function: Any = None, **_: object) -> Any:
    return _Kernel if function is None else _Kernel(function)


def _autotune(configs: Sequence[_Config] = (), *_: object, **__: object) -> Callable[..., object]:
    return lambda kernel: _Tuned(kernel, configs)


def _heuristics(values: Mapping[str, Callable[..., object]]) -> Callable[..., object]:
    return lambda kernel: _Heuristics(kernel, values)


def _next_power_of_2(n: int) -> int:
    return 1 << max(int(n) - 1, 0).bit_length() if n > 0 else 0


class _Word:
    """A name of Triton's language, of which nothing is asked but that it can be written."""

    def __init__(self, *_: object, **__: object) -> None:
        """Whatever it is given."""

    def __call__(self, *_: object, **__: object) -> _Word:
        return self

    def __getattr__(self, name: str) -> _Word:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, _: object) -> _Word:
        return self

    def __or__(self, _: object) -> _Word:
        return self

    __ror__ = __or__


class _Constant:
    """`tl.constexpr`: a type in a kernel's arguments, and a value around another."""

    def __init__(self, value: object = None) -> None:
        self.value = value


_WORD = _Word()
_LANGUAGE: Mapping[str, object] = {
    "constexpr": _Constant,
    "__getattr__": lambda _name: _WORD,
}
_TRITON: Mapping[str, object] = {
    "__version__": "3.5.0",
    "jit": _jit,
    "autotune": _autotune,
    "heuristics": _heuristics,
    "Config": _Config,
    "JITFunction": _Kernel,
    "KernelInterface": _Kernel,
    "cdiv": lambda x, y: -(-x // y),
    "next_power_of_2": _next_power_of_2,
}
STAND_INS: Mapping[str, Mapping[str, object]] = {
    "triton": _TRITON,
    "triton.language": _LANGUAGE,
    "triton.language.math": _LANGUAGE,
    "triton.language.extra": _LANGUAGE,
    "triton.language.extra.libdevice": _LANGUAGE,
    "triton.language.extra.cuda": _LANGUAGE,
    "triton.language.extra.cuda.libdevice": _LANGUAGE,
    "triton.runtime.jit": {"JITFunction": _Kernel, "KernelInterface": _Kernel},
    "triton.runtime.autotuner": {"Autotuner": _Tuned, "Config": _Config},
    "triton.runtime.driver": {"active": _WORD},
}
"""Of an installed Triton nothing of this is put in place: see `patch_triton`."""
NOT_REPLACED = frozenset({"triton"})
"""Packages that keep their own functions where they are installed."""
