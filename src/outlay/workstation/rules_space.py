"""Rules on space and heat: slots and their spacing, lanes, cooling, the case."""

from __future__ import annotations

import math
import re
from typing import Literal

from outlay.workstation.machine import (
    Build,
    Seating,
    Verdict,
    fact_in,
    rule_value,
    rulebook,
    seating,
    unchecked,
)
from outlay.workstation.parts import letters
from outlay.workstation.rules_fit import unknown

_FORMS: tuple[tuple[str, ...], ...] = (
    ("miniitx", "mitx"),
    ("microatx", "matx", "uatx"),
    ("atx",),
    ("eatx", "xlatx", "ssiceb"),
    ("ssieeb", "eeb"),
)
"""Board sizes, smallest first: a case takes the largest it names and every smaller one."""
_PLACES = (1, 4, 7)
"""Slots of the three smallest sizes at most."""
# Source: https://www.pctechguide.com/motherboards/micro-atx-motherboard-form-factor/amp (ATX up
# to seven expansion slots, microATX four).


_NARROWER = "cards two slots wide (blower or water)"


def widths_of(build: Build) -> list[int] | None:
    """Slot pitches that each card covers; None where one is unknown."""
    widths = [card.slot_pitches for card in build.cards]
    known = [math.ceil(width) for width in widths if width is not None]
    return known if len(known) == len(widths) else None


def seating_of(build: Build) -> Seating | None:
    """How the cards sit on the board in its case; None where they do not, or nobody knows."""
    widths, slots = widths_of(build), build.slots
    if widths is None or slots is None:
        return None
    room = build.case.number("expansion_slots") if build.case else None
    return seating(slots, widths, None if room is None else int(room)) or seating(
        slots, widths, None
    )


def slots_verdict(build: Build) -> Verdict:
    """The board has a slot for each card, and they are as far apart as the cards are wide."""
    source = rulebook()["card_slots_default"]
    widths, slots = widths_of(build), build.slots
    if widths is None:
        return unchecked("slots", "how wide the card is, is unknown", source)
    needed = f"{len(widths)} x {max(widths)} pitches"
    if slots is None:
        return _unknown_slots(build, widths, needed)
    seats = seating(slots, widths, None)
    used = slots if seats is None else seats.slots
    at = ", ".join(str(slot.position) for slot in used)
    have = f"{len(used)} at pitch {at}" if used else "none"
    narrow = [int(rule_value("card_slots_default"))] * len(widths)
    helps = seats is None and seating(slots, narrow, None) is not None
    return _slots("broken" if seats is None else "ok", needed, have, _NARROWER if helps else "")


def _unknown_slots(build: Build, widths: list[int], needed: str) -> Verdict:
    """Cards may be too many for a board of its size, whatever its slots are."""
    form = build.board.text("form") if build.board else None
    rank = None if form is None else largest_form(form)
    places = _PLACES[rank] if rank is not None and rank < len(_PLACES) else None
    if places is not None and sum(widths[:-1]) + 1 > places:
        return _slots("broken", needed, f"{places} pitches ({form})")
    source = rulebook()["card_slots_default"]
    return unchecked("slots", unknown("the board", "slots", build.board), source, needed)


def _slots(state: Literal["ok", "broken"], needed: str, have: str, fix: str = "") -> Verdict:
    return Verdict(
        rule="slots",
        state=state,
        needed=needed,
        have=have,
        source=rulebook()["card_slots_default"],
        fix=fix,
        replaces="board",
    )


def lanes_verdict(build: Build) -> Verdict:
    """PCIe lanes of each card: they hardly matter up to four GPUs; fewer than x8 are a warning."""
    source = rulebook()["pcie_lanes_per_gpu_4gpus_preferred"]
    least = rule_value("pcie_lanes_per_gpu_4gpus_preferred")
    needed = f"x{least:.0f} a card"
    seats = seating_of(build)
    total = build.cpu.number("pcie_lanes") if build.cpu else None
    if seats is not None:
        lanes = [slot.lanes for slot in seats.slots]
    elif total is not None:
        lanes = [_shared_lanes(int(total), len(build.cards))] * len(build.cards)
    else:
        return unchecked("lanes", unknown("the board", "slots", build.board), source, needed)
    tight = min(lanes) < least
    return Verdict(
        rule="lanes",
        state="tight" if tight else "ok",
        needed=needed,
        have=" ".join(f"x{number}" for number in lanes),
        source=source,
        fix=_lanes_lost(len(lanes)) if tight else "",
    )


def _shared_lanes(total: int, cards: int) -> int:
    """Lanes of each card where the CPU's are shared evenly: links come in powers of two."""
    return next((width for width in (16, 8, 4, 2) if width * cards <= total), 1)


def _lanes_lost(cards: int) -> str:
    """What few lanes cost."""
    if cards <= 2:
        return "costs hardly any speed with so few cards"
    low, high = (rule_value(f"pcie_x4_penalty_4gpus_{end}") for end in ("low", "high"))
    return f"x4 costs {100 * low:.0f} to {100 * high:.0f} % over four cards"


