"""Stand-ins for CUDA packages and compiled extensions while a step is traced: `install`.

An import of a known package that is not installed is answered with a module of stand-ins; in one
that is installed, functions that only run on a GPU are replaced. An extension that would be built
(`torch.utils.cpp_extension.load`), or was never built here, becomes a module whose functions are
looked up by name. Questions whether a package is there (`importlib.util.find_spec`, an import
within `try` whose failure is caught) are answered as this Python would: a step then takes the same
way as here without outlay, and a note names the line.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.utils import cpp_extension
from torch.utils._pytree import tree_iter

from outlay.trace.capture.wrappers import AttributePatches, NotTraceable
from outlay.trace.dependencies import WATCH
from outlay.trace.formulas import RegisteredFunction, registered_functions
from outlay.trace.libraries.fused import FusedOp, fused_op, used_libraries
from outlay.trace.target import INSTALLED

FAMILIES = (
    "natten",
    "stylegan",
    "flash_attention",
    "flash_layers",
    "memory_efficient",
    "deformable",
    "state_space",
    "state_space_dual",
    "mamba_models",
    "apex",
    "liger",
    "triton_kernels",
)
"""Modules of this package, each with tables of what it stands in for:

`STAND_INS`: full module name -> attribute -> function or class.
`EXTENSIONS`, where there is one: functions of compiled modules, by `function` or `module.function`.
`NOT_REPLACED`, where there is one: packages that keep their own functions where they are installed.
`REPLACED_CLASSES`, where there is one: classes to replace in an installed package, too, as
`module.Class`; its other classes stay, as they call functions that are replaced.
"""

ASSUMED_INSTALLED = "OUTLAY_ASSUME_INSTALLED"
"""The environment variable that names packages which a GPU machine has and this one has not."""


# What is known


@cache
def _families() -> tuple[ModuleType, ...]:
    return tuple(importlib.import_module(f"outlay.trace.libraries.{name}") for name in FAMILIES)


@cache
def _stand_ins() -> dict[str, dict[str, object]]:
    """Every known module with its attributes."""
    modules: dict[str, dict[str, object]] = {}
    for family in _families():
        for module, attributes in family.STAND_INS.items():
            modules.setdefault(module, {}).update(attributes)
    return modules


@cache
def _extension_functions() -> dict[str, object]:
    """Known functions of compiled modules, by name or by module and name."""
    functions: dict[str, object] = {}
    for family in _families():
        functions.update(getattr(family, "EXTENSIONS", {}))
    return functions


@cache
def _replaced_classes() -> frozenset[str]:
    return frozenset(
        name for family in _families() for name in getattr(family, "REPLACED_CLASSES", ())
    )


@cache
def _not_replaced() -> frozenset[str]:
    return frozenset(name for family in _families() for name in getattr(family, "NOT_REPLACED", ()))


def _attributes(module: str) -> dict[str, object]:
    """What a module has: the families' and the user's own."""
    own = {
        name.rpartition(".")[2]: _own_op(name, function)
        for name, function in registered_functions().items()
        if name.rpartition(".")[0] == module
    }
    return {**_stand_ins().get(module, {}), **own}


@cache
def _family_roots() -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in _stand_ins())


def _is_known(module: str) -> bool:
    """Whether a package is one of the families', or has a function that the user registered."""
    root = module.partition(".")[0]
    return root in _family_roots() or any(
        name.partition(".")[0] == root for name in registered_functions()
    )


_own_ops: dict[str, tuple[RegisteredFunction, FusedOp]] = {}


def _own_op(name: str, function: RegisteredFunction) -> FusedOp:
    """The operator of a function that the user has registered."""
    if name not in _own_ops or _own_ops[name][0] is not function:
        op = FusedOp(
            name=name,
            forward=_results_of(function.shapes),
            cost=function.formula,
            backward_flops=function.backward_flops,
            backward_bytes=function.backward_bytes,
        )
        _own_ops[name] = (function, op)
    return _own_ops[name][1]


