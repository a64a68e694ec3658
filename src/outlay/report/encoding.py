"""What a locale's encoding cannot show, and what stands for it: a page is never cut short by one.

A terminal in Korean (EUC-KR), in Latin-1 or in plain ASCII lacks characters that outlay prints and
that users write into their files. Each has a stand-in, so that every page ends.
"""

from __future__ import annotations

import codecs
import io
import re
import sys
import unicodedata
from typing import TextIO

UTF_8 = "utf-8"
_STAND_INS = {
    "✔": "*", "✓": "*", "✘": "x", "✗": "x", "×": "x", "·": "-", "•": "-", "…": "...",
    "–": "-", "—": "-", "−": "-", "‐": "-", "‑": "-", "′": "'", "‘": "'", "’": "'",
    "“": '"', "”": '"', "„": '"', "«": '"', "»": '"',
    "≥": ">=", "≤": "<=", "±": "+-", "≈": "~", "≠": "!=", "→": "->", "←": "<-", "µ": "u", "μ": "u",
    "€": "EUR ", "£": "GBP ", "¥": "JPY ", "₩": "KRW ", "₹": "INR ", "₪": "ILS ", "₱": "PHP ",
    "°": " ", "▁": "_", "▂": ".", "▃": "-", "▄": "-", "▅": "=", "▆": "+", "▇": "*", "█": "#",
}  # fmt: skip
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
_ACROSS, _UP = "─━═╌╍┄┅┈┉╴╶╸╺╼╾", "│┃║╎╏┆┇┊┋╵╷╹╻╽╿"
_DOTS = " .:+*#"
"""Of braille: how much of a cell is black."""


def encoding_of(stream: object) -> str:
    """The encoding in which what is written to a stream can be read there."""
    name = getattr(stream, "shown_encoding", None) or getattr(stream, "encoding", None) or UTF_8
    return str(name)


def is_unicode(encoding: str) -> bool:
    """Whether an encoding has every character."""
    return codecs.lookup(encoding).name.startswith("utf")


def shown(text: str, encoding: str) -> str:
    """A text in what an encoding has: stand-ins for what it lacks, as wide as that at least."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(
            character if _has(encoding, character) else _stand_in(character, encoding)
            for character in text
        )
    return text


def _has(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _stand_in(character: str, encoding: str) -> str:
    """What is printed for one character that an encoding lacks."""
    if character in _STAND_INS:
        return _STAND_INS[character]
    code = ord(character)
    if 0x2800 <= code <= 0x28FF:
        return _DOTS[min((code - 0x2800).bit_count(), len(_DOTS) - 1)]
    if 0x2500 <= code <= 0x257F:
        return "-" if character in _ACROSS else "|" if character in _UP else "+"
    letters = unicodedata.normalize("NFKD", character)
    base = "".join(letter for letter in letters if not unicodedata.combining(letter))
    if not base or (base != character and _has(encoding, base)):
        return base
    return "??" if unicodedata.east_asian_width(character) in "WF" else "?"


def json_shown(text: str, stream: TextIO | None = None) -> str:
    """JSON for a stream, standard output unless said: what its encoding lacks is escaped."""
    if _has(encoding_of(stream or sys.stdout), text):
        return text
    return _BEYOND_ASCII.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    pairs = match[0].encode("utf-16-be", "replace")
    return "".join(f"\\u{pairs[at : at + 2].hex()}" for at in range(0, len(pairs), 2))


def show_whatever_comes() -> None:
    """Let standard output and standard error take any text, whatever the locale can show."""
    codecs.register_error("outlay", _replaced)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            setattr(sys, name, _taking_any_text(stream))


def _taking_any_text(stream: io.TextIOWrapper) -> TextIO:
    if codecs.lookup(stream.encoding).name != "ascii":
        stream.reconfigure(errors="outlay")
        return stream
    return _AsciiStream(stream)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """What a codec writes for what it cannot encode."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_stand_in(one, error.encoding) for one in missing), error.end


class _AsciiStream(io.TextIOWrapper):
    """A stream of which only ASCII comes out. It says it were UTF-8, as click takes one that says
    ASCII to be set up wrongly, and writes UTF-8 past it."""

    shown_encoding = "ascii"

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(stream.buffer, UTF_8, "outlay", line_buffering=stream.line_buffering)
        self._stream = stream
        """Kept: without anybody who holds it, it would close what both write to."""

    def write(self, text: str, /) -> int:
        """Write a text, with stand-ins."""
        return super().write(shown(text, self.shown_encoding))
