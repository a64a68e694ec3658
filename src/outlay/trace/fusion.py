"""Which operations of a step torch.compile makes one kernel of, and what is left to move.

    Flow             what one recorded operation read and wrote
    fused_ops        of every operation: what it still moves and launches once it is compiled

Inductor fuses element-wise operators, norms, softmax and reductions into their neighbours: what a
group of them reads is read once, what it makes is written once, and what nobody else reads is never
written. Matrix products, convolutions and attention stay library calls. Groups are formed as its
scheduler does, greedily along the data: operators that loop over as many elements, share data and
leave no cycle. Of what the forward pass keeps for backward, as its partitioner decides: what
follows from no more bytes that are there anyway is computed again instead. docs/models/compile.md
has the rules, their sources, and what they leave out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from outlay.trace.profile import Op

Value = tuple[int, int]
"""What a storage holds from one write to the next: its number, and how often it was written."""
Slot = tuple[int, int]
"""An operation's place in its step, and a place in its flow's `sizes_bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What one operation of a step read and wrote on the GPU."""

    reads: tuple[tuple[Value, int], ...] = ()
    """Each value, with where in its storage the tensor begins."""
    writes: tuple[Value, ...] = ()
    sizes_bytes: tuple[int, ...] = ()
    """Of the reads, then of the writes."""
    elements: int = 0
    """What it loops over: the largest of its tensors."""
    is_compiled: bool = True
    """Whether it is in code that is compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedShare:
    """What is left of one operation where the step is compiled."""

    slots: tuple[Slot, ...] | None = None
    """What it still moves. None: all of it, as it is fused with nothing."""
    launches: float = 1
    """Kernels that count as its own: of a group, those of the first operation."""

    def moved_bytes(self, op: Op, flows: Sequence[Flow]) -> float:
        """What it moves, by the flows of the step at any batch size; never more than alone."""
        if self.slots is None:
            return op.moved_bytes
        moved = sum(flows[place].sizes_bytes[slot] for place, slot in self.slots)
        return min(float(moved), op.moved_bytes)


# What an operator is to the compiler


Sort = Literal[
    "pointwise",
    "rows",  # reduces each row, and goes on with the row while it is at hand
    "reduction",  # of anything else: its result is there when the kernel has ended
]
_LARGEST_GROUP = 64
# Source: max_fusion_size in torch/_inductor/config.py, torch 2.13.
_LONGEST_RECIPE = 32
"""Operators that backward would run again for one value."""
_READERS_ASKED = 4
"""Of one value: how many of its last readers an operator may be fused with."""
_FEW = 8
"""Who reads one of so many elements of a value computes those itself."""
_FUSED_KINDS = frozenset({"elementwise", "copy", "norm", "softmax", "reduction", "embedding"})
_NEVER_FUSED = frozenset(
    {
        *("sort", "argsort", "topk", "kthvalue", "median", "_unique2", "unique_consecutive"),
        *("multinomial", "cumsum", "cumprod", "bincount", "histc", "randperm", "_pin_memory"),
        *("_weight_norm_interface", "_weight_norm_interface_backward", "masked_scatter"),
        *("_cdist_forward", "_cdist_backward", "_ctc_loss", "_ctc_loss_backward"),
        *("adaptive_max_pool2d", "adaptive_max_pool2d_backward", "repeat_interleave"),
        *("upsample_linear1d_backward", "upsample_bilinear2d_backward"),
        *("upsample_trilinear3d_backward", "upsample_bicubic2d_backward"),
    }
)
"""Library calls, scans, additions into one place, and what depends on the data."""
_GATHERS = frozenset(["embedding", "index", "gather", "index_select", "take", "grid_sampler_2d"])
_RANDOM = ("rand", "bernoulli", "normal", "uniform", "exponential", "rrelu")
_POOLS = ("max_pool", "avg_pool", "_adaptive_avg_pool")


def sorts_of(op: Op) -> tuple[Sort, ...]:
    """The parts of an operator that are fused, in order; none where it stays as it is.

    Batch and group norm reduce, then go through everything again. The backward of a layer norm
    sums over rows for its input, and over all rows for its weight.
    """
    namespace, _, name = op.name.partition(".")
    name = name if name.startswith("_") else name.removesuffix("_")
    if op.kind not in _FUSED_KINDS or namespace != "aten" or op.efficiency is not None:
        return ()
    if name in _NEVER_FUSED or not op.shapes:
        return ()
    if op.kind == "embedding":
        return ("pointwise",) if name in _GATHERS else ()
    if "batch_norm" in name or "group_norm" in name:
        return ("pointwise",) if "no_training" in name else ("reduction", "pointwise")
    if op.kind == "norm":
        return ("rows", "reduction") if "backward" in name else ("rows",)
    if op.kind == "softmax":
        return ("rows",)
    if op.kind == "reduction" and not name.endswith("_backward") and not name.startswith(_POOLS):
        return (_reduction(op),)
    return ("pointwise",)


def _reduction(op: Op) -> Sort:
    """Over rows, where each leaves one result."""
    first, last = op.shapes[0], op.shapes[-1]
    if len(op.shapes) < 2 or not first or not last or max(last) == 1:
        return "reduction"
    return "reduction" if last[-1] == first[-1] > 1 else "rows"


# Groups


@dataclass(slots=True, eq=False)
class _Group:
    """Parts of operators that become one kernel."""

    parts: list[_Part] = field(default_factory=list)
    elements: int = 0
    level: int = 0
    """The longest way to it from the start of the step."""
    closed: set[Value] = field(default_factory=set)
    """Results of reductions: there when the kernel has ended."""

    def has(self, sort: Sort) -> bool:
        """Whether a part of it is of a sort."""
        return any(part.sort == sort for part in self.parts)


@dataclass(slots=True, eq=False, kw_only=True)
class _Part:
    """An operator, or a part of one that is a loop of its own."""

    op: int
    sort: Sort | None
    """None: a kernel of its own, in a library or in code that is not compiled."""
    graph: int
    """Forward and backward are compiled apart."""
    is_forward: bool
    reads: tuple[int, ...]
    """Places in its flow's `sizes_bytes`."""
    writes: tuple[int, ...]
    follows: _Part | None = None
    """The other part of its operator, whose results it needs."""
    follower: _Part | None = None
    group: _Group = field(default_factory=_Group)


class _Grouping:
    """The parts of a step in their groups."""

    def __init__(self, ops: Sequence[Op], flows: Sequence[Flow]) -> None:
        self.ops, self.flows = ops, flows
        self.parts: list[_Part] = []
        self.makers: dict[Value, _Part] = {}
        self.readers: dict[Value, list[_Part]] = {}
        self._uses = Counter(value for flow in flows for (value, _), size in _sized(flow) if size)
        graph, was_forward = 0, True
        for place, op in enumerate(ops):
            is_forward = op.phase == "forward"
            graph += is_forward != was_forward
            was_forward = is_forward
            for part in self._parts_of(place, graph):
                self._add(part)

    # One part after another

    def _parts_of(self, place: int, graph: int) -> Iterator[_Part]:
        """The parts of an operator; a view has none."""
        op, flow = self.ops[place], self.flows[place]
        if op.launches <= 0 or not flow.sizes_bytes:
            return
        sorts: tuple[Sort | None, ...] = sorts_of(op) if flow.is_compiled else ()
        reads = tuple(slot for slot in range(len(flow.reads)) if flow.sizes_bytes[slot])
        writes = tuple(range(len(flow.reads), len(flow.sizes_bytes)))
        largest = max((flow.sizes_bytes[slot] for slot in writes), default=0)
        small = tuple(slot for slot in writes if 2 * flow.sizes_bytes[slot] < largest)
        before: _Part | None = None
        for sort in sorts or (None,):
            made = tuple(slot for slot in writes if (slot in small) == (sort == "reduction"))
            part = _Part(
                op=place,
                sort=sort,
                graph=graph,
                is_forward=op.phase == "forward",
                reads=reads,
                writes=made if len(sorts) > 1 else writes,
                follows=before if sort == "pointwise" else None,
            )
            if part.follows is not None:
                part.follows.follower = part
            before = part
            yield part

    def _add(self, part: _Part) -> None:
        """Enter a part, and fuse it with what it shares data with."""
        group, flow = part.group, self.flows[part.op]
        group.parts.append(part)
        group.elements = flow.elements
        self.parts.append(part)
        for slot in part.writes:
            self.makers[self.written(part, slot)] = part
            if part.sort == "reduction":
                group.closed.add(self.written(part, slot))
        for slot in part.reads:
            self.readers.setdefault(flow.reads[slot][0], []).append(part)
        self._raise(group)
        if part.sort is not None:
            for other in self._neighbours(part):
                if other is not part.group and self._fits(other, part):
                    self._merge(other, part.group)

    def _neighbours(self, part: _Part) -> list[_Group]:
        """The groups that make what a part reads, then those that read it as well."""
        flow = self.flows[part.op]
        reads = sorted(part.reads, key=lambda slot: -flow.sizes_bytes[slot])
        values = [flow.reads[slot][0] for slot in reads]
        makers = [self.makers[value] for value in values if value in self.makers]
        half = sum(flow.sizes_bytes[slot] for slot in reads) / 2
        sharers = [
            reader
            for slot, value in zip(reads, values, strict=True)
            if flow.sizes_bytes[slot] * len(reads) >= half
            for reader in self.readers[value][-_READERS_ASKED - 1 : -1]
        ]
        groups = [
            other.group
            for other in (*makers, *sharers)
            if other.sort is not None and other.graph == part.graph
        ]
        return list(dict.fromkeys(groups))

    def _fits(self, group: _Group, part: _Part) -> bool:
        """Whether a part, with what it is fused with already, and a group can be one kernel."""
        own = part.group
        if len(group.parts) + len(own.parts) > _LARGEST_GROUP:
            return False
        pair = (group, own)
        if any(g.has("rows") for g in pair) and any(g.has("reduction") for g in pair):
            return False
        if group.closed & self._read_by(own) or own.closed & self._read_by(group):
            return False
        if any(one.follows in other.parts for one, other in self._pairs(pair)):
            return False
        return self._loops_fit(group, part) and not self._makes_cycle(pair)

    def _pairs(self, pair: tuple[_Group, _Group]) -> Iterator[tuple[_Part, _Group]]:
        """Each part of either group, with the other group."""
        for group, other in (pair, pair[::-1]):
            for part in group.parts:
                yield part, other

    def _loops_fit(self, group: _Group, part: _Part) -> bool:
        """Whether both loop over as much, or one is a part of the other's loop.

        What goes on with the results of rows is; so is what is spread over more elements and read
        by nobody else: it is computed for each of them.
        """
        own = part.group
        if group.elements == own.elements:
            return True
        made = {self.written(each, slot) for each in group.parts for slot in each.writes}
        if not made & self._read_by(own):
            return False
        if own.elements < group.elements:
            return group.has("rows") and all(each.sort != "rows" for each in own.parts)
        if group.has("rows") or group.has("reduction"):
            return False
        return all(self._uses[value] <= 1 for value in made)

    def _makes_cycle(self, pair: tuple[_Group, _Group]) -> bool:
        """Whether one of two groups needs the other by way of a third."""
        lowest = min(group.level for group in pair)
        ahead = [p for group in pair for p in self._before(group) if p not in pair]
        asked: set[int] = set()
        while ahead:
            group = ahead.pop()
            if id(group) in asked or group.level <= lowest:
                continue  # what a member leads to is above it
            asked.add(id(group))
            for other in self._before(group):
                if other in pair:
                    return True
                ahead.append(other)
        return False

    def _merge(self, group: _Group, other: _Group) -> None:
        for part in other.parts:
            part.group = group
        group.parts += other.parts
        group.elements = max(group.elements, other.elements)
        group.closed |= other.closed
        group.level = max(group.level, other.level)
        self._raise(group)

    def _raise(self, group: _Group) -> None:
        """Put a group, and what follows from it, above what it needs."""
        waiting = [group]
        while waiting:
            group = waiting.pop()
            lowest = 1 + max((before.level for before in self._before(group)), default=0)
            group.level = max(group.level, lowest)
            for after in self._after(group):
                if after.level <= group.level:
                    after.level = group.level + 1
                    waiting.append(after)

    def _before(self, group: _Group) -> set[_Group]:
        """The groups whose values it reads."""
        makers = [self.makers.get(value) for value in self._read_by(group)]
        makers += [part.follows for part in group.parts]
        return {maker.group for maker in makers if maker is not None} - {group}

    def _after(self, group: _Group) -> set[_Group]:
        """The groups that read its values."""
        readers = {
            reader.group
            for part in group.parts
            for slot in part.writes
            for reader in self.readers.get(self.written(part, slot), ())
        }
        followers = {part.follower.group for part in group.parts if part.follower is not None}
        return (readers | followers) - {group}

    def _read_by(self, group: _Group) -> set[Value]:
        return {self.flows[part.op].reads[slot][0] for part in group.parts for slot in part.reads}

    def written(self, part: _Part, slot: int) -> Value:
        """The value that a part writes at a place of its flow's sizes."""
        flow = self.flows[part.op]
        return flow.writes[slot - len(flow.reads)]

    def size_bytes(self, part: _Part, slot: int) -> int:
        """What is read or written there."""
        return self.flows[part.op].sizes_bytes[slot]


def _sized(flow: Flow) -> Iterator[tuple[tuple[Value, int], int]]:
    return zip(flow.reads, flow.sizes_bytes, strict=False)


# What backward computes again


_Source = tuple[tuple[Value, int], Slot]
"""A value as it is read, and where its bytes are noted."""


def _recomputed(grouping: _Grouping) -> dict[Value, tuple[_Source, ...]]:
    """The values that the forward pass does not keep, each with what backward reads instead."""
    recipes: dict[Value, tuple[_Source, ...]] = {}
    for part in grouping.parts:
        if part.sort is None or not part.is_forward:
            continue
        for slot in part.writes:
            value = grouping.written(part, slot)
            if _is_for_backward(grouping, part, value):
                sources = _sources(grouping, part, slot, recipes)
                if sources is not None:
                    recipes[value] = sources
    return recipes


def _is_for_backward(grouping: _Grouping, part: _Part, value: Value) -> bool:
    """Whether a value leaves its kernel for fused kernels of backward alone.

    Or for such as pick a few of its elements, as a loss does: they compute those themselves.
    """
    outside = [r for r in grouping.readers.get(value, ()) if r.group is not part.group]
    return bool(outside) and all(
        reader.sort is not None and (not reader.is_forward or _picks(grouping, reader, value))
        for reader in outside
    )


def _picks(grouping: _Grouping, reader: _Part, value: Value) -> bool:
    """Whether a part reads a small share of a value."""
    maker = grouping.makers[value]
    made = next(slot for slot in maker.writes if grouping.written(maker, slot) == value)
    reads = grouping.flows[reader.op].reads
    read_bytes = max(grouping.size_bytes(reader, n) for n in reader.reads if reads[n][0] == value)
    return _FEW * read_bytes <= grouping.size_bytes(maker, made)


def _sources(
    grouping: _Grouping, maker: _Part, slot: int, recipes: dict[Value, tuple[_Source, ...]]
) -> tuple[_Source, ...] | None:
    """What a value follows from, in no more bytes than its own; None where there is no such.

    Parameters and inputs are there anyway, and only have to be read.
    Reductions are not done again, nor are random numbers drawn again: a dropout's mask is kept.
    """
    limit_bytes = grouping.size_bytes(maker, slot)
    largest = max(grouping.size_bytes(maker, other) for other in maker.writes)
    if maker.sort == "reduction" or (maker.sort == "rows" and 2 * limit_bytes < largest):
        return None
    found: dict[tuple[Value, int], Slot] = {}
    waiting, asked = [maker], {maker.op}
    while waiting:
        part = waiting.pop()
        if _is_random(grouping.ops[part.op]):
            return None
        flow = grouping.flows[part.op]
        for place in part.reads:
            read = flow.reads[place]
            before = grouping.makers.get(read[0])
            if read[0] in recipes:
                found.update(recipes[read[0]])
            elif before is None or before.group is not maker.group or before.sort == "reduction":
                found[read] = (part.op, place)
            elif before.op not in asked:
                asked.add(before.op)
                waiting.append(before)
        if len(asked) > _LONGEST_RECIPE:
            return None
    sizes = {read: grouping.flows[op].sizes_bytes[place] for read, (op, place) in found.items()}
    kept_bytes = sum(size for read, size in sizes.items() if read[0] in grouping.makers)
    is_worth_it = kept_bytes <= limit_bytes and sum(sizes.values()) <= 2 * limit_bytes
    return tuple(found.items()) if is_worth_it else None


def _is_random(op: Op) -> bool:
    name = op.name.rpartition(".")[2].strip("_")
    return name.endswith("dropout") or name.startswith(_RANDOM)


# What each operation still moves


def fused_ops(ops: Sequence[Op], flows: Sequence[Flow]) -> list[FusedShare | None]:
    """Of each operation of a step what is left once it is compiled; None where it is not.

    What leaves a group that is not for backward, or is read by nobody in the step, is written.
    """
    grouping = _Grouping(ops, flows)
    recipes = _recomputed(grouping)
    slots: dict[int, list[Slot]] = {}
    launches: Counter[int] = Counter()
    changed: set[int] = set()
    for group in dict.fromkeys(part.group for part in grouping.parts):
        launches[group.parts[0].op] += 1
        moved, is_changed = _moved(grouping, group, recipes)
        for op, slot in moved:
            slots.setdefault(op, []).append(slot)
        if is_changed:
            changed.update(part.op for part in group.parts)
    return [
        _fused(op, flow, slots.get(place, []), launches[place], place in changed)
        for place, (op, flow) in enumerate(zip(ops, flows, strict=True))
    ]


def _fused(
    op: Op, flow: Flow, slots: Sequence[Slot], launches: int, is_changed: bool
) -> FusedShare | None:
    if not flow.is_compiled:
        return None
    if not is_changed:
        return FusedShare(launches=op.launches)
    return FusedShare(slots=tuple(slots), launches=launches)


def _moved(
    grouping: _Grouping, group: _Group, recipes: dict[Value, tuple[_Source, ...]]
) -> tuple[list[tuple[int, Slot]], bool]:
    """What a group's kernel reads and writes, by operation; whether that is less than before."""
    if group.parts[0].sort is None:
        return [], False
    moved: list[tuple[int, Slot]] = []
    seen: set[tuple[Value, int]] = set()
    is_changed = len(group.parts) > 1
    for part in group.parts:
        flow = grouping.flows[part.op]
        for place in part.reads:
            read = flow.reads[place]
            maker = grouping.makers.get(read[0])
            if maker is not None and maker.group is group:
                continue
            recipe = recipes.get(read[0])
            if recipe is not None and _picks(grouping, part, read[0]):
                recipe = None
            is_changed = is_changed or recipe is not None
            sources = ((read, (part.op, place)),) if recipe is None else recipe
            for source, slot in sources:
                if source not in seen:
                    seen.add(source)
                    moved.append((part.op, slot))
        for place in part.writes:
            value = grouping.written(part, place)
            is_changed = is_changed or value in recipes
            if value not in recipes and _is_written(grouping, group, value):
                moved.append((part.op, (part.op, place)))
    return moved, is_changed


def _is_written(grouping: _Grouping, group: _Group, value: Value) -> bool:
    """Whether anybody beside the group's own kernel may read it."""
    readers = grouping.readers.get(value, ())
    return not readers or any(reader.group is not group for reader in readers)
