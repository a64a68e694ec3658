"""Rules on power: the supply and its connectors, the wall, and the limit that makes it work."""

from __future__ import annotations

import math
import re

from outlay.facts import NONE
from outlay.workstation.machine import Build, Verdict, rule_value, rulebook, unchecked
from outlay.workstation.parts import Card
from outlay.workstation.rules_fit import unknown

CIRCUITS = {
    "us": "us_15a_120v_continuous_w",
    "eu": "eu_16a_230v",
    "gb": "uk_13a_230v",
    "kr": "kr_16a_220v",
    "jp": "jp_15a_100v",
}
"""What one ordinary circuit of a country carries: its row."""
_LOW_VOLTAGE = ("us", "jp")
_GRADES = ("titanium", "platinum", "gold", "silver", "bronze")
_HALF_TO_FULL = 0.75
"""The share of its power from which a supply counts as fully loaded: half way from 50 to 100 %."""

_CONNECTOR = re.compile(r"(\d+)x (\d+)-pin")
_LEAST_LIMIT = 0.3
# Assumes: as `predict.roofline`: drivers take no limit below about a third of the shipped one.


def load_w(build: Build) -> float | None:
    """What the machine draws from its supply at full load; None where the CPU is unknown."""
    if build.cpu_w is None:
        return None
    return build.cards_w + build.cpu_w + rule_value("other_parts_power")


def psu_verdict(build: Build) -> Verdict:
    """The supply has what CPU, cards and the rest draw, and 10 to 15 % more."""
    source = rulebook()["psu_headroom_low"]
    draws = load_w(build)
    if draws is None:
        return unchecked("PSU watts", unknown("the CPU", "power", build.cpu), source)
    least, better = (
        round(draws * (1 + rule_value(f"psu_headroom_{end}"))) for end in ("low", "high")
    )
    needed = f"{least:,.0f}-{better:,.0f} W"
    has = build.psu.number("power") if build.psu else None
    if has is None:
        why = unknown("the supply", "power", build.psu)
        return unchecked("PSU watts", why, source, needed)
    broken = has < least
    return Verdict(
        rule="PSU watts",
        state="broken" if broken else "tight" if has < better else "ok",
        needed=needed,
        have=f"{has:,.0f} W",
        source=source,
        fix=_psu_limit(build, has) if broken else "",
        replaces="psu",
    )


def _psu_limit(build: Build, has_w: float) -> str:
    return power_limit_fix(build, has_w / (1 + rule_value("psu_headroom_low")), build.cpu_w or 0.0)


def training_w(build: Build) -> float | None:
    """What it draws from its supply for hours: the CPU then does less than it can."""
    if build.cpu_w is None:
        return None
    return build.cards_w + _training_cpu_w(build) + rule_value("other_parts_power")


def _training_cpu_w(build: Build) -> float:
    return min(build.cpu_w or 0.0, rule_value("cpu_power_while_training"))


def power_limit_fix(build: Build, room_w: float, cpu_w: float) -> str:
    """The power limit under which the machine stays within `room_w`, and what it costs."""
    limit_w = limit_within_w(build, room_w, cpu_w)
    if limit_w is None:
        return ""
    return f"hold each GPU to {limit_w} W (nvidia-smi -pl {limit_w}): {slowdown(build, limit_w)}"


def slowdown(build: Build, limit_w: float) -> str:
    """What a power limit costs in speed: `5 % slower`."""
    share = limit_w / max(card.shipped_w for card in build.cards)
    lost = 1 - build.use.speed_at(min(share, 1.0))
    return f"{100 * lost:.0f} % slower" if lost >= 0.01 else "less than 1 % slower"


def limit_within_w(build: Build, room_w: float, cpu_w: float) -> int | None:
    """The power limit of each card that keeps the load within `room_w`; None: no driver takes it.

    Rounded down to whole fives of watts.
    """
    others_w = cpu_w + rule_value("other_parts_power")
    each_w = math.floor(round((room_w - others_w) / len(build.cards), 6) / 5) * 5
    least_w = _LEAST_LIMIT * max(card.shipped_w for card in build.cards)
    return each_w if each_w >= least_w else None