_COOL = frozenset({"water", "liquid"})


def cooling_verdict(build: Build) -> Verdict:
    """Cards beside each other get rid of their heat: blowers, water, or a free slot between."""
    kinds = list(dict.fromkeys(card.cooling or "unknown" for card in build.cards))
    how = ", ".join(kinds)
    if "passive" in kinds:
        fix = "made for a server's air flow: give it a fan and a shroud"
        return _cooled("tight", "a fan", how, fix)
    if len(build.cards) == 1:
        return _cooled("ok", "air around it", f"{how}, alone")
    if set(kinds) <= {*_COOL, "blower"}:
        return _cooled("ok", "blower or water", how)
    needed = "blower or water"
    many = len(build.cards) >= rule_value("blower_needed_from_gpus")
    seats = seating_of(build)
    if seats is None and not many:
        source = rulebook()["throttling_packed_low"]
        why = "how far apart the cards sit is unknown"
        return unchecked("cooling", why, source, f"air, {needed}")
    gap = "" if seats is None else f", {seats.gap} free between"
    if not many:
        needed = f"air, {needed}"
        if seats is not None and seats.gap:
            return _cooled("ok", needed, how + gap)
    water = f"water for about ${water_usd(build):,.0f}"
    return _cooled("tight", needed, how + gap, f"blower cards, or {water}")


def _cooled(state: Literal["ok", "tight"], needed: str, have: str, fix: str = "") -> Verdict:
    return Verdict(
        rule="cooling",
        state=state,
        needed=needed,
        have=have,
        source=rulebook()["throttling_packed_low"],
        fix=fix,
    )


def water_usd(build: Build) -> float:
    """What water cooling of all cards costs about."""
    return rule_value("water_cooling_per_gpu") * len(build.cards) + rule_value(
        "water_cooling_fixed"
    )


def throttling(build: Build) -> tuple[float, float, str]:
    """The share of speed that heat is expected to cost, low and high, and for which cards."""
    kinds = {card.cooling for card in build.cards}
    seats = seating_of(build)
    if kinds <= _COOL:
        return rule_value("throttling_water"), rule_value("throttling_water"), "cards under water"
    if len(build.cards) == 1 or (seats is not None and seats.gap):
        words = "a card" if len(build.cards) == 1 else "cards"
        low, high = rule_value("throttling_alone_low"), rule_value("throttling_alone_high")
        return low, high, f"{words} with air around"
    how = "blower_packed" if kinds <= {*_COOL, "blower"} else "packed"
    words = "blower cards side by side" if how == "blower_packed" else "cards side by side"
    return rule_value(f"throttling_{how}_low"), rule_value(f"throttling_{how}_high"), words


def case_slots_verdict(build: Build) -> Verdict:
    """The case has openings down to the last card."""
    source = fact_in(build.case, "expansion_slots")
    room = build.case.number("expansion_slots") if build.case else None
    if room is None:
        return unchecked("case slots", unknown("the case", "slots", build.case), source)
    seats = seating_of(build)
    if seats is None:
        return unchecked("case slots", "where the cards sit is unknown", source)
    return Verdict(
        rule="case slots",
        state="ok" if seats.last_pitch <= room else "broken",
        needed=f"{seats.last_pitch}",
        have=f"{room:.0f}",
        source=source,
        replaces="case",
    )


def card_length_verdict(build: Build) -> Verdict:
    """The longest card goes into the case."""
    source = fact_in(build.case, "gpu_length_max")
    room = build.case.number("gpu_length_max") if build.case else None
    lengths = [card.length_mm for card in build.cards]
    known = [length for length in lengths if length is not None]
    needed = f"{max(known):.0f} mm" if len(known) == len(lengths) else ""
    if room is None:
        return unchecked("card length", unknown("the case", "room", build.case), source, needed)
    if not needed:
        return unchecked(
            "card length", f"the card's length is unknown (room: {room:.0f} mm)", source
        )
    return Verdict(
        rule="card length",
        state="ok" if max(known) <= room else "broken",
        needed=needed,
        have=f"{room:.0f} mm",
        source=source,
        replaces="case",
    )


def board_form_verdict(build: Build) -> Verdict:
    """The board goes into the case."""
    source = fact_in(build.case, "form")
    board = build.board.text("form") if build.board else None
    case = build.case.text("form") if build.case else None
    if board is None or case is None:
        noun, part = ("the board", build.board) if board is None else ("the case", build.case)
        return unchecked("board form", unknown(noun, "form", part), source, board or "")
    needs, takes = largest_form(board), largest_form(case)
    if needs is None or takes is None:
        return unchecked("board form", f"{board} or {case} is no known form", source, board)
    return Verdict(
        rule="board form",
        state="ok" if needs <= takes else "broken",
        needed=board,
        have=case,
        source=source,
        replaces="case",
    )


def largest_form(text: str) -> int | None:
    """The rank of the largest board size a text names; None where it names none."""
    named = {letters(word) for word in re.split(r"[,/;]", text)}
    ranks = [rank for rank, names in enumerate(_FORMS) if not named.isdisjoint(names)]
    return max(ranks, default=None)
