"""Advice for people: three lines to act on, then the figures behind them."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from outlay.advise.alternatives import RENTED, Alternative
from outlay.advise.cards import fitting_profiles
from outlay.advise.recommendation import Recommendation, TurningPoint, UpgradePath
from outlay.advise.request import AdviceRequest
from outlay.report.console import Page, muted, table
from outlay.report.plan import machine_of, place_of
from outlay.report.text import counted, per_cent, usd, usd_range
from outlay.trace.store import bundled_profiles
from outlay.units import GIB

_DO = {
    "keep": "Keep what you have",
    "buy used": "Buy used",
    "buy new": "Buy new",
    "on demand": "Rent on demand",
    "reserved": "Rent for a term",
    "spot": "Rent spot",
    "free notebook": "Use a free notebook",
    "notebook": "Use a notebook",
}
_CARDS = 6
"""Cards to buy that are shown; --json has all."""
_BEATEN = 8
"""Cards to avoid that are shown; --json has all."""


def print_advice(page: Page, advice: Recommendation) -> None:
    """The answer, the use, the ways, when the other way is better, caveats, cards to avoid."""
    for line in _answer(advice):
        page.print(line)
    page.print()
    for said in _use(advice):
        page.print(said)
    page.print()
    page.print(Text("Ways to get that work done", style="bold"))
    page.print(_ways_table(advice, page.width))
    for way in advice.ways:
        if way.why_not:
            page.print(muted(f"x {way.kind}: {way.why_not}"))
    _print_cards(page, advice)
    _print_list(page, "When the other way is better", _turning_words(advice))
    _print_list(page, "Before you take it", advice.caveats)
    _print_beaten(page, advice)
    if advice.upgrade is not None:
        _print_list(page, "Small first, bigger later", [_upgrade_words(advice.upgrade)])
    _print_list(page, "Taken for granted", _assumed(advice))


def _print_list(page: Page, head: str, said: Iterator[str] | tuple[str, ...] | list[str]) -> None:
    lines = list(said)
    if not lines:
        return
    page.print()
    page.print(Text(head, style="bold"))
    listed = Table.grid(padding=(0, 1, 0, 0))
    for line in lines:
        listed.add_row("-", line)
    page.print(listed)


def _answer(advice: Recommendation) -> Iterator[Text]:
    chosen = advice.chosen
    if chosen is None:
        yield Text("Nothing does that work within the purse.", style="bold red")
        yield Text(_nearest(advice))
        return
    text = Text(f"{_DO[chosen.kind]}: ", style="bold green")
    yield text.append(f"{_thing(chosen)}.", style="none")
    yield Text(_costs(chosen, advice.asked))
    yield Text(_otherwise(advice, chosen))


def _thing(way: Alternative) -> str:
    """The machine in words: what to buy, or where to rent it."""
    if way.card is not None:
        gpus = way.option.offer.gpus
        count = f"{gpus}x " if gpus > 1 else ""
        return f"{count}{way.card.gpu.name}, {usd(way.upfront_usd)} at once"
    if way.is_bought:
        return f"{way.option.offer.instance}, {usd(way.upfront_usd)} at once"
    if way.kind == "keep":
        return way.option.offer.gpu
    return f"{machine_of(way.option)} at {place_of(way.option)}"


def _costs(way: Alternative, asked: AdviceRequest) -> str:
    """What a month costs, with its range, and over all months."""
    month, limits = way.usd_per_month, usd_range(way.usd_per_month)
    bracketed = f" ({limits})" if limits else ""
    resale = ", resale taken off" if way.is_bought else ""
    return (
        f"{_money(month.likely, asked)} a month{bracketed}, "
        f"{_money(month.likely * asked.months, asked)} over {asked.months:g} months{resale}; "
        f"the machine works {way.busy_hours:,.0f} h a month."
    )


def _money(amount_usd: float, asked: AdviceRequest) -> str:
    if asked.currency == "USD":
        return usd(amount_usd)
    amount = amount_usd / asked.usd_per_unit
    decimals = 0 if amount >= 100 else 2
    return f"{usd(amount_usd)} ({amount:,.{decimals}f} {asked.currency})"


def _otherwise(advice: Recommendation, chosen: Alternative) -> str:
    """When buying, or renting, would be the better way."""
    if chosen.is_bought:
        points = [one for one in advice.turning_points if one.buy is chosen]
    else:
        points = [one for one in advice.turning_points if one.rent is chosen]
    said = [_meets(one, bought=chosen.is_bought) for one in points]
    if said:
        return " ".join([*said, *_doubtful(points)])
    second = next((way for way in advice.ways if way is not chosen and way.why_not is None), None)
    if second is None:
        return "Nothing else within the purse does that work."
    return f"Next best: {_thing(second)}, {usd(second.usd_per_month.likely)} a month."


def _doubtful(points: list[TurningPoint]) -> Iterator[str]:
    """How likely the cheapest way of the other side turns out to be the cheaper one."""
    nearest = min(points, key=lambda one: one.rent.usd_per_month.likely)
    chance = nearest.buying_wins
    if nearest.buying_is_cheaper:
        yield f"Chance that renting is cheaper even so: {per_cent(1 - chance)}."
    else:
        yield f"Chance that buying is cheaper even so: {per_cent(chance)}."


def _meets(point: TurningPoint, *, bought: bool) -> str:
    """Where a purchase and a rental cost the same, from the side of what is chosen."""
    rent = f"renting {point.rent.option.offer.gpu} ({point.rent.kind})"
    if point.hours_per_day is None or point.months is None:
        return f"Buying {point.buy.option.offer.gpu} never pays against {rent}."
    daily = f"{point.hours_per_day:.1f} h a day"
    if bought:
        return f"Below {daily}, or for less than {point.months:.0f} months, {rent} is cheaper."
    if not point.within_reach:
        return f"Buying a {point.buy.option.offer.instance} never pays against it, not even 24/7."
    return (
        f"Buying a {point.buy.option.offer.instance} ({usd(point.buy.upfront_usd)}) is cheaper "
        f"from {daily}, or at this use after {point.months:.0f} months."
    )


def _nearest(advice: Recommendation) -> str:
    """What the purse would have to be, and what it does for as it is."""
    if not advice.ways:
        return "The step fits nothing that was looked at; `outlay fit` says what to change."
    asked = advice.asked
    rented = [way for way in advice.ways if way.kind in RENTED and way.option.sound]
    if asked.monthly_usd is None or not rented:
        way = advice.ways[0]
        return f"Nearest: {_thing(way)}, {usd(way.usd_per_month.likely)} a month: {way.why_not}."
    way = min(rented, key=lambda one: one.usd_per_month.likely)
    month = way.usd_per_month.likely
    hours = asked.use.hours_per_day * asked.monthly_usd / month
    return (
        f"Nearest: {_thing(way)} ({way.kind}), {usd(month)} a month, for a purse of "
        f"{_money(month * asked.months, asked)}; as it is, the purse does for {hours:.1f} h a day "
        f"there instead of {asked.use.hours_per_day:.1f}."
    )


def _use(advice: Recommendation) -> Iterator[str]:
    """What the usage comes to, and whether rules of thumb hold."""
    use, reference, asked = advice.asked.use, advice.reference, advice.asked
    gpus = f"{asked.gpus}x " if asked.gpus > 1 else ""
    yield (
        f"Use: {use.said} is {use.hours_per_month:,.0f} h a month, counted on "
        f"{gpus}{reference.gpu} ({reference.why}): bought, it would be busy "
        f"{per_cent(use.busy_fraction)} of the time."
    )
    for rule in advice.rules:
        verdict = "right" if rule.holds else "wrong"
        yield f'Rule "{rule.rule}": says {rule.says}, {verdict} here: {rule.because}.'


def _ways_table(advice: Recommendation, width: int) -> Table:
    heads = ("", "way", "what", "at once", "$/month", "range", "h/month")
    rows = [_row(way, chosen=way is advice.chosen) for way in advice.ways]
    return table(
        heads, rows, width, right=("at once", "$/month", "h/month"), drop=("h/month", "at once")
    )


def _row(way: Alternative, *, chosen: bool) -> tuple[str, ...]:
    return (
        "✔" if chosen else "x" if way.why_not else "",
        way.kind,
        _short(way),
        usd(way.upfront_usd) if way.upfront_usd else "",
        usd(way.usd_per_month.likely),
        usd_range(way.usd_per_month),
        f"{way.busy_hours:,.0f}",
    )


def _short(way: Alternative) -> str:
    offer = way.option.offer
    if offer.owned is not None:
        return f"{offer.gpus}x {offer.gpu}"
    return f"{machine_of(way.option)} {offer.provider}"


def _print_cards(page: Page, advice: Recommendation) -> None:
    """The cards within the purse, with what they hold besides this step."""
    if not advice.cards:
        return
    page.print()
    page.print(Text("Cards one could buy for it", style="bold"))
    heads = ("", "card", "gb", "at once", "$/month", "range", "h/month", "holds")
    rows = [_card_row(way) for way in advice.cards[:_CARDS]]
    right = ("gb", "at once", "$/month", "h/month")
    page.print(table(heads, rows, page.width, right=right, drop=("h/month",)))
    every = len(bundled_profiles())
    said = [f"holds: of the {every} bundled steps, those that fit with one sample"]
    if any(way.why_not for way in advice.cards[:_CARDS]):
        said.append("x: too slow for all of this work")
    if len(advice.cards) > _CARDS:
        said.append(f"{counted(len(advice.cards) - _CARDS, 'card')} more in --json")
    page.print(muted("; ".join(said)))


def _card_row(way: Alternative) -> tuple[str, ...]:
    assert way.card is not None
    fits, too_big = fitting_profiles(way.card.gpu.name)
    return (
        "x" if way.why_not else "",
        way.card.name,
        f"{way.card.gpu.memory_bytes / GIB:.0f}",
        usd(way.upfront_usd),
        usd(way.usd_per_month.likely),
        usd_range(way.usd_per_month),
        f"{way.busy_hours:,.0f}",
        f"{len(fits)} of {len(fits) + len(too_big)}",
    )


def _turning_words(advice: Recommendation) -> Iterator[str]:
    """Each break-even as a sum: (purchase - resale) / (rent - electricity)."""
    for point in advice.turning_points:
        even = point.even
        name = f"{point.buy.option.offer.instance} against {point.rent.kind}"
        lost = f"({usd(even.purchase_usd)} - {usd(even.resale_usd)} resale)"
        gain = f"(${even.rented_usd_per_hour:.4f}/h - ${even.owned_usd_per_hour:.4f}/h)"
        if point.hours is None or point.months is None or point.hours_per_day is None:
            yield f"{name}: {lost} / {gain}: never, an hour of electricity costs as much."
        else:
            yield (
                f"{name}: {lost} / {gain} = {point.hours:,.0f} h of it: {point.months:,.1f} "
                f"months at this use, or {point.hours_per_day:,.1f} h a day over "
                f"{advice.asked.months:g} months."
            )


def _print_beaten(page: Page, advice: Recommendation) -> None:
    if not advice.beaten:
        return
    page.print()
    page.print(Text("Cards to avoid: another is nowhere slower and costs no more", style="bold"))
    rows = [
        (
            one.card.name,
            usd(one.card.seen_usd),
            one.by.name,
            usd(one.by.seen_usd),
            f"{one.times_as_fast:.1f}x and more",
        )
        for one in advice.beaten[:_BEATEN]
    ]
    heads = ("avoid", "price", "better", "its price", "as fast")
    page.print(table(heads, rows, page.width, right=("price", "its price")))
    if len(advice.beaten) > _BEATEN:
        more = counted(len(advice.beaten) - _BEATEN, "card")
        page.print(muted(f"{more} more: outlay advise --ask avoid"))


def _upgrade_words(path: UpgradePath) -> str:
    verb = "saves" if path.saved_usd > 0 else "costs"
    return (
        f"{path.small.name} now ({usd(path.first_outlay_usd)}), sold after "
        f"{path.after_months:g} months for a used {path.big.gpu.name}: {usd(path.in_steps_usd)} in "
        f"all, against {usd(path.at_once_usd)} for a {path.big.name} at once. It {verb} "
        f"{usd(abs(path.saved_usd))}; the big one is {path.speed_ratio:.1f}x as fast."
    )


def _assumed(advice: Recommendation) -> Iterator[str]:
    asked = advice.asked
    yield (
        f"Equal work everywhere: what {advice.reference.gpu} trains in those hours of "
        f"{asked.profile.name}; slower machines work longer, faster ones are idle sooner."
    )
    if asked.budget_usd is not None:
        monthly = asked.budget_usd / asked.months
        yield (
            f"The purse of {_money(asked.budget_usd, asked)} allows a purchase of that at once, "
            f"or {usd(monthly)} a month."
        )
    if asked.rate_as_of:
        yield f"Exchange rate of {asked.rate_as_of}: {asked.usd_per_unit:.6g} USD per unit."
    yield from (f"Desktop and cards: {said}" for said in _purchase_notes(asked))


def _purchase_notes(asked: AdviceRequest) -> Iterator[str]:
    from outlay.advise.cards import assumption_range, electricity_usd_per_kwh
    from outlay.advise.machines import cards_for_sale, rest_usd

    rest = rest_usd(asked)
    if rest.likely and cards_for_sale(asked):
        yield (
            f"the desktop without cards costs {usd(rest.likely)} ({usd_range(rest)}); a used "
            f"card keeps {assumption_range('used_card_keep_per_year').likely:.0%} of its price a year."
        )
    price, fact = electricity_usd_per_kwh(asked.country)
    likely = price if isinstance(price, float | int) else price.likely
    yield f"electricity costs ${likely:.3f}/kWh ({asked.country}, {fact.as_of})."
