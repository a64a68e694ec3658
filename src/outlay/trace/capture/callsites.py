"""Which line of the user's own code an operation comes from.

A forward operation: the innermost frame in the user's folder. A backward operation: the line of
the forward operation it belongs to. torch numbers the nodes of autograd's graph in the order
they are made, in each thread; an operation that makes one sees its number (the newest), and
the backward pass says which node it is at.
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from outlay.trace.step_report import CallSite

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from torch._ops import OpOverload

_INSTALLED = ("site-packages", "dist-packages")
_OUTLAY = str(Path(__file__).parents[2])
_ENGINE = "_engine_run_backward"
"""The function of torch that starts the backward pass; its callers did not ask for the operation
at hand."""


class CallSites:
    """Finds the user's line for every operation of a step.

    The user's own files are `file` and those in its folder, installed packages apart. A file
    that is none (a notebook's cell) has no folder.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        path = Path(file)
        self._folder = str(path.resolve().parent) + os.sep if path.is_file() else None
        self._names: dict[str, str | None] = {}
        self._made: dict[int, dict[int, tuple[str, CallSite | None]]] = {}

    def here(self, func: OpOverload) -> CallSite | None:
        """The call site of the operation that runs now."""
        node = torch._C._current_autograd_node()
        site = self._innermost(sys._getframe(1), in_backward=node is not None)
        if node is not None and site is None:
            site = self._site_of(node)
        made = self._made.setdefault(threading.get_ident(), {})
        made.setdefault(torch.autograd._get_sequence_nr() - 1, (_letters(func.name()), site))
        return site

    def line_now(self, *, with_code: bool = False) -> str:
        """The line that runs now, `train.py:31`; a library's with the user's line that led there.

        With its text in brackets if asked for. Empty where neither is known.
        """
        frame: FrameType | None = sys._getframe(1)
        own = self._innermost(frame, in_backward=torch._C._current_autograd_node() is not None)
        library = _library_line(frame, self._own_name)
        if own is None:
            return library or ""
        user = f"{own} ({own.code})" if with_code and own.code else str(own)
        return user if library is None else f"{library}, from {user}"

    def _innermost(self, frame: FrameType | None, *, in_backward: bool) -> CallSite | None:
        while frame is not None:
            code = frame.f_code
            if in_backward and code.co_name == _ENGINE:
                return None
            name = self._own_name(code.co_filename)
            if name is not None:
                return _site(name, frame.f_lineno, code.co_name, code.co_filename)
            frame = frame.f_back
        return None

    def _own_name(self, filename: str) -> str | None:
        """How a file of the user's own is called, or None for any other."""
        if filename not in self._names:
            self._names[filename] = self._name_of(filename)
        return self._names[filename]

    def _name_of(self, filename: str) -> str | None:
        if filename == self._file:
            return Path(filename).name
        if self._folder is None or not filename.startswith(self._folder):
            return None
        if filename.startswith(_OUTLAY) or any(part in filename for part in _INSTALLED):
            return None
        return filename.removeprefix(self._folder)

    def _site_of(self, node: torch.autograd.graph.Node) -> CallSite | None:
        """Where the node was made; of two threads' nodes with its number, the one of its name."""
        number, name = node._sequence_nr(), _letters(node.name())
        found = [made[number] for made in self._made.values() if number in made]
        named = [site for operator, site in found if name.startswith(operator)]
        return next(iter(named or [site for _, site in found]), None)


def _library_line(frame: FrameType | None, own_name: Callable[[str], str | None]) -> str | None:
    """The innermost line of an installed package other than torch, if the user's is not deeper."""
    while frame is not None:
        filename = frame.f_code.co_filename
        if own_name(filename) is not None:
            return None
        found = [part for part in _INSTALLED if part in filename]
        within = filename.rpartition(f"{found[0]}{os.sep}")[2] if found else ""
        if within and within.partition(os.sep)[0] not in ("torch", "outlay"):
            return f"{within}:{frame.f_lineno}"
        frame = frame.f_back
    return None


@cache
def _site(name: str, line: int, function: str, filename: str) -> CallSite:
    text = linecache.getline(filename, line).strip()
    return CallSite(file=name, line=line, function=function, code=text)


@cache
def _letters(name: str) -> str:
    """`aten::native_layer_norm` and `NativeLayerNormBackward0` begin alike."""
    operator = name.rpartition("::")[2].partition(".")[0]
    return operator.replace("_", "").lower()
