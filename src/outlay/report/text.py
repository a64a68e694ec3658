"""How figures are written for people: the only place that rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable

from outlay.offers.catalog import doubt_meanings
from outlay.offers.offer import BEFORE, Offer
from outlay.predict.memory import LARGEST_BATCH
from outlay.uncertainty import Estimate
from outlay.units import DAY_S, GIB, HOUR_S, KIB, KWH_J, MIB, MINUTE_S

UNKNOWN = "unknown"


def usd(amount: float | None) -> str:
    """`$1,234`, `$12.30`, `$0.069`, or `<$0.01` for what hardly counts."""
    if amount is None:
        return UNKNOWN
    if amount < 0:
        return f"-{usd(-amount)}"
    if amount >= 1000:
        return f"${amount:,.0f}"
    if 0.01 <= amount < 0.1:
        return f"${amount:.3f}"
    return "<$0.01" if 0 < amount < 0.01 else f"${amount:,.2f}"


def in_currency(
    amount_usd: float, currency: str, usd_per_unit: float, *, cents_below: float = -math.inf
) -> str:
    """Dollars, and the user's own currency beside them: `$12.30 (17,000 KRW)`."""
    if currency == "USD":
        return usd(amount_usd)
    amount = amount_usd / usd_per_unit
    decimals = 2 if amount < cents_below else 0
    return f"{usd(amount_usd)} ({amount:,.{decimals}f} {currency})"


def is_exact(estimate: Estimate) -> bool:
    """Whether the range is too narrow to be worth a word."""
    return estimate.high - estimate.low <= 0.005 * max(estimate.high, 1e-9)


def usd_range(estimate: Estimate) -> str:
    """The range alone, `$120-310`; nothing where there is none."""
    if is_exact(estimate) or estimate.high < 0.01:
        return ""
    return f"{usd(estimate.low)}-{usd(estimate.high).removeprefix('$')}"


def duration(seconds: float | None) -> str:
    """`4.2 d`, `7.0 h`, `35 min`, `12.0 s` or `83.1 ms`."""
    if seconds is None:
        return UNKNOWN
    if seconds >= 2 * DAY_S:
        return f"{seconds / DAY_S:,.1f} d"
    if seconds >= HOUR_S:
        return f"{seconds / HOUR_S:,.1f} h"
    if seconds >= MINUTE_S:
        return f"{seconds / MINUTE_S:,.0f} min"
    if seconds >= 1:
        return f"{seconds:,.1f} s"
    return f"{seconds * 1000:,.1f} ms"


def step_time(seconds: float) -> str:
    """`0.384 s`, `12.4 s`, `83.1 ms` or `20.4 µs`: three figures."""
    if 0 < seconds < 0.9995e-4:
        return f"{_three_figures(seconds * 1e6)} µs"
    if seconds < 0.1:
        return f"{_three_figures(seconds * 1000)} ms"
    return f"{seconds:.3f} s" if seconds < 0.9995 else f"{_three_figures(seconds)} s"


