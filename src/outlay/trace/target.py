"""The user's training step, and how to trace it. Nothing here needs torch.

`path/to/file.py:function` names a step: the function is called with the batch size and returns a
callable that runs one training step. `path/to/train.py -- --lr 0.1` names a whole script with its
arguments: it is run as it is, up to its first steps. `Changes` make that step need less memory, or
less time: it is traced again with a change made, so that what it saves and costs is read off the
same operations that would run (`outlay.trace.capture.changes`).
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from outlay.errors import InputError, NotKnown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


# The step

StepFunction = Callable[[], object]
"""Runs one training step."""
StepBuilder = Callable[[int], StepFunction]
"""Called with a batch size, returns a function that runs one training step."""

INSTALLED = ("site-packages", "dist-packages")
"""Folders of installed packages: what is in them is not the user's own code."""
_EXAMPLE = "Write it as path/to/file.py:function."
_SEPARATOR = " --"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A function in a Python file, or a file to run with its arguments."""

    path: Path
    function: str = ""
    """Empty where the file is run as a script."""
    arguments: tuple[str, ...] = ()

    @property
    def is_script(self) -> bool:
        """Whether the file is run, rather than a function of it called."""
        return not self.function

    @property
    def text(self) -> str:
        """As `parse_target` reads it."""
        if self.is_script:
            return script_target(str(self.path), self.arguments)
        return f"{self.path}:{self.function}"

    @property
    def name(self) -> str:
        """What to call the step: the function's name, or the script's."""
        return self.function or self.path.stem


def script_target(path: str, arguments: Sequence[str] = ()) -> str:
    """The target of a script with its arguments."""
    return f"{path}{_SEPARATOR} {shlex.join(arguments)}".rstrip()


def parse_target(text: str) -> Target:
    """The file and function that a target names, or the script; the file must exist."""
    path_text, separator, arguments = text.partition(_SEPARATOR)
    if separator and path_text.endswith(".py") and (not arguments or arguments.startswith(" ")):
        return _script(path_text, arguments)
    path_text, colon, function = text.rpartition(":")
    if not colon or not path_text.endswith(".py") or not function.isidentifier():
        raise InputError(f"{text!r} is not a training step.", fix=_EXAMPLE)
    path = Path(path_text).expanduser()
    if not path.is_file():
        why = f"It was named by {text!r}."
        raise InputError(_absent(path), why=why, fix=_EXAMPLE)
    return Target(path=path.resolve(), function=function)


def _script(path_text: str, arguments: str) -> Target:
    path = Path(path_text).expanduser()
    if not path.is_file():
        raise InputError(
            _absent(path), fix="Name the script as you would run it with python: path/to/train.py."
        )
    return Target(path=path.resolve(), arguments=tuple(shlex.split(arguments)))


def _absent(path: Path) -> str:
    """What is at a path where no file is."""
    if path.is_dir():
        return f"{path} is a directory, not a file of Python code."
    if path.is_symlink():
        return f"{path} is a link that leads nowhere, or back to itself."
    return f"There is no file {path}."


# The batch size among a script's arguments

BATCH_MARK = "{batch}"
"""Where the batch size stands in the arguments of a script."""
_BATCH_NAME = r"(?:(?:per[_-]?(?:device|gpu)|global|micro|mini|train|img|num)[_-]?)*(?:train[_-]?)?"
_BATCH = re.compile(
    rf"(?:[\w-]+\.)*{_BATCH_NAME}(?:batch(?:[_-]?size)?|bs|bsz)(?:[_-]?per[_-]?gpu)?",
    re.IGNORECASE,
)


def names_batch_size(name: str) -> bool:
    """Whether an option of this name is the batch size: `batch-size`, `train.batch_size`, `bs`."""
    return _BATCH.fullmatch(name.lstrip("-+")) is not None


def with_batch_mark(target: Target) -> Target:
    """The script with its batch size marked, where its arguments give one and none is marked."""
    arguments = list(target.arguments)
    if any(BATCH_MARK in argument for argument in arguments):
        return target
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if equals and value.isdecimal() and names_batch_size(name):
            arguments[place] = f"{name}={BATCH_MARK}"
            return replace(target, arguments=tuple(arguments))
        following = arguments[place + 1] if place + 1 < len(arguments) else ""
        is_option = argument.startswith("-") and (argument == "-b" or names_batch_size(argument))
        if is_option and following.isdecimal():
            arguments[place + 1] = BATCH_MARK
            return replace(target, arguments=tuple(arguments))
    return target


def marked_batch_size(target: Target) -> int | None:
    """The batch size that the script's own arguments give; None where they give none."""
    marked = with_batch_mark(target)
    for own, mark in zip(target.arguments, marked.arguments, strict=True):
        if own != mark:
            return int(own.removeprefix(mark.partition(BATCH_MARK)[0]))
    return None


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
    build: Callable[[int], object] = function
    return build


def load_module(path: Path) -> ModuleType:
    """Import a file under its own name, so that pickles and relative tools find it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} cannot be imported as Python.", fix=_EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


# What a trace assumes

BATCH_SIZE = 8
"""Samples of a step, where nobody says how many."""
SELECTED = 0.5
# Assumes: a selection whose mask only the data could tell keeps half of the elements (a guess:
# padding masks keep more, masked-language labels 0.15). `--selected` gives another share.


# Changes


Arithmetic = Literal[
    "bf16 autocast",  # weights stay as they are, products run in bf16
    "fp16 autocast",  # the same in fp16, with a gradient scaler
    "bf16",  # weights, gradients and optimizer state in bf16
]
Recompute = Literal[
    "blocks",  # of each block only the input is kept; the block runs again in backward
    "selective",  # of each block the results of products are kept, the rest is computed again
]
Update = Literal[
    "fused",  # one kernel updates all parameters
    "8-bit",  # optimizer state in 8 bits with a scale for each 256 values
    "offloaded",  # optimizer state and update on the host
]

LORA_RANK = 16
# Assumes: the rank people start with; adapters on every linear layer of the blocks.


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What to change in a step; None, 0 and 1 leave that part as it is."""

    arithmetic: Arithmetic | None = None
    recompute: Recompute | None = None
    update: Update | None = None
    lora_rank: int = 0
    accumulate: int = 1
    """Micro-batches before each update of the parameters."""

    @property
    def is_none(self) -> bool:
        """Whether nothing is changed."""
        return self == UNCHANGED

    def joined(self, other: Changes) -> Changes | None:
        """Both at once, or None where they are about the same part."""
        mine, theirs, unchanged = asdict(self), asdict(other), asdict(UNCHANGED)
        if any(mine[name] != unchanged[name] != theirs[name] for name in unchanged):
            return None
        both = {
            name: mine[name] if mine[name] != unchanged[name] else theirs[name] for name in mine
        }
        return Changes(**both)


UNCHANGED = Changes()


def changes_to_json(changes: Changes) -> dict[str, Any]:
    """The changes as plain JSON values."""
    return asdict(changes)


def changes_from_json(content: Mapping[str, Any] | None) -> Changes:
    """The changes in a request; none where it does not speak of any."""
    if content is None:
        return UNCHANGED
    try:
        return Changes(**content)
    except TypeError as error:
        raise InputError(
            f"{dict(content)} are no changes to a step.", why=str(error), fix="Ask for known ones."
        ) from None
