"""What a trace depends on: noted as it is made (`Watch`), looked at again (`Dependencies`).

A tracing process notes every file that was opened, looked for or imported, every folder that was
listed, and every variable of the environment that was read. Of the user's own files the contents
count, of large ones and of installed packages size and time. Which modules an import would find is
part of it, so that a new file that takes the place of another is seen, and so is what is installed.
Of the folders in which setup files were searched for, what these files declare counts, not what
else comes and goes there (checkpoints, logs, a neighbour's files).
What cannot be looked at again (an answer from the network, a command that was run) is the reason
why a trace is not kept. Nothing here needs torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import source_from_cache
from pathlib import Path
from types import FrameType
from typing import Any

from outlay.files import cache_folder, data_folder
from outlay.trace.target import INSTALLED

LARGEST_READ_BYTES = 8 * 2**20
"""Of larger files, and of installed ones, size and time stand for the contents."""
MOST_FILES = 50_000
"""A trace that depends on more is not kept: looking at them takes as long as tracing."""
_CLOCK_NS = 10_000_000
"""Times of files are this much coarser than the clock."""
_ABSENT, _FOLDER = "absent", "folder"
_SYSTEM = tuple(f"{os.sep}{name}{os.sep}" for name in ("proc", "sys", "dev"))
_MODULE_ENDINGS = (".py", ".so", ".pyd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What a trace was made of, and how it can be told that all of it is as it was."""

    files: Mapping[str, str]
    """Of every path how it was: absent, a folder, its size and time, or a hash of its contents."""
    listings: Mapping[str, str]
    """Of every folder that was listed, a hash of the names in it."""
    import_folders: Mapping[str, str]
    """Of every folder that modules are found in, a hash of the names that an import can find."""
    extensions: Mapping[str, str]
    """Of every folder that was searched for setup files, a hash of what they declare."""
    variables: tuple[str, ...]
    """Variables of the environment that were read."""

    def changed(self) -> str:
        """What is not as it was, in words; empty where all is."""
        for path, before in self.files.items():
            if _state(path, before) != before:
                return f"{path} has changed"
        for path, before in self.listings.items():
            if _names_hash(_names_in(path)) != before:
                return f"other files are in {path}"
        for path, before in self.import_folders.items():
            if _names_hash(_importable(path)) != before:
                return f"other modules are in {path}"
        for path, before in self.extensions.items():
            if _names_hash(declared_extensions(path)) != before:
                return f"setup files below {path} declare other extensions"
        return ""


def dependencies_from_json(content: Mapping[str, Any]) -> Dependencies:
    """The dependencies in a JSON document; a KeyError or TypeError where it is none."""
    return Dependencies(
        files=dict(content["files"]),
        listings=dict(content["listings"]),
        import_folders=dict(content["import_folders"]),
        extensions=dict(content["extensions"]),
        variables=tuple(map(str, content["variables"])),
    )


def _state(path: str, like: str = "") -> str:
    """How a path is now; told in the way of an earlier state, where there is one."""
    try:
        status = os.stat(path)
    except OSError:
        return _ABSENT
    if not os.path.isfile(path):
        return _FOLDER
    is_installed = any(part in path for part in INSTALLED)
    by_time = is_installed or status.st_size > LARGEST_READ_BYTES
    if like.startswith("sha256") or (not like and not by_time):
        try:
            return f"sha256 {hashlib.sha256(Path(path).read_bytes()).hexdigest()}"
        except OSError:
            return _ABSENT
    return f"{status.st_size} bytes of {status.st_mtime_ns}"


def _names_in(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name != "__pycache__"]
    except OSError:
        return [_ABSENT]


def _importable(folder: str) -> list[str]:
    """The names in a folder that an import may find; of where packages are installed, all."""
    names = _names_in(folder)
    if any(part in folder for part in INSTALLED):
        return names
    return [
        name
        for name in names
        if name.endswith(_MODULE_ENDINGS)
        or ("." not in name and os.path.exists(os.path.join(folder, name, "__init__.py")))
    ]


_SEARCHED_FOLDERS = 300
_EXTENSION_NAME = re.compile(r"\w*[Ee]xt\w*\(\s*(?:name\s*=\s*)?['\"]([\w.]+)['\"]")
_NO_SOURCES = ("site-packages", "node_modules")


def declared_extensions(folder: str) -> frozenset[str]:
    """The compiled modules that setup files in a folder and below it build."""
    names: set[str] = set()
    for number, (path, folders, files) in enumerate(os.walk(folder)):
        if number >= _SEARCHED_FOLDERS:
            break
        folders[:] = sorted(
            name for name in folders if not name.startswith((".", "_")) and name not in _NO_SOURCES
        )
        if "setup.py" in files:
            with contextlib.suppress(OSError):
                text = Path(path, "setup.py").read_text(errors="replace")
                names.update(_EXTENSION_NAME.findall(text))
    return frozenset(names)


def _names_hash(names: Iterable[str]) -> str:
    text = "\0".join(sorted(names))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


# What a process does, as it does it