def clock(seconds: float) -> str:
    """`42 s`, `3:05 min` or `2:07 h`: time as it passes, short."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    minutes = whole // 60
    return f"{minutes // 60:,}:{minutes % 60:02} h"


def duration_range(estimate: Estimate) -> str:
    """The range alone; nothing where there is none."""
    if is_exact(estimate):
        return ""
    return f"{duration(estimate.low)} - {duration(estimate.high)}"


def gib(amount: float | None) -> str:
    """Memory in GiB."""
    return UNKNOWN if amount is None else f"{amount / GIB:,.1f} GiB"


def size(amount_bytes: float) -> str:
    """`1.24 GiB`, `640 MiB`, `12.0 KiB` or `512 B`: three figures."""
    for unit_bytes, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if amount_bytes >= unit_bytes:
            return f"{_three_figures(amount_bytes / unit_bytes)} {name}"
    return f"{amount_bytes:.0f} B"


def flops(amount: float) -> str:
    """`1.24 TFLOP`, `64.0 GFLOP`, `12.0 MFLOP`, or nothing for none."""
    for unit, name in ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1e3, "kFLOP")):
        if amount >= unit:
            return f"{_three_figures(amount / unit)} {name}"
    return f"{amount:.0f} FLOP" if amount else ""


def energy(amount_j: float) -> str:
    """`131 J`, `4.20 kJ` or `1.24 kWh`."""
    for unit_j, name in ((KWH_J, "kWh"), (1e3, "kJ")):
        if amount_j >= unit_j:
            return f"{_three_figures(amount_j / unit_j)} {name}"
    return f"{_three_figures(amount_j)} J"


def rate(per_second: float) -> str:
    """`1,240`, `66.7` or `0.38`: three figures, without a unit."""
    return _three_figures(per_second)


def figure(amount: float) -> str:
    """`3`, `2.94`, `0.0198` or `1,240`: at most three figures, none for their own sake."""
    return f"{amount:.3g}" if amount < 999.5 else f"{amount:,.0f}"


def magnitude(amount: float) -> str:
    """`7.20 k`, `21.3 M` or `1.24 B`: large counts, short."""
    for unit, name in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if amount >= unit:
            return f"{_three_figures(amount / unit)} {name}"
    return f"{amount:,.0f}"


def _three_figures(amount: float) -> str:
    decimals = 2 if amount < 9.995 else 1 if amount < 99.95 else 0
    return f"{amount:,.{decimals}f}"


def clipped_percent(fraction: float) -> str:
    """`87 %`; `>99 %` and `<1 %` near the ends, where simulations cannot tell."""
    if fraction < 0.01:
        return "<1 %"
    if fraction > 0.99:
        return ">99 %"
    return f"{fraction:.0%}".replace("%", " %")


def percent(fraction: float) -> str:
    """`87 %`, of what was measured."""
    return f"{100 * fraction:.0f} %"


def share(part: float, whole: float) -> str:
    """`12.4 %`, or nothing for none."""
    return f"{100 * part / whole:.1f} %" if part and whole else ""


def count(amount: float | None) -> str:
    """A whole number with separators, or unknown."""
    return UNKNOWN if amount is None else f"{amount:,.0f}"


def or_more(batch_size: int) -> str:
    """`+` behind a largest batch where the search ended before the memory did."""
    return "+" if batch_size >= LARGEST_BATCH else ""


def counted(amount: int, noun: str) -> str:
    """`1 option`, `2 options`."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def tera(amount: float | None) -> str:
    """FLOP/s in tera; a dash where the hardware has none."""
    return "-" if amount is None else f"{amount / 1e12:,.4g}"


def machine(offer: Offer, nodes: int = 1) -> str:
    """`8x H100 SXM`, `4 x 8x H100 SXM` of several machines, or a share: `0.125 of one L4`."""
    if offer.gpu_share != 1:
        return f"{offer.gpu_share:.3g} of one {offer.gpu}"
    unlike = " + ".join((offer.gpu, *offer.other_gpus))
    single = unlike if offer.other_gpus else f"{offer.gpus}x {offer.gpu}"
    return f"{nodes} x {single}" if nodes > 1 else single


_OF_THE_PAST = ("outlier", "spot outlier", "price gone")


def doubt_reasons(offer: Offer, words: Iterable[str]) -> dict[str, str]:
    """What each doubt means, with the other price where there is one; by word."""
    return {word: _doubt_reason(offer, word) for word in words}


def _doubt_reason(offer: Offer, word: str) -> str:
    """`Another source's price differs by more than 5 % ...: gpuhunt $2.10 on 2026-11-15`."""
    meaning = doubt_meanings().get(word, word)
    if word == "sources disagree":
        others = [price for price in offer.other_prices if price.source != BEFORE]
    else:
        of_past = word in _OF_THE_PAST
        others = [price for price in offer.other_prices if of_past and price.source == BEFORE]
    figures = [
        f"{price.source} {usd(price.price_usd_per_hour)}"
        + (f" (spot {usd(price.spot_usd_per_hour)})" if word == "spot outlier" else "")
        + f" on {price.as_of}"
        for price in others
    ]
    return f"{meaning}: {', '.join(figures)}" if figures else meaning
