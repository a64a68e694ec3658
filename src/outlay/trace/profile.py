"""The profile of a user's training step: traced in a process of its own, at several batch sizes.

profile = profile_of("train.py:step", sample="image 224x224")
write_profile(profile, "mine.json.gz")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlay.errors import InputError
from outlay.trace.changes import UNCHANGED, Changes, changes_to_json
from outlay.trace.process import answer_of
from outlay.trace.store import history_from_json, profile_from_json
from outlay.trace.target import parse_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlay.trace.trace import History, Profile

BATCH_SIZES = (2, 4, 8, 32)
"""Three sizes determine the polynomials, the last checks them. A large batch costs no more
time to trace than a small one: nothing is computed."""
SELECTED = 0.5
# Assumes: a selection whose mask only the data could tell keeps half of the elements (a guess:
# padding masks keep more, masked-language labels 0.15). `--selected` gives another share.


def profile_of(
    target: str,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    *,
    name: str | None = None,
    description: str = "",
    sample: str = "",
    period: int | None = None,
    selected: float = SELECTED,
    changes: Changes = UNCHANGED,
    timeout_s: float | None = None,
) -> Profile:
    """Trace `path/to/file.py:function` and return its profile.

    Needs torch in this Python, but no GPU. `period` is how many consecutive steps to trace and
    average; the step may carry it as an attribute. `selected` is the share of elements that a
    selection by unknown values keeps (docs/tracing.md); `changes` are made to the step. A crash of
    the step, of the whole tracing process, or a trace of over `timeout_s` seconds becomes a
    `TraceFailed`.
    """
    request = profile_request(
        target,
        batch_sizes,
        name=name,
        description=description,
        sample=sample,
        period=period,
        selected=selected,
        changes=changes,
    )
    return profile_from_json(answer_of(request, timeout_s=timeout_s), source=target)


def profile_request(
    target: str,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    *,
    name: str | None = None,
    description: str = "",
    sample: str = "",
    period: int | None = None,
    selected: float = SELECTED,
    changes: Changes = UNCHANGED,
) -> dict[str, object]:
    """What the tracing process is asked for a profile."""
    found = parse_target(target)
    return {
        "target": f"{found.path}:{found.function}",
        "batch_sizes": _checked_sizes(batch_sizes),
        "name": name or found.function,
        "description": description,
        "sample": sample,
        "period": period,
        "selected": checked_share(selected),
        "changes": changes_to_json(changes),
    }


def histories_of(
    target: str,
    batch_sizes: Sequence[int],
    *,
    period: int | None = None,
    selected: float = SELECTED,
    changes: Changes = UNCHANGED,
    timeout_s: float | None = None,
) -> dict[int, History]:
    """What a step allocates and frees at each batch size, from a trace at that very size."""
    found = parse_target(target)
    request = {
        "wanted": "histories",
        "target": f"{found.path}:{found.function}",
        "batch_sizes": _checked_sizes(batch_sizes),
        "period": period,
        "selected": checked_share(selected),
        "changes": changes_to_json(changes),
    }
    answer = answer_of(request, timeout_s=timeout_s)
    return {int(size): history_from_json(one) for size, one in answer["histories"].items()}


def _checked_sizes(batch_sizes: Sequence[int]) -> list[int]:
    sizes = sorted(set(batch_sizes))
    if not sizes or sizes[0] < 1:
        raise InputError(
            f"{list(batch_sizes)} are not batch sizes to trace.",
            fix="Give at least three positive sizes, for example 2, 4, 8 and 32.",
        )
    return sizes


def checked_share(selected: float) -> float:
    """The share of elements that a selection keeps, checked to be one."""
    if isinstance(selected, bool) or not 0 < selected <= 1:
        raise InputError(
            f"{selected!r} is not a share of elements that a selection keeps.",
            fix="Give a number above 0 and up to 1, for example 0.25.",
        )
    return float(selected)
