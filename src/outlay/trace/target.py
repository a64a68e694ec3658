"""The user's training step: `path/to/file.py:function`, found and loaded.

The function is called with the batch size and returns a callable that runs one training step.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outlay.errors import InputError, NotKnown

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_EXAMPLE = "Write it as path/to/file.py:function."


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A function in a Python file."""

    path: Path
    function: str


def parse_target(text: str) -> Target:
    """The file and function a target names; the file must exist."""
    path_text, colon, function = text.rpartition(":")
    if not colon or not path_text.endswith(".py") or not function.isidentifier():
        raise InputError(f"{text!r} is not a training step.", fix=_EXAMPLE)
    path = Path(path_text).expanduser()
    if not path.is_file():
        raise InputError(
            f"There is no file {path_text}.", why=f"It was named by {text!r}.", fix=_EXAMPLE
        )
    return Target(path=path.resolve(), function=function)


def load_function(target: Target) -> Callable[[int], object]:
    """The target's function, its file's folder importable. Errors of the file pass through."""
    folder = str(target.path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = load_module(target.path)
    function = getattr(module, target.function, None)
    if function is None:
        names = [name for name, value in vars(module).items() if callable(value)]
        raise NotKnown(f"function in {target.path.name}", target.function, names)
    if not callable(function):
        raise InputError(
            f"{target.function} in {target.path.name} is not a function.",
            why=f"It is a {type(function).__name__}.",
            fix="Name a function that takes the batch size and returns the training step.",
        )
    found: Callable[[int], object] = function
    return found


def load_module(path: Path) -> ModuleType:
    """Import a file under its own name, so that pickles and relative tools find it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} cannot be imported as Python.", fix=_EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
