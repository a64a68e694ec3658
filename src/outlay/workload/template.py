"""The template of a workload file, filled in: what is known is set, the rest stays a comment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from outlay.facts import DATA

TEMPLATE = DATA / "template.toml"
"""A workload file with every key and what it is for."""
_HEADER = re.compile(r"(?P<hash># )?\[+(?P<table>[\w.]+)\]+")
_KEY = re.compile(r"(?P<hash># )?(?P<key>\w+) = ")
_COLUMN = 36
"""Where comments begin."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value as TOML has it, and what is said of it beside it."""

    value: str
    comment: str | None = None
    """None keeps what the template says."""


def filled_template(tables: Mapping[str, Mapping[str, Entry]], title: str = "") -> str:
    """The template with these keys set, by table ("" is the top); every other is a comment.

    A table that is a comment in the template stays one, unless one of its keys is set.
    """
    lines = TEMPLATE.read_text(encoding="utf-8").splitlines()
    return "\n".join([*([f"# {title}"] if title else []), *_filled(lines, tables)]) + "\n"


def _filled(lines: list[str], tables: Mapping[str, Mapping[str, Entry]]) -> Iterator[str]:
    left: dict[str, Entry] = dict(tables.get("", {}))
    blank: list[str] = []
    for line in lines:
        if not line:
            blank.append(line)
            continue
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:  # what the template does not show of the table before stands at its end
            yield from (_line(name, entry, "") for name, entry in left.items())
            left = dict(tables.get(header["table"], {}))
        yield from blank
        blank = []
        if header:
            yield line.removeprefix("# ") if left else line
        elif key and (key["key"] in left or not key["hash"]):
            entry = left.pop(key["key"], None)
            yield f"# {line}" if entry is None else _line(key["key"], entry, line)
        else:
            yield line
    yield from (_line(name, entry, "") for name, entry in left.items())


def _line(key: str, entry: Entry, before: str) -> str:
    """A key with its value, and the comment of the line it replaces unless it has its own."""
    comment = entry.comment
    if comment is None:
        _, hash_mark, rest = before.removeprefix("# ").partition(" # ")
        comment = rest.strip() if hash_mark else None
    text = f"{key} = {entry.value}"
    return text if not comment else f"{text:<{_COLUMN - 1}} # {comment}"
