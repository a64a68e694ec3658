"""One training step at any batch size and any length of a sample: `LengthProfile`.

Those who fine-tune vary the tokens of a sample as well as the batch. Here every amount, dimension
and storage size is a `Surface`: a polynomial in the batch size whose coefficients are polynomials
in the length. `LengthProfile.at` gives the `Profile` at one length, which is then used like any
other: its peak memory is read off what it allocates. What the allocator makes of that is kept as
shares of the live bytes, so that nothing has to be simulated.

A step may do something else from some length on, where a window of attention ends. Then there are
several of these, each for a range of lengths, and `profile_at` takes the one that is meant.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate

from outlay.errors import InputError
from outlay.trace.allocator import live_peak_bytes, peak_use_and_need
from outlay.trace.batch_scaling import (
    ALLOCATOR_GRID,
    MOST_GROWN_BYTES,
    MemoryLine,
    breakpoints,
    lines_through,
    upper_envelope,
)
from outlay.trace.profile import (
    AllocatorUse,
    BlockGroup,
    History,
    Memory,
    Polynomial,
    Profile,
    ProfileOp,
    Structure,
    value_at,
)
from outlay.trace.traffic import rounded
from outlay.trace.workspace import REFERENCE
from outlay.units import GIB

Surface = tuple[Polynomial, ...]
"""Coefficients of 1, b, b^2 in the batch size b, each a polynomial in the length."""

_BLOCK_BYTES = 512
"""What torch's allocator rounds to."""


def polynomial_at(surface: Surface, length: int) -> Polynomial:
    """The polynomial in the batch size that a surface is at one length."""
    values = [value_at(coefficient, length) for coefficient in surface]
    while len(values) > 1 and values[-1] == 0:
        values.pop()
    return tuple(values)


