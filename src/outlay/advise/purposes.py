"""What people train for, and the bundled profile that stands for it: `data/purposes.csv`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from outlay.errors import NotKnown
from outlay.facts import rows_of
from outlay.units import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """What somebody wants to do, and what that usually asks of a GPU."""

    name: str
    also: tuple[str, ...]
    profile: str
    memory_least_bytes: float
    memory_better_bytes: float
    gpus: int
    notebook_will_do: bool
    source: str
    as_of: str
    note: str


@cache
def purposes() -> tuple[Purpose, ...]:
    """All of them, as the table has them."""
    return tuple(
        Purpose(
            name=row["purpose"],
            also=tuple(row["also"].split(";")),
            profile=row["profile"],
            memory_least_bytes=float(row["memory_least_gb"]) * GIB,
            memory_better_bytes=float(row["memory_better_gb"]) * GIB,
            gpus=int(row["gpus"]),
            notebook_will_do=row["notebook"] == "yes",
            source=row["source"],
            as_of=row["as_of"],
            note=row["note"],
        )
        for row in rows_of("purposes.csv")
    )


def find_purpose(text: str) -> Purpose:
    """The purpose meant by a text in any case, or an error with the nearest ones."""
    said = " ".join(text.lower().replace("-", " ").split())
    by_name = {name.replace("-", " "): one for one in purposes() for name in (one.name, *one.also)}
    if said not in by_name:
        names = ", ".join(one.name for one in purposes())
        raise NotKnown("purpose", text, by_name, fix=f"There are: {names}.")
    return by_name[said]
