"""Rules on what goes together: memory, threads, sockets, drives, unlike cards."""

from __future__ import annotations

from outlay.units import GB, GIB
from outlay.workstation.machine import (
    Build,
    Verdict,
    drives_bytes,
    fact_in,
    rule_value,
    rulebook,
    unchecked,
)
from outlay.workstation.parts import Part, letters


def ram_verdict(build: Build) -> Verdict:
    """RAM at least the memory of the largest GPU, better twice."""
    source = rulebook()["ram_per_gpu_memory_least"]
    largest = max(card.gpu.memory_bytes for card in build.cards)
    least = largest * rule_value("ram_per_gpu_memory_least")
    better = largest * rule_value("ram_per_gpu_memory_better")
    needed = f"{least / GIB:.0f} GB, better {better / GIB:.0f}"
    ram = build.ram_bytes
    if ram is None:
        return unchecked("RAM", "the size of the RAM is unknown", source, needed)
    return Verdict(
        rule="RAM",
        state="broken" if ram < least else "tight" if ram < better else "ok",
        needed=needed,
        have=f"{ram / GIB:.0f} GB",
        source=source,
        replaces="memory",
    )


def threads_verdict(build: Build) -> Verdict:
    """CPU threads for each GPU, more of them where samples are preprocessed while training."""
    when = "preprocessing_while_training" if build.use.while_training else "preprocessed"
    source = rulebook()[f"cpu_threads_per_gpu_{when}"]
    each = rule_value(f"cpu_threads_per_gpu_{when}")
    gpus = sum(card.gpu.devices_per_board for card in build.cards)
    needed = f"{each * gpus:.0f} ({each:.0f} a GPU)"
    threads = build.cpu.number("threads") if build.cpu else None
    if threads is None:
        return unchecked("CPU threads", unknown("the CPU", "threads", build.cpu), source, needed)
    enough = threads >= each * gpus
    return Verdict(
        rule="CPU threads",
        state="ok" if enough else "broken",
        needed=needed,
        have=f"{threads:.0f}",
        source=source,
        fix="" if enough or not build.use.while_training else "preprocess before training",
        replaces="cpu",
    )


def socket_verdict(build: Build) -> Verdict:
    """The CPU goes into the board."""
    source = fact_in(build.board, "socket")
    board, cpu = _text(build.board, "socket"), _text(build.cpu, "socket")
    if board is None:
        return unchecked("CPU socket", unknown("the board", "socket", build.board), source)
    if cpu is None:
        why = unknown("the CPU", "socket", build.cpu)
        return unchecked("CPU socket", why, source, f"{board} (board)")
    return Verdict(
        rule="CPU socket",
        state="ok" if letters(board) == letters(cpu) else "broken",
        needed=f"{board} (board)",
        have=cpu,
        source=source,
        replaces="board",
    )


def memory_type_verdict(build: Build) -> Verdict:
    """The memory is of a type that board and CPU take."""
    takes = [
        (text, noun)
        for part, noun in ((build.board, "board"), (build.cpu, "CPU"))
        if (text := _text(part, "memory_type")) is not None
    ]
    source = fact_in(build.board, "memory_type") or fact_in(build.cpu, "memory_type")
    has = _text(build.memory, "memory_type")
    needed = ", ".join(f"{text} ({noun})" for text, noun in takes)
    if not takes:
        return unchecked("memory type", "what the board takes is unknown", source)
    if has is None:
        return unchecked("memory type", "the type of the RAM is unknown", source, needed)
    fits = all(letters(has) in letters(text) for text, _ in takes)
    return Verdict(
        rule="memory type",
        state="ok" if fits else "broken",
        needed=needed,
        have=has,
        source=source,
        replaces="memory",
    )