def connectors_verdict(build: Build) -> Verdict:
    """The supply has a plug for every socket of the cards."""
    source = rulebook()["connector_8pin"]
    plugs = [plugs_of(card) for card in build.cards]
    known = [counts for counts in plugs if counts is not None]
    if len(known) < len(plugs):
        return unchecked("PSU connectors", "the card's connectors are unknown", source)
    new, old = sum(new for new, _ in known), sum(old for _, old in known)
    needed = _plugs(new, old)
    if not needed:
        return Verdict(
            rule="PSU connectors", state="ok", needed="none", have="not needed", source=source
        )
    has_old = build.psu.number("pcie_8pin") if build.psu else None
    has_new = (build.psu.number("pcie_16pin") if build.psu else None) or 0.0
    adapted = max(new - has_new, 0)
    if has_old is None and (old or adapted):
        why = unknown("the supply", "connectors", build.psu)
        return unchecked("PSU connectors", why, source, needed)
    has_old = has_old or 0.0
    enough = old + adapted * _plugs_adapted(build) <= has_old
    return Verdict(
        rule="PSU connectors",
        state="broken" if not enough else "tight" if adapted else "ok",
        needed=needed,
        have=_plugs(has_new, has_old),
        source=source,
        fix=f"{adapted:.0f} adapters from 8-pin to 16-pin" if adapted and enough else "",
        replaces="psu",
    )


def _plugs(new: float, old: float) -> str:
    """`1x 16-pin, 2x 8-pin`."""
    kinds = ((new, "16-pin"), (old, "8-pin"))
    return ", ".join(f"{count:.0f}x {kind}" for count, kind in kinds if count)


def _plugs_adapted(build: Build) -> int:
    """8-pin plugs that an adapter to 16-pin takes for the hungriest card."""
    return math.ceil(max(card.shipped_w for card in build.cards) / rule_value("connector_8pin"))


def plugs_of(card: Card) -> tuple[int, int] | None:
    """16-pin and 8-pin plugs of a card; None where nobody knows, or where they are a server's.

    A 6-pin takes one that has eight. NVIDIA's own 12-pin comes with an adapter from two.
    """
    text = card.connectors
    if text is None or "EPS" in text:
        return None
    if text == NONE:
        return 0, 0
    counts = {int(pins): int(count) for count, pins in _CONNECTOR.findall(text)}
    if not counts:
        return None
    return counts.get(16, 0), counts.get(8, 0) + counts.get(6, 0) + 2 * counts.get(12, 0)


def wall_w(build: Build) -> float | None:
    """What it draws from the wall while training."""
    draws = training_w(build)
    return None if draws is None else draws / efficiency(build)


def efficiency(build: Build) -> float:
    """The share of its input that the supply delivers, by its 80 PLUS grade and its load.

    One of unknown grade is taken as a plain 80 PLUS one.
    """
    label = (build.psu.text("efficiency") or "").lower() if build.psu else ""
    grade = next((grade for grade in _GRADES if grade in label), None)
    if grade is None:
        return rule_value("psu_efficiency_standard_half_load_115v")
    power, draws = build.psu.number("power") if build.psu else None, training_w(build)
    low = build.use.country in _LOW_VOLTAGE
    full = low and bool(power) and (draws or 0.0) > _HALF_TO_FULL * (power or 0.0)
    load, volts = "full" if full else "half", "115v" if low else "230v"
    return rule_value(f"psu_efficiency_{grade}_{load}_load_{volts}")


def wall_verdict(build: Build) -> Verdict:
    """One circuit of the country carries it for hours."""
    if build.use.country is None:
        return unchecked("wall circuit", "the country is not given (--country)", None)
    row = CIRCUITS[build.use.country]
    source, carries = rulebook()[row], rule_value(row)
    drawn = wall_w(build)
    needed = f"at most {carries:,.0f} W ({build.use.country})"
    if drawn is None:
        return unchecked("wall circuit", unknown("the CPU", "power", build.cpu), source, needed)
    broken = drawn > carries
    room_w = carries * efficiency(build)
    limit = power_limit_fix(build, room_w, _training_cpu_w(build)) if broken else ""
    wider = _wider_circuit(build.use.country, drawn) if broken else ""
    return Verdict(
        rule="wall circuit",
        state="broken" if broken else "ok",
        needed=needed,
        have=f"{drawn:,.0f} W",
        source=source,
        fix=", or ".join(filter(None, (limit, wider))),
    )


def _wider_circuit(country: str, drawn_w: float) -> str:
    """The larger circuit that some have at home, where it carries the machine."""
    carries = rule_value("us_20a_120v_continuous_w")
    return f"a 20 A circuit ({carries:,.0f} W)" if country == "us" and drawn_w <= carries else ""
