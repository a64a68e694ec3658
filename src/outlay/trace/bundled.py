"""Profiles that come with outlay, and profiles users saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from outlay.errors import NotKnown
from outlay.facts import DATA
from outlay.trace.store import read_profile

if TYPE_CHECKING:
    from outlay.trace.trace import Profile

_FOLDER = DATA / "profiles"
_ENDING = ".json.gz"


def bundled_profiles() -> tuple[str, ...]:
    """The names of the bundled profiles."""
    return tuple(sorted(path.name.removesuffix(_ENDING) for path in _FOLDER.glob(f"*{_ENDING}")))


def find_profile(name: str) -> Profile:
    """A bundled profile by its name, or a saved one by its path."""
    if name in bundled_profiles():
        return read_profile(_FOLDER / f"{name}{_ENDING}")
    if Path(name).suffix in (".json", ".gz"):
        return read_profile(Path(name))
    raise NotKnown(
        "profile",
        name,
        bundled_profiles(),
        fix="`outlay profiles` lists the bundled ones; `outlay trace ... --save FILE` makes one.",
    )