def memory_size_verdict(build: Build) -> Verdict:
    """The memory is not more than board and CPU take, in size and in modules."""
    limits = [
        limit
        for part in (build.board, build.cpu)
        if part is not None and (limit := part.number("memory_max")) is not None
    ]
    source = fact_in(build.board, "memory_max")
    places = build.board.number("memory_slots") if build.board else None
    ram, modules = build.ram_bytes, build.modules
    if ram is None or (not limits and places is None):
        why = "the size of the RAM is unknown" if ram is None else "the board's limit is unknown"
        return unchecked("memory size", why, source)
    too_large = bool(limits) and ram > min(limits) * GIB
    too_many = places is not None and modules is not None and modules > places
    needed = [f"{min(limits):.0f} GB"] if limits else []
    needed += [f"{places:.0f} modules"] if places is not None else []
    have = f"{ram / GIB:.0f} GB" + ("" if modules is None else f", {modules:.0f} modules")
    return Verdict(
        rule="memory size",
        state="broken" if too_large or too_many else "ok",
        needed=f"at most {', '.join(needed)}",
        have=have,
        source=source,
        replaces="memory",
    )


def cooler_verdict(build: Build) -> Verdict:
    """The CPU cooler carries away what the CPU draws."""
    source = fact_in(build.cooler, "rated_power")
    rated = build.cooler.number("rated_power") if build.cooler else None
    if build.cpu_w is None:
        return unchecked("CPU cooler", unknown("the CPU", "power", build.cpu), source)
    tdp_w = (build.cpu.number("tdp") if build.cpu else None) or build.cpu_w
    if rated is None:
        why = unknown("the cooler", "rating", build.cooler)
        return unchecked("CPU cooler", why, source, f"{tdp_w:.0f} W")
    return Verdict(
        rule="CPU cooler",
        state="ok" if rated >= tdp_w else "broken",
        needed=f"{tdp_w:.0f} W",
        have=f"{rated:.0f} W",
        source=source,
        replaces="cooler",
    )


def ssd_verdict(build: Build) -> Verdict:
    """There is an SSD, and it holds the dataset."""
    data_bytes = build.use.dataset_bytes
    needed = "an SSD" + ("" if data_bytes is None else f", {data_bytes / GB:,.0f} GB of data")
    if not build.ssds and not build.hdds:
        return unchecked("SSD", "no drive is given", None, needed)
    size = drives_bytes(build.ssds)
    if size is None:
        return unchecked("SSD", "the size of the SSD is unknown", None, needed)
    fits = bool(build.ssds) and (data_bytes is None or size > data_bytes)
    return Verdict(
        rule="SSD",
        state="ok" if fits else "broken",
        needed=needed,
        have=f"{size / GB:,.0f} GB" if build.ssds else "hard disks only",
        source=fact_in(build.ssds[0], "size") if build.ssds else None,
        replaces="ssd",
    )


def m2_verdict(build: Build) -> Verdict | None:
    """There is a place on the board for each M.2 drive."""
    drives = [part for part in build.ssds if "NVMe" in (part.text("interface") or "")]
    places = build.board.number("m2_slots") if build.board else None
    if not drives or places is None:
        return None
    return Verdict(
        rule="M.2 places",
        state="ok" if len(drives) <= places else "broken",
        needed=f"{len(drives)}",
        have=f"{places:.0f}",
        source=fact_in(build.board, "m2_slots"),
        replaces="board",
    )


def like_gpus_verdict(build: Build) -> Verdict | None:
    """Several GPUs are of one kind: a step over unlike ones waits for the slowest."""
    names = list(dict.fromkeys(card.gpu.name for card in build.cards))
    if len(build.cards) == 1:
        return None
    return Verdict(
        rule="like GPUs",
        state="ok" if len(names) == 1 else "tight",
        needed="one kind",
        have=" and ".join(names),
        source=None,
        fix="" if len(names) == 1 else "train on each by itself: together all wait for the slowest",
    )


def _text(part: Part | None, parameter: str) -> str | None:
    return None if part is None else part.text(parameter)


def unknown(noun: str, figure: str, part: Part | None) -> str:
    """Why a rule on a part is left open."""
    if part is None:
        return f"{noun} is not given"
    return f"{noun}'s {figure} {'are' if figure.endswith('s') else 'is'} unknown"
