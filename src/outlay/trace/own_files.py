"""The user's own files among all that run: `OwnFiles` says which they are and what to call them.

Own is what is neither installed nor part of Python, torch or outlay: the file that was named and
its folder, and any other checkout its code is imported from (a folder put on the path, an editable
install, a submodule). Nothing here needs torch.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import cache
from pathlib import Path

from outlay.trace.target import INSTALLED

_OUTLAY = str(Path(__file__).parents[1])
_NO_LIBRARIES = ("torch", "outlay")
"""Installed packages whose lines say nothing of a model."""


class OwnFiles:
    """Which files are the user's own, by the name that code carries, and what each is called.

    Files in the folder of `file` are called by their path from there; others by their path from
    the folder they are imported from. Where two would be called alike, the later one gets the
    folders above it too. A `file` that is none (a notebook's cell) has no folder.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        path = Path(file)
        self._folder = str(path.resolve().parent) + os.sep if path.is_file() else None
        self._names: dict[str, str | None] = {}
        self._files: dict[str, str] = {}
        """Each name that was given, and the file it stands for."""

    def name_of(self, filename: str) -> str | None:
        """How a file of the user's own is called, or None for any other."""
        if filename not in self._names:
            self._names[filename] = self._new_name(filename)
        return self._names[filename]

    def _new_name(self, filename: str) -> str | None:
        if filename == self._file:
            return self._unambiguous(Path(filename).name, filename)
        if _is_installed(filename):
            return None
        if self._folder is not None and filename.startswith(self._folder):
            return self._unambiguous(filename.removeprefix(self._folder), filename)
        if _is_of_python(filename) or not Path(filename).is_file():
            return None
        path = os.path.realpath(filename)
        return self._unambiguous(os.path.relpath(path, _import_root(path)), path)

    def _unambiguous(self, name: str, filename: str) -> str:
        """The name with as many more folders as tell it from other files."""
        more = list(Path(filename).parts[: -len(Path(name).parts)])
        while self._files.setdefault(name, filename) != filename and len(more) > 1:
            name = str(Path(more.pop(), name))
        return name


@cache
def library_name(filename: str) -> str | None:
    """An installed file by its path from where it is installed; None for torch and for others."""
    folder = next((part for part in INSTALLED if part in filename), None)
    path = filename.rpartition(f"{folder}{os.sep}")[2] if folder else ""
    return path if path and path.partition(os.sep)[0] not in _NO_LIBRARIES else None


def _is_installed(filename: str) -> bool:
    return filename.startswith(_OUTLAY + os.sep) or any(part in filename for part in INSTALLED)


def _is_of_python(filename: str) -> bool:
    """Whether a file is the standard library's, torch's, or a command of this Python."""
    if not Path(filename).is_absolute():  # <frozen importlib>, <string>
        return not Path(filename).is_file()
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    folders = [*_folders_of_python(), *([str(Path(torch).parent)] if torch else [])]
    return any(filename.startswith(folder + os.sep) for folder in folders)


@cache
def _folders_of_python() -> tuple[str, ...]:
    paths = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "scripts"))
    known = {path for path in paths if path}
    return tuple(known | {os.path.realpath(path) for path in known})


def _import_root(filename: str) -> str:
    """The folder that a file is imported from: the nearest on the path, else above its package."""
    folder = Path(filename).parent
    on_path = {os.path.realpath(entry or os.curdir) for entry in sys.path}
    for candidate in (folder, *folder.parents):
        if str(candidate) in on_path and str(candidate) != os.sep:
            return str(candidate)
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return str(folder)