def _results_of(shapes: Callable[..., object] | None) -> Callable[..., object]:
    """A function from arguments to empty results; without `shapes`, like the first tensor."""

    def results(*args: object, **kwargs: object) -> object:
        first = next((leaf for leaf in tree_iter((args, kwargs)) if isinstance(leaf, Tensor)), None)
        if shapes is None:
            return None if first is None else torch.empty_like(first)
        return _made(shapes(*args, **kwargs), first)

    return results


def _made(shape: Any, like: Tensor | None) -> object:
    """Tensors of a shape, or of several; tensors are taken as they are."""
    if isinstance(shape, Tensor) or shape is None:
        return shape
    if all(isinstance(size, int) for size in shape):
        return torch.empty(tuple(shape)) if like is None else like.new_empty(tuple(shape))
    return tuple(_made(each, like) for each in shape)


# Notes


_notes: dict[str, None] = {}


def notes() -> list[str]:
    """What was answered with a stand-in, and what was not, in order."""
    replaced = [
        f"{name} is installed, but its operators run on a GPU alone: they are counted by formula."
        for name in sorted(_patched_roots & used_libraries)
    ]
    return [*_notes, *replaced]


def _note(text: str) -> None:
    _notes.setdefault(text)


_OUTLAY = str(Path(__file__).parents[2])
_TORCH = str(Path(torch.__file__).parent)


def _is_machinery(filename: str) -> bool:
    return filename.startswith(("<frozen ", _OUTLAY, _TORCH)) or _is_importlib(filename)


def _is_importlib(filename: str) -> bool:
    return filename.startswith("<frozen importlib") or (
        f"{os.sep}importlib{os.sep}" in filename and not _is_library(filename)
    )


def _caller() -> FrameType | None:
    """The innermost frame that is neither ours, nor torch's, nor Python's imports."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_machinery(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _importer() -> FrameType | None:
    """The frame with the import statement that runs."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename.startswith(_OUTLAY) or _is_importlib(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    return frame


def _line_of(frame: FrameType | None) -> str:
    """`ops/upfirdn2d.py:12`, the file with its folder."""
    if frame is None:
        return "an unknown line"
    path = Path(frame.f_code.co_filename)
    return f"{'/'.join(path.parts[-2:])}:{frame.f_lineno}"


# Modules that are not there


class StandInModule(ModuleType):
    """A module of stand-ins; what nobody knows can be imported, and says so when it is called."""

    def __init__(self, name: str, attributes: Mapping[str, object], unknown: Any) -> None:
        super().__init__(name, "Stands in for a module while a step is traced.")
        self.__path__: list[str] = []
        self.__file__ = f"<stand-in for {name}>"
        self.__dict__.update(attributes)
        self.__dict__["_unknown"] = unknown

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        part = f"{self.__name__}.{name}"
        if any(known == part or known.startswith(f"{part}.") for known in _stand_ins()):
            return importlib.import_module(part)
        value = _within(self.__name__, name) or self.__dict__["_unknown"](self.__name__, name)
        self.__dict__[name] = value
        return value


def _within(package: str, name: str) -> object:
    """What a module below a package has under a name, which the package may have too."""
    return next(
        (
            attributes[name]
            for module, attributes in _stand_ins().items()
            if module.startswith(f"{package}.") and name in attributes
        ),
        None,
    )


class _Placeholder(type):
    """A name of a package that no formula is known for: a class that cannot be made."""

    full_name: str

    def __call__(cls, *_args: object, **_kwargs: object) -> object:
        raise not_known(cls.full_name)

    def __getattr__(cls, name: str) -> object:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return placeholder(cls.full_name, name)


def placeholder(module: str, name: str) -> type:
    """A class that stands for `module.name`, raising where it is called."""
    return _Placeholder(name, (), {"full_name": f"{module}.{name}"})