# The types


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthOp:
    """A `ProfileOp` at any length; `example` has all that neither length nor batch changes."""

    example: ProfileOp
    flops: Surface
    moved_bytes: Surface
    shapes: tuple[tuple[Surface, ...], ...] = ()

    def at(self, length: int) -> ProfileOp:
        """The operation at one length."""
        return replace(
            self.example,
            flops=polynomial_at(self.flops, length),
            moved_bytes=polynomial_at(self.moved_bytes, length),
            shapes=tuple(
                tuple(polynomial_at(size, length) for size in shape) for shape in self.shapes
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthHistory:
    """A `History` at any length, and what each storage counts as at the peak."""

    sizes: tuple[Surface, ...]
    categories: tuple[str, ...]
    """Of each size, the field of `Memory`."""
    events: tuple[int, ...]
    step_start: int
    """Events before the steady step, whose peak is that of `Memory`."""
    optional: frozenset[int] = frozenset()
    conditions: Mapping[int, str] = field(default_factory=dict)

    def at(self, length: int) -> History:
        """What is allocated and freed at one length; sizes that are equal there are there once."""
        places: dict[tuple[Polynomial, bool, str], int] = {}
        place_of = [
            places.setdefault(
                (
                    polynomial_at(size, length),
                    index in self.optional,
                    self.conditions.get(index, ""),
                ),
                len(places),
            )
            for index, size in enumerate(self.sizes)
        ]
        return History(
            sizes=tuple(size for size, _, _ in places),
            events=tuple(place_of[event] if event >= 0 else event for event in self.events),
            optional=frozenset(
                place for (_, is_optional, _), place in places.items() if is_optional
            ),
            conditions={
                place: condition for (_, _, condition), place in places.items() if condition
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthStructure:
    """A `Structure` at any length."""

    blocks: tuple[BlockGroup, ...]
    """Their `output_bytes` are those of no length: `outputs` has them."""
    outputs: tuple[Surface, ...]
    """What one block of each group hands to the next."""
    gradient_bytes: float
    ready: Mapping[int, tuple[float, ...]]
    """`Structure.ready` at some lengths, ascending."""

    def at(self, length: int) -> Structure:
        """The structure at one length."""
        pairs = zip(self.blocks, self.outputs, strict=True)
        return Structure(
            blocks=tuple(
                replace(group, output_bytes=polynomial_at(size, length)) for group, size in pairs
            ),
            gradient_bytes=self.gradient_bytes,
            ready=_ready_at(self.ready, length),
        )


def _ready_at(ready: Mapping[int, tuple[float, ...]], length: int) -> tuple[float, ...]:
    """On the straight line between two lengths; beyond the first and the last, theirs."""
    low = max((each for each in ready if each <= length), default=min(ready))
    high = min((each for each in ready if each >= length), default=max(ready))
    if low == high:
        return ready[low]
    fraction = (length - low) / (high - low)
    pairs = zip(ready[low], ready[high], strict=True)
    return tuple(round(first + (second - first) * fraction, 4) for first, second in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthProfile:
    """A training step at any batch size and length, with where it came from."""

    name: str
    description: str
    sample: str
    """What one sample is, with `{length}` in it: `sequence of {length} tokens`."""
    lengths: tuple[int, int]
    """The shortest and the longest that were traced."""
    batch_sizes: tuple[int, ...]
    """Ascending; at these peak memory is given by category, at 1, and where its slope changes."""
    parameters: int
    trainable_parameters: int
    ops: tuple[LengthOp, ...]
    history: LengthHistory
    structure: LengthStructure
    issued_ops: float
    shares: Mapping[int, Mapping[int, UseShares]] = field(default_factory=dict)
    """By length and batch size (`allocator_shares`)."""
    traced_on: str = ""
    """Date of the trace, YYYY-MM-DD."""
    versions: Mapping[str, str] = field(default_factory=dict)
    unknown_ops: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def at(self, length: int) -> Profile:
        """The step at one length: exact where it was traced, and the same polynomials beyond.

        A length outside of `lengths` is said in the notes.
        """
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise InputError(
                f"{length!r} is not a length of a sample.", fix="Give a whole number from 1 on."
            )
        memory = _memory_at(self.history, length, self.batch_sizes)
        history = self.history.at(length)
        return Profile(
            name=self.name,
            description=self.description,
            sample=self.sample.format(length=length),
            parameters=self.parameters,
            trainable_parameters=self.trainable_parameters,
            ops=_merged(op.at(length) for op in self.ops),
            memory=memory,
            allocator_use=SharedUse(history, length, self.shares, _grid(memory)),
            history=history,
            table_suffices=True,
            structure=self.structure.at(length),
            issued_ops=self.issued_ops,
            traced_on=self.traced_on,
            versions=self.versions,
            unknown_ops=self.unknown_ops,
            notes=(*self.notes, *_range_notes(length, self.lengths)),
        )


def profile_at(pieces: Sequence[LengthProfile], length: int) -> Profile:
    """The step at a length, by the piece that was traced there, or the nearest one."""
    return pieces[nearest_range([piece.lengths for piece in pieces], length)].at(length)


def nearest_range(ranges: Sequence[tuple[int, int]], length: int) -> int:
    """The place of the range a length is in, or which is nearest to it."""
    away = [max(shortest - length, length - longest, 0) for shortest, longest in ranges]
    return away.index(min(away))


def _merged(ops: Iterable[ProfileOp]) -> tuple[ProfileOp, ...]:
    """Operations that are identical at this length once, with how often they run."""
    counts: dict[ProfileOp, float] = {}
    for op in ops:
        single = replace(op, count=1)
        counts[single] = counts.get(single, 0.0) + op.count
    return tuple(replace(op, count=count) for op, count in counts.items())


def _range_notes(length: int, lengths: tuple[int, int]) -> tuple[str, ...]:
    shortest, longest = lengths
    if shortest <= length <= longest:
        return ()
    note = f"Traced at lengths from {shortest:,} to {longest:,}: a step at {length:,} is drawn on."
    return (note,)


# Peak memory, read off the history as the reference GPU allocates it


def _memory_at(
    history: LengthHistory, length: int, batch_sizes: tuple[int, ...]
) -> dict[int, Memory]:
    """Peak memory at some batch sizes, and where another moment of the step becomes the peak."""
    at_start, changes = _steady_changes(history)
    levels: dict[int, _Level] = {}

    def level(batch_size: int) -> _Level:
        if batch_size not in levels:
            levels[batch_size] = _Level(history, length, batch_size, at_start, changes)
        return levels[batch_size]

    sizes = batch_sizes[-2], batch_sizes[-1]
    lines = lines_through(sizes, (level(sizes[0]).live_bytes, level(sizes[1]).live_bytes))
    turns = breakpoints(upper_envelope(_highest_by_slope(lines)))
    return {n: level(n).peak() for n in sorted({1, *batch_sizes, *turns})}


def _highest_by_slope(lines: Sequence[MemoryLine]) -> list[MemoryLine]:
    """Of lines that rise equally, the highest alone: no other is ever the peak."""
    highest: dict[float, MemoryLine] = {}
    for line in lines:
        known = highest.get(line.slope_bytes)
        if known is None or line.start_bytes > known.start_bytes:
            highest[line.slope_bytes] = line
    return sorted(highest.values(), key=lambda line: line.event)


def _steady_changes(history: LengthHistory) -> tuple[Counter[int], list[int]]:
    """How many storages of each size live when the steady step begins; then each change.

    A change is n + 1 where a storage of `sizes[n]` is made, and the same below 0 where one ends.
    """
    made: list[int] = []
    changes: list[int] = []
    for event in history.events:
        if event >= 0:
            made.append(event)
            changes.append(event + 1)
        else:
            changes.append(-made[event] - 1)
    at_start: Counter[int] = Counter()
    for change in changes[: history.step_start]:
        at_start[abs(change) - 1] += 1 if change > 0 else -1
    return at_start, changes[history.step_start :]


class _Level:
    """Bytes allocated over the steady step at one length and batch size."""

    def __init__(
        self,
        history: LengthHistory,
        length: int,
        batch_size: int,
        at_start: Counter[int],
        changes: list[int],
    ) -> None:
        sizes = [
            rounded(round(value_at(polynomial_at(size, length), batch_size)), _BLOCK_BYTES)
            for size in history.sizes
        ]
        for index, condition in history.conditions.items():
            size_bytes = REFERENCE.workspace_bytes(condition, sizes[index], batch_size)
            sizes[index] = rounded(round(size_bytes), _BLOCK_BYTES)
        self._categories = history.categories
        self._sizes, self._at_start, self._changes = sizes, at_start, changes
        first = sum(sizes[index] * times for index, times in at_start.items())
        steps = [0, *sizes, *(-size for size in reversed(sizes))]  # steps[-n] frees sizes[n - 1]
        self.live_bytes = list(accumulate(map(steps.__getitem__, changes), initial=first))

    def peak(self) -> Memory:
        """What was allocated when most was."""
        counts = self._at_start.copy()
        for change in self._changes[: self.live_bytes.index(max(self.live_bytes))]:
            counts[abs(change) - 1] += 1 if change > 0 else -1
        sums = {category.name: 0.0 for category in fields(Memory)}
        for index, times in counts.items():
            if times:
                sums[self._categories[index]] += self._sizes[index] * times
        return Memory(**sums)


# What the allocator makes of it. To simulate it for every batch size and length takes longer than
# anybody waits. But its use over the live bytes hardly changes with the length, where the tokens of
# a batch are the same: those shares are kept at some points, and live bytes are exact at any.


UseShares = tuple[float, float, float]
"""Bytes allocated, reserved and needed by the allocator over those that live at the peak."""

SHARE_GRID = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_LENGTH_STEP = 8


def allocator_shares(profile: LengthProfile) -> dict[int, dict[int, UseShares]]:
    """By length and batch size: what the allocator takes of each live byte, by simulation."""
    shortest, longest = profile.lengths
    lengths = [shortest]
    while lengths[-1] * _LENGTH_STEP < longest:
        lengths.append(lengths[-1] * _LENGTH_STEP)
    return {length: _shares_at(profile, length) for length in dict.fromkeys([*lengths, longest])}


def _shares_at(profile: LengthProfile, length: int) -> dict[int, UseShares]:
    history = profile.history.at(length)
    shares: dict[int, UseShares] = {}
    first_bytes = 0.0
    for batch_size in SHARE_GRID:
        live_bytes = live_peak_bytes(history, batch_size)
        first_bytes = first_bytes or live_bytes
        use = peak_use_and_need(history, batch_size)
        parts = use.allocated_bytes, use.reserved_bytes, use.needed_bytes or use.reserved_bytes
        allocated, reserved, needed = (round(part / live_bytes, 4) for part in parts)
        shares[batch_size] = allocated, reserved, needed
        if live_bytes - first_bytes > _MOST_SHARED_BYTES:
            break
    return shares


_MOST_SHARED_BYTES = 256 * GIB
"""Beyond what one sample takes: then shares change no more."""


class SharedUse(Mapping[int, AllocatorUse]):
    """What the allocator makes of a history at one length, from shares of its live bytes."""

    def __init__(
        self,
        history: History,
        length: int,
        shares: Mapping[int, Mapping[int, UseShares]],
        batch_sizes: Sequence[int],
    ) -> None:
        self._history, self._length, self._shares = history, length, shares
        self._batch_sizes = tuple(batch_sizes)
        self._known: dict[int, AllocatorUse] = {}

    def __getitem__(self, batch_size: int) -> AllocatorUse:
        """Computed once."""
        if batch_size not in self._known:
            if batch_size not in self._batch_sizes:
                raise KeyError(batch_size)
            live_bytes = live_peak_bytes(self._history, batch_size)
            allocated, reserved, needed = (
                share * live_bytes for share in self._shares_of(batch_size)
            )
            self._known[batch_size] = AllocatorUse(
                allocated_bytes=allocated, reserved_bytes=reserved, needed_bytes=needed
            )
        return self._known[batch_size]

    def _shares_of(self, batch_size: int) -> UseShares:
        """Between the lengths below and above, each at as many tokens."""
        tokens = batch_size * self._length
        lengths = sorted(self._shares)
        points = [(length, _on_line(self._shares[length], tokens / length)) for length in lengths]
        return _on_line(dict(points), self._length)

    def __iter__(self) -> Iterator[int]:
        """The batch sizes, ascending."""
        return iter(self._batch_sizes)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._batch_sizes)


def _on_line(points: Mapping[int, UseShares], place: float) -> UseShares:
    """Between the two nearest points, by the logarithm of the place; the ends beyond."""
    low = max((point for point in points if point <= place), default=min(points))
    high = min((point for point in points if point >= place), default=max(points))
    if low == high:
        return points[low]
    fraction = math.log(place / low) / math.log(high / low)
    first, second, third = (
        before + (after - before) * fraction
        for before, after in zip(points[low], points[high], strict=True)
    )
    return first, second, third


def _grid(memory: Mapping[int, Memory]) -> tuple[int, ...]:
    """The batch sizes of the table: up to the first that no GPU could hold."""
    sizes = sorted(memory)
    low, high = sizes[-2:]
    rise = (memory[high].peak_bytes - memory[low].peak_bytes) / (high - low)
    most = MOST_GROWN_BYTES / rise if rise > 0 else ALLOCATOR_GRID[-1]
    count = sum(size <= most for size in ALLOCATOR_GRID)
    return ALLOCATOR_GRID[: count + 1]