_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_RUNS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")
_ASKS = ("socket.connect", "socket.getaddrinfo")
_LISTS = ("os.listdir", "os.scandir")
_EVENTS = frozenset(("open", "sqlite3.connect", "ctypes.dlopen", *_RUNS, *_ASKS, *_LISTS))
_IMPORTERS = ("<frozen importlib", f"{os.sep}importlib{os.sep}", f"{os.sep}pkgutil.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchNotes:
    """What a `Watch` has noted: paths with the time they were first seen, and names."""

    seen: Mapping[str, int]
    listed: Mapping[str, int]
    written: frozenset[str]
    variables: frozenset[str]
    import_folders: tuple[str, ...]
    extension_folders: tuple[str, ...]
    why_not: str


class Watch:
    """Notes what this process depends on, from `start` to its end; what it writes is its own."""

    def __init__(self) -> None:
        self._is_on = False
        self._started_ns = 0
        self._is_iterating = 0
        self._seen: dict[str, int] = {}
        """Every path that was opened or looked for, and when first."""
        self._listed: dict[str, int] = {}
        self._written: set[str] = set()
        self._variables: set[str] = set()
        self._import_folders: dict[str, None] = {}
        self._extension_folders: dict[str, None] = {}
        self.why_not = ""
        """Why the trace cannot be kept; empty where it can."""

    def start(self) -> None:
        """Note everything from now on; for good, as hooks cannot be taken off again."""
        if self._started_ns:
            return
        self._is_on = True
        self._started_ns = time.time_ns()
        sys.addaudithook(self._hear)
        _watch_environment(self)
        _watch_stat(self._look)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Note nothing meanwhile."""
        was_on, self._is_on = self._is_on, False
        try:
            yield
        finally:
            self._is_on = was_on

    def give_up(self, reason: str) -> None:
        """Say why the trace cannot be kept; the first reason stays."""
        self.why_not = self.why_not or reason

    # Notes

    def read_variable(self, name: str) -> None:
        """Note a variable of the environment, unless all are gone through."""
        if self._is_on and not self._is_iterating and isinstance(name, str):
            self._variables.add(name)

    def extensions_below(self, folder: str) -> frozenset[str]:
        """The compiled modules that setup files below a folder build; these alone are noted."""
        if self._is_on:
            self._extension_folders[_absolute(folder)] = None
        with self.paused():
            return declared_extensions(folder)

    def iterate_variables(self, names: Iterable[str]) -> Iterator[str]:
        """The names; where the user's own code goes through them, each counts as read.

        Libraries go through them to hand them on to what they start.
        """
        everything = list(names)
        if self._is_on and _is_of_own_code(sys._getframe(1)):
            self._variables.update(everything)
        self._is_iterating += 1
        try:
            yield from everything
        finally:
            self._is_iterating -= 1

    def _look(self, path: object) -> None:
        """What is looked for; libraries also look for what they leave in the temporary folder."""
        if not self._is_on or not isinstance(path, str | bytes | os.PathLike):
            return
        name = _absolute(path)
        if name in self._seen:
            return
        if not name.startswith(_temporary_folder()) or _is_of_own_code(sys._getframe(2)):
            self._note(name, self._seen)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Python's audit events: what is opened, listed, started, asked."""
        if event not in _EVENTS or not self._is_on:
            return
        if event == "open":
            path, mode, flags = arguments
            is_written = (flags or 0) & _WRITES if mode is None else set(str(mode)) & set("wxa+")
            self._note(path, self._seen)
            if is_written and isinstance(path, str | bytes | os.PathLike):
                self._written.add(_absolute(path))
        elif event in _LISTS:
            frame = sys._getframe(1)
            if not any(part in frame.f_code.co_filename for part in _IMPORTERS):
                self._note(arguments[0] or os.curdir, self._listed)
        elif event in _RUNS:
            if _is_of_own_code(sys._getframe(1)):
                self.give_up("it runs other commands")
        elif event in _ASKS:
            address = arguments[-1] if event == "socket.connect" else ""
            if not isinstance(address, str | bytes) or not address:
                self.give_up("it asks the network")
        elif event == "sqlite3.connect" or os.path.isabs(str(arguments[0])):
            self._note(arguments[0], self._seen)

    def _note(self, path: object, notes: dict[str, int]) -> None:
        if isinstance(path, str | bytes | os.PathLike):
            notes.setdefault(_absolute(path), time.time_ns())

    # What came of it

    def notes(self) -> WatchNotes:
        """All that was noted so far, for the process that this one was forked from."""
        with self.paused():
            seen = dict(self._seen)
            for module in list(sys.modules.values()):
                path = getattr(module, "__file__", None)
                if isinstance(path, str):
                    seen.setdefault(_absolute(path), self._started_ns)
            return WatchNotes(
                seen=seen,
                listed=dict(self._listed),
                written=frozenset(self._written),
                variables=frozenset(self._variables),
                import_folders=tuple(_import_folders()),
                extension_folders=tuple(self._extension_folders),
                why_not=self.why_not,
            )

    def add(self, notes: WatchNotes) -> None:
        """Note what a forked process has noted."""
        for path, seen_ns in notes.seen.items():
            self._seen.setdefault(path, seen_ns)
        self._listed.update(notes.listed)
        self._written |= notes.written
        self._variables |= notes.variables
        self._import_folders.update(dict.fromkeys(notes.import_folders))
        self._extension_folders.update(dict.fromkeys(notes.extension_folders))
        self.why_not = self.why_not or notes.why_not

    def dependencies(self, own_folder: str = "") -> Dependencies:
        """All that was noted; of `own_folder`, which is the request's own, nothing counts."""
        self.add(self.notes())
        self._is_on = False
        files = {}
        for path, seen_ns in self._paths(own_folder):
            files[path] = _state(path)
            if files[path] not in (_ABSENT, _FOLDER):
                self._check_unchanged(path, seen_ns)
        if len(files) > MOST_FILES:
            self.give_up(f"it reads {len(files)} files")
        listings = {
            path: _names_hash(_names_in(path))
            for path in self._listed
            if not _is_ignored(path, own_folder) and not _is_installed(path) and not _is_ours(path)
        }
        folders = {
            path: _names_hash(_importable(path))
            for path in self._import_folders
            if not _is_ignored(os.path.join(path, ""), own_folder)
        }
        return Dependencies(
            files=files,
            listings=listings,
            import_folders=folders,
            extensions={
                path: _names_hash(declared_extensions(path)) for path in self._extension_folders
            },
            variables=tuple(sorted(self._variables)),
        )

    def _paths(self, own_folder: str) -> Iterator[tuple[str, int]]:
        """What a trace depends on, once each, and when it was first seen."""
        done = set()
        for name, seen_ns in self._seen.items():
            path = _source_of(name)
            is_known = path in done or path in self._written or _is_ignored(path, own_folder)
            if not is_known and not (_is_installed(path) and not os.path.isfile(path)):
                done.add(path)
                yield path, seen_ns

    def _check_unchanged(self, path: str, seen_ns: int) -> None:
        """What was read may have been another than what is there now."""
        try:
            changed_ns = os.stat(path).st_mtime_ns
        except OSError:
            changed_ns = seen_ns
        if changed_ns > seen_ns - _CLOCK_NS:
            self.give_up(f"{path} changed meanwhile")


WATCH = Watch()
"""That of this process."""


def _absolute(path: str | bytes | os.PathLike[Any]) -> str:
    text = os.fsdecode(path)
    try:
        return os.path.abspath(text)
    except OSError:  # the current folder is gone
        return text


def _source_of(path: str) -> str:
    """The Python file that a compiled one was made of."""
    if path.endswith(".pyc") or ".pyc." in path:
        try:
            return source_from_cache(path.partition(".pyc")[0] + ".pyc")
        except ValueError:
            return path
    return path


def _is_installed(path: str) -> bool:
    return any(part in path for part in INSTALLED)


def _is_ignored(path: str, own_folder: str) -> bool:
    """Whether a path says nothing of the step: the system's, or Python's own."""
    if path.startswith(_SYSTEM) or (own_folder and path.startswith(own_folder)):
        return True
    return not _is_installed(path) and path.startswith(_folders_of_python())


def _is_ours(folder: str) -> bool:
    """Whether a folder is one that outlay keeps things in: a trace that is kept changes it."""
    kept_in = (os.path.abspath(data_folder()), os.path.abspath(cache_folder()))
    return any(os.path.join(folder, "").startswith(os.path.join(one, "")) for one in kept_in)


@cache
def _temporary_folder() -> str:
    return os.path.join(tempfile.gettempdir(), "")


@cache
def _folders_of_python() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    paths |= {os.path.realpath(path) for path in paths}
    return tuple(os.path.join(path, "") for path in paths)


def _import_folders() -> list[str]:
    """Where imports look, and the folders of the user's own packages that were imported."""
    folders = [_absolute(entry or os.curdir) for entry in sys.path]
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and not _is_installed(path):
            folders.append(os.path.dirname(_absolute(path)))
    return [folder for folder in dict.fromkeys(folders) if os.path.isdir(folder)]


def _is_of_own_code(frame: FrameType | None) -> bool:
    """Whether the innermost code that is not Python's own is the user's."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name != __file__ and not name.startswith(("<frozen", *_folders_of_python())):
            return not _is_installed(name)
        if name != __file__ and _is_installed(name):
            return False
        frame = frame.f_back
    return False


# What Python does not report by itself


class _WatchedEnvironment(os._Environ):  # type: ignore[type-arg]
    """The environment, whose reads are noted."""

    watch: Watch

    def __getitem__(self, name: str) -> str:
        self.watch.read_variable(name)
        value: str = super().__getitem__(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return self.watch.iterate_variables(super().__iter__())


def _watch_environment(watch: Watch) -> None:
    _WatchedEnvironment.watch = watch
    os.environ.__class__ = _WatchedEnvironment


def _watch_stat(look: Callable[[object], None]) -> None:
    """Note what is only looked for: Python reports no `os.path.exists`."""
    original = os.stat

    def stat(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        look(path)
        return original(path, *arguments, **options)

    for functions in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
        functions.add(stat)
    os.stat = stat