def not_known(name: str) -> NotTraceable:
    """The error for a kernel that has no formula."""
    return NotTraceable(
        f"{name} runs on a GPU alone, and what it computes is not known ({_line_of(_caller())}).",
        fix=f"Tell it before it is imported: outlay.register_op({name!r}, "
        "shapes=lambda x, *_: x.shape, flops=lambda x, *_, out: ...).",
    )


class _StandInLoader(importlib.abc.Loader):
    def __init__(self, unknown: Callable[[str, str], object]) -> None:
        self._unknown = unknown

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return StandInModule(spec.name, _attributes(spec.name), self._unknown)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: it is made with all it has."""


def _spec_of(name: str, unknown: Callable[[str, str], object]) -> importlib.machinery.ModuleSpec:
    return importlib.machinery.ModuleSpec(name, _StandInLoader(unknown), is_package=True)


class _MissingFinder(importlib.abc.MetaPathFinder):
    """The last to be asked for a module: stands in for those that nobody has."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A stand-in for a known package or a compiled extension that is imported."""
        del path, target
        parent, _, _ = fullname.rpartition(".")
        if isinstance(sys.modules.get(parent), StandInModule):
            return self._part_of(sys.modules[parent], fullname)
        root = fullname.partition(".")[0]
        if _is_known(root):
            if fullname != root:  # a part that an installed package does not have
                return _spec_of(fullname, placeholder) if _attributes(fullname) else None
            return _spec_of(fullname, placeholder) if _is_demanded(root) else None
        if _looks_compiled(fullname) and _is_demanded(fullname):
            _note(
                f"{fullname} is not built here ({_line_of(_importer())}): its kernels are counted "
                "by formula, where there is one."
            )
            return _spec_of(fullname, extension_function)
        return None

    @staticmethod
    def _part_of(parent: ModuleType, fullname: str) -> importlib.machinery.ModuleSpec | None:
        """A module within a stand-in, unless it is a name the stand-in has as something else."""
        name = fullname.rpartition(".")[2]
        known = parent.__dict__.get(name)
        if known is not None and not isinstance(known, ModuleType | _Placeholder):
            return None
        unknown = parent.__dict__["_unknown"]
        return _spec_of(fullname, unknown)


_not_installed: dict[str, bool] = {}
"""What was said not to be installed; whether the user's own code looked for it."""


_SPOKEN = {
    "flashattention": "flash_attn",
    "flash attention": "flash_attn",
    "mamba ssm": "mamba_ssm",
}
"""How packages are called in messages, where it is not by their own name."""


def wanted_after(failure: str) -> list[str]:
    """Packages to take as installed, so that a step that failed without them may run.

    Those that the user's own code looked for, and those that the failure names; where it names a
    compiled part, all compiled parts. Empty where nothing is to be gained.
    """
    words = failure.lower().replace("-", "_")
    for spoken, name in _SPOKEN.items():
        words = words.replace(spoken, name)
    spoken_of = set(re.findall(r"(?<!\w)\w*[a-z_]", words))  # without a number behind it
    named = {name for name in _not_installed if name.rpartition(".")[2].lower() in spoken_of}
    is_compiled_named = any(not _is_known(name) for name in named)
    wanted = [
        name
        for name, is_own in _not_installed.items()
        if name in named or (is_own if _is_known(name) else is_compiled_named)
    ]
    assumed = _assumed_installed()
    return [*assumed, *wanted] if set(wanted) - set(assumed) else []


def _assumed_installed() -> list[str]:
    names = os.environ.get(ASSUMED_INSTALLED, "").replace("-", "_").split(",")
    return [name for name in map(str.strip, names) if name]


def _is_demanded(root: str) -> bool:
    """Whether a package is imported in earnest, rather than looked for; the line is noted."""
    if _is_torch_asking():
        return False
    if root in _assumed_installed():
        if _is_known(root):
            _note(
                f"{root} is not installed, and taken to be: its operators are counted by formula."
            )
        return True
    if _is_question():
        _not_installed.setdefault(root, False)
        return False
    frame = _importer()
    if frame is not None and _is_optional_import(frame.f_code.co_filename, frame.f_lineno):
        is_own = not _is_library(frame.f_code.co_filename)
        _not_installed[root] = _not_installed.get(root, False) or is_own
        if is_own:
            _note(
                f"{_line_of(frame)} imports {root} only where it is installed. It is not, so the "
                f"step is traced without it; {ASSUMED_INSTALLED}={root} traces it with it."
            )
        return False
    if _is_known(root):
        _note(f"{root} is not installed: its operators are counted by formula.")
    return True


