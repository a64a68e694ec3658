"""Traces that are kept: a second trace of the same step takes a moment, and no torch.

    cache = trace_cache()
    cache.find(question)         what was kept of it, if all that it depends on is as it was
    cache.keep(question, ...)    a file an answer, written whole; the oldest go where there are many
    cache.size()                 how many there are, and their bytes

A question is the request to the tracing process, with the folder and the Python it is asked in. An
entry holds what the answer depends on (`outlay.trace.dependencies`), and then the answer. Entries
that are damaged, or none of ours, count as not there. Where nothing can be written nothing is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from outlay.files import NO_CACHE, cache_folder
from outlay.trace.dependencies import dependencies_from_json

LARGEST_CACHE_BYTES = 256 * 2**20
"""Of all that is kept together."""
_LARGEST_ENTRY_BYTES = 2**30
_SCHEMA = 2
_KIND = "outlay kept trace"
_ENDING = ".trace"
_DRAFT = ".part"
_OLD_DRAFT_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of a tracing process, and where."""

    request: Mapping[str, object]
    environment: Mapping[str, str]
    startup: frozenset[tuple[str, str]]
    """Variables that decide how Python and torch start."""

    def key(self) -> str:
        """What entries are found by: a hash of all but the environment that is not read."""
        asked = {
            "request": self.request,
            "folder": str(Path.cwd()),
            "python": [sys.version, sys.executable, sys.platform],
            "startup": sorted(self.startup),
        }
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()

    def variables_hash(self, names: tuple[str, ...]) -> str:
        """A hash of some variables, as the tracing process gets them: they may be secrets."""
        values = [[name, self.environment.get(name)] for name in names]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTrace:
    """What a tracing process answered once."""

    reply: dict[str, Any]
    kept_on: str
    """The day, YYYY-MM-DD."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSize:
    """What a cache holds."""

    traces: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCache:
    """The traces in a folder."""

    folder: Path
    largest_bytes: int = LARGEST_CACHE_BYTES

    def find(self, question: Question) -> KeptTrace | None:
        """The trace that was kept of a question, if it would be the same today."""
        path = self._path(question)
        try:
            entry = _entry(path.read_bytes())
            head = _head(entry)
            dependencies = dependencies_from_json(head["dependencies"])
            if head["variables_hash"] != question.variables_hash(dependencies.variables):
                return None
            if dependencies.changed():
                return None
            kept = KeptTrace(reply=_reply(entry), kept_on=str(head["kept_on"]))
        except (OSError, ValueError, KeyError, TypeError, zlib.error, RecursionError):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # those used last go last
        return kept

    def keep(
        self, question: Question, reply: Mapping[str, Any], dependencies: Mapping[str, Any]
    ) -> str:
        """Keep an answer; why it could not be, in words."""
        names = dependencies_from_json(dependencies).variables
        head = {
            "schema": _SCHEMA,
            "kind": _KIND,
            "kept_on": datetime.now(UTC).date().isoformat(),
            "target": question.request.get("target"),
            "variables_hash": question.variables_hash(names),
            "dependencies": dependencies,
        }
        data = zlib.compress(f"{json.dumps(head)}\n{json.dumps(reply)}".encode(), 1)
        if len(data) > self.largest_bytes:
            return f"it has {len(data) / 2**20:.0f} MiB"
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._make_room(len(data))
            _write(self._path(question), data)
        except OSError as error:
            return f"{self.folder} cannot be written: {error.strerror or error}"
        return ""

    def size(self) -> CacheSize:
        """How many traces there are, and what they take."""
        sizes = [status.st_size for _, status in self._entries()]
        return CacheSize(traces=len(sizes), size_bytes=sum(sizes))

    def _path(self, question: Question) -> Path:
        return self.folder / f"{question.key()}{_ENDING}"

    def _entries(self) -> list[tuple[Path, os.stat_result]]:
        """Every entry, those used last at the end."""
        found = []
        with contextlib.suppress(OSError):
            for path in self.folder.glob(f"*{_ENDING}"):
                with contextlib.suppress(OSError):  # another process may have removed it
                    found.append((path, path.stat()))
        return sorted(found, key=lambda entry: entry[1].st_mtime_ns)

    def _make_room(self, size_bytes: int) -> None:
        """Remove what was used least lately, and drafts that nobody will finish."""
        for path in self.folder.glob(f"*{_DRAFT}"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _OLD_DRAFT_S:
                    path.unlink()
        entries = self._entries()
        total_bytes = size_bytes + sum(status.st_size for _, status in entries)
        for path, status in entries:
            if total_bytes <= self.largest_bytes:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            total_bytes -= status.st_size


def trace_cache() -> TraceCache | None:
    """The user's own; None where it is turned off."""
    if os.environ.get(NO_CACHE):
        return None
    return TraceCache(folder=cache_folder() / "traces")


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all, whoever else writes it at the same time."""
    descriptor, draft = tempfile.mkstemp(suffix=_DRAFT, dir=path.parent)
    try:
        _write_all(descriptor, data)
        Path(draft).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(draft).unlink()
        raise


def _write_all(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _entry(data: bytes) -> bytes:
    """The text of an entry; what is cut off or far too large is a zlib.error."""
    reader = zlib.decompressobj()
    text = reader.decompress(data, _LARGEST_ENTRY_BYTES)
    if not reader.eof:
        raise zlib.error("cut off")
    return text


def _head(entry: bytes) -> dict[str, Any]:
    head = json.loads(entry[: entry.index(b"\n")])
    if head["schema"] != _SCHEMA or head["kind"] != _KIND:
        raise ValueError("no entry of ours")
    return dict(head)


def _reply(entry: bytes) -> dict[str, Any]:
    return dict(json.loads(entry[entry.index(b"\n") + 1 :]))
