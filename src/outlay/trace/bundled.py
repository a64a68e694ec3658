"""Profiles that come with outlay, and profiles users saved."""

from __future__ import annotations

from functools import lru_cache
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


@lru_cache(maxsize=16)
def _bundled(name: str) -> Profile:
    """Read once, so that what is predicted from it is predicted once."""
    return read_profile(_FOLDER / f"{name}{_ENDING}")


def find_profile(name: str) -> Profile:
    """A bundled profile by its name, or a saved one by its path."""
    if name in bundled_profiles():
        return _bundled(name)
    if Path(name).suffix in (".json", ".gz"):
        return read_profile(Path(name))
    raise NotKnown(
        "profile",
        name,
        bundled_profiles(),
        fix="`outlay profiles` lists the bundled ones; `outlay trace ... --save FILE` makes one.",
    )