def _is_torch_asking() -> bool:
    """Whether torch itself imports it, which does without what is not there."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(("<frozen ", _OUTLAY)):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_TORCH)


def _is_library(filename: str) -> bool:
    return any(part in filename for part in INSTALLED)


def _is_question() -> bool:
    """Whether somebody asks if a module can be found, without importing it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_machinery(frame.f_code.co_filename):
        code = frame.f_code
        if code.co_name == "find_spec" and "importlib.util" in _module_of(frame):
            return True
        frame = frame.f_back
    return False


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


@cache
def _is_optional_import(filename: str, line: int) -> bool:
    """Whether the import on a line is within a `try` that goes on where it fails."""
    try:
        tree = ast.parse(Path(filename).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return any(
        _covers(node, line) and any(map(_swallows, node.handlers))
        for node in ast.walk(tree)
        if isinstance(node, ast.Try)
    )


def _covers(node: ast.Try, line: int) -> bool:
    return any(part.lineno <= line <= (part.end_lineno or part.lineno) for part in node.body)


_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def _swallows(handler: ast.ExceptHandler) -> bool:
    """Whether a handler takes failed imports and goes on."""
    if handler.type is not None:
        names = {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(handler.type)}
        if not names & _IMPORT_ERRORS:
            return False
    return not any(isinstance(node, ast.Raise) for node in ast.walk(handler)) and not any(
        isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("exit", "_exit")
        for node in ast.walk(handler)
    )


# Packages that are there, but whose kernels are not


_patched_roots: set[str] = set()


class _InstalledFinder(importlib.abc.MetaPathFinder):
    """The first to be asked: lets the others find a known module, and replaces its functions."""

    def __init__(self, patches: AttributePatches) -> None:
        self._patches = patches
        self._asked: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's own spec, with a loader around its own; None of any other."""
        del path, target
        if fullname in self._asked or not (_is_known(fullname) and _attributes(fullname)):
            return None
        if fullname.partition(".")[0] in _not_replaced():
            return None
        parent = sys.modules.get(fullname.rpartition(".")[0])
        if isinstance(parent, StandInModule) or _is_question():
            return None
        self._asked.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        except (ImportError, ValueError):
            return None
        finally:
            self._asked.discard(fullname)
        if spec is None or spec.loader is None or isinstance(spec.loader, _StandInLoader):
            return None
        spec.loader = _InstalledLoader(spec.loader, self._patches)
        return spec


class _InstalledLoader(importlib.abc.Loader):
    """Loads a module, and replaces what only runs on a GPU."""

    def __init__(self, loader: importlib.abc.Loader, patches: AttributePatches) -> None:
        self._loader = loader
        self._patches = patches

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """The module's own; a stand-in for a compiled one that cannot be loaded here."""
        try:
            return self._loader.create_module(spec)
        except ImportError:
            if not isinstance(self._loader, importlib.machinery.ExtensionFileLoader):
                raise
        _note(f"{spec.name} cannot be loaded here: its functions are counted by formula.")
        return StandInModule(spec.name, _attributes(spec.name), placeholder)

    def exec_module(self, module: ModuleType) -> None:
        """Run it, and replace what only runs on a GPU."""
        if not isinstance(module, StandInModule):
            self._loader.exec_module(module)
            replace_functions(self._patches, module)


def replace_functions(patches: AttributePatches, module: ModuleType) -> None:
    """Replace the functions of an imported module that only run on a GPU, wherever they went."""
    if isinstance(module, StandInModule) or module.__name__.partition(".")[0] in _not_replaced():
        return
    for name, value in _attributes(module.__name__).items():
        original = module.__dict__.get(name)
        if original is None or original is value:
            continue
        full_name = f"{module.__name__}.{name}"
        if isinstance(original, type) and full_name not in _replaced_classes() | set(
            registered_functions()
        ):
            continue
        _patched_roots.add(module.__name__.partition(".")[0])
        for owner, bound in _bound_to(original):
            patches.set(owner, bound, value)


def _replace_methods(patches: AttributePatches) -> None:
    """Replace methods of classes that the user has registered: `module.Class.method`."""
    for name, function in registered_functions().items():
        owner, _, method = name.rpartition(".")
        module, _, class_name = owner.rpartition(".")
        kind = getattr(sys.modules.get(module), class_name, None)
        if isinstance(kind, type) and method in vars(kind):
            patches.set(kind, method, _own_op(name, function))


def _bound_to(value: object) -> list[tuple[ModuleType, str]]:
    """Every module that has a value, with the name it has it under."""
    return [
        (module, name)
        for module in list(sys.modules.values())
        if isinstance(module, ModuleType) and not module.__name__.startswith("outlay.")
        for name, bound in list(vars(module).items())
        if bound is value
    ]


# Extensions


_COMPILED_PART = re.compile(r"_C|_ext|\w+_ext|\w+_cuda|cuda_\w+|\w+_kernels?")
"""What people call the compiled part of a package."""


def extension_function(module: str, name: str) -> object:
    """A compiled module's function: the user's, a known one by its name, or one assumed."""
    own = registered_functions().get(f"{module}.{name}")
    if own is not None:
        return _own_op(f"{module}.{name}", own)
    functions = _extension_functions()
    for key in (f"{module}.{name}", f"{module.rpartition('.')[2]}.{name}"):
        if key in functions:
            return functions[key]
    assumed = _assumed_function(module, name)
    known = functions.get(name)
    return _with_same_arguments(known, assumed) if callable(known) else assumed


def _with_same_arguments(
    known: Callable[..., object], assumed: Callable[..., object]
) -> Callable[..., object]:
    """A function known by its name alone; where it is called otherwise, it is another."""

    def call(*args: object, **kwargs: object) -> object:
        try:
            return known(*args, **kwargs)
        except (TypeError, ValueError, IndexError, AttributeError):
            return assumed(*args, **kwargs)

    return call


def _assumed_function(module: str, name: str) -> Callable[..., object]:
    """A function of which nothing is known but the tensors it is given."""
    full_name = f"{module}.{name}"
    op = fused_op(full_name, _results_of(None), kind="other", is_known=False)

    def assumed(*args: object, **kwargs: object) -> object:
        own = registered_functions().get(full_name)
        if own is not None:
            return _own_op(full_name, own)(*args, **kwargs)
        if not any(isinstance(leaf, Tensor) for leaf in tree_iter((args, kwargs))):
            raise not_known(full_name)
        _note(
            f"{full_name} ({_line_of(_caller())}) is a compiled function that is not known: it was "
            "assumed to return a tensor like its first, its bytes are counted and its FLOPs are "
            f"not. outlay.register_op({full_name!r}, shapes=..., flops=...) tells both."
        )
        return op(*args, **kwargs)

    assumed.__name__ = name
    return assumed


def _looks_compiled(name: str) -> bool:
    """Whether a module that nobody has is a compiled one.

    A setup.py near the importing file builds it, or it is part of a package that is there and has
    a name that such parts have.
    """
    frame = _importer()
    if frame is None:
        return False
    parent, _, last = name.rpartition(".")
    if parent and parent in sys.modules and _COMPILED_PART.fullmatch(last):
        return True
    folder = Path(frame.f_code.co_filename).parent
    if _is_library(frame.f_code.co_filename) or not folder.is_dir():
        return False
    declared = WATCH.extensions_below(str(_top_folder(folder)))
    return any(name == known or name.endswith(f".{known}") for known in declared)


def _top_folder(folder: Path) -> Path:
    """The folder of the repository that a folder is in: up to three above it, or where .git is."""
    shared = {Path.home(), Path(tempfile.gettempdir())}
    top = folder.resolve()
    for _ in range(3):
        parent = top.parent
        if (top / ".git").exists() or parent in shared or len(parent.parts) < 3:
            break
        top = parent
    return top


def _built(name: str) -> ModuleType:
    """The module that building an extension would give; it can be imported by its name, too."""
    _note(
        f'The extension "{name}" ({_line_of(_caller())}) was not built: its kernels are counted by '
        "formula, where there is one."
    )
    module = sys.modules.get(name)
    if not isinstance(module, StandInModule):
        module = StandInModule(name, {}, extension_function)
        sys.modules[name] = module
    return module


def _load(name: str, *_args: object, **_kwargs: object) -> ModuleType:
    """`torch.utils.cpp_extension.load`, `load_inline` and what they call."""
    return _built(name)


_NO_CUDA_HOME = "/usr/local/cuda"
"""What `CUDA_HOME` says where there is none: scripts look whether it is set, and nothing reads it
where nothing is built."""


def _patch_versions(patches: AttributePatches) -> None:
    """The version of a package that is taken to be installed, and the name it is installed by."""
    original = importlib.metadata.version
    original_names = importlib.metadata.packages_distributions

    def version(name: str) -> str:
        try:
            return original(name)
        except importlib.metadata.PackageNotFoundError:
            root = name.replace("-", "_").lower()
            known = _stand_ins().get(root, {}).get("__version__")
            if root not in _assumed_installed() or known is None:
                raise
            return str(known)

    def names() -> Mapping[str, list[str]]:
        assumed = {name: [name.replace("_", "-")] for name in _assumed_installed()}
        return {**assumed, **original_names()}

    patches.set(importlib.metadata, "version", version)
    patches.set(importlib.metadata, "packages_distributions", names)


def _patch_extensions(patches: AttributePatches) -> None:
    for name in ("load", "load_inline", "_jit_compile"):
        for owner, bound in _bound_to(getattr(cpp_extension, name)):
            patches.set(owner, bound, _load)
    patches.set(cpp_extension, "_import_module_from_library", _load)
    if cpp_extension.CUDA_HOME is None:
        for owner, bound in [(cpp_extension, "CUDA_HOME")]:
            patches.set(owner, bound, _NO_CUDA_HOME)
    for name in ("check_compiler_ok_for_platform", "verify_ninja_availability"):
        patches.set(cpp_extension, name, lambda *_, **__: True)
    patches.set(cpp_extension, "is_ninja_available", lambda: True)


# Putting them in place


_installed: list[AttributePatches] = []


def install() -> None:
    """Put stand-ins in place in this process, for good. Does nothing the second time."""
    if not _installed:
        _installed.append(_in_place())


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Stand-ins while a step is captured; where `install` was called before, they stay."""
    if not _installed:
        _notes.clear()
        used_libraries.clear()
    patches = AttributePatches() if _installed else _in_place()
    try:
        for module in list(sys.modules.values()):
            name = getattr(module, "__name__", "")
            if isinstance(module, ModuleType) and _is_known(name):
                replace_functions(patches, module)
        _replace_methods(patches)
        yield
    finally:
        patches.restore()


def _in_place() -> AttributePatches:
    _stand_ins()  # families import modules, for which nobody needs to stand in
    _extension_functions()
    patches = AttributePatches()
    first, last = _InstalledFinder(patches), _MissingFinder()
    sys.meta_path.insert(0, first)
    sys.meta_path.append(last)
    patches.on_restore(lambda: _remove_stand_ins(first, last))
    _patch_extensions(patches)
    _patch_versions(patches)
    return patches


def _remove_stand_ins(*finders: importlib.abc.MetaPathFinder) -> None:
    for finder in finders:
        sys.meta_path.remove(finder)
    for name, module in list(sys.modules.items()):
        if isinstance(module, StandInModule):
            del sys.modules[name]
