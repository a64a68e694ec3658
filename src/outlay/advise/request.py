"""A request for advice: for which purpose, within which purse, for how much use, with what at hand.

`monthly_use` reads what people write of their use, `find_purpose` of their purpose; `workload_for`
is a month of the request's work as a workload.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

from outlay.advise.cards import assumption_number
from outlay.errors import InputError, NotKnown
from outlay.facts import NOTHING_IMPORTED, ImportedPrices, rows_of
from outlay.offers.price_book import PriceBook
from outlay.trace.profile import Profile
from outlay.units import DAY_S, GIB, HOUR_S, MONTH_S, WEEK_S, YEAR_S
from outlay.workload.workload import Length, Limits, Preferences, Selection, Step, Workload

# --- use: 24/7, 2h/day, 4h/day 5 days/week, 20h/week, 60h/month, 15%, 4 sessions/month of 6h ---

HOURS_IN_MONTH = MONTH_S / HOUR_S
_PER_MONTH = {
    "day": MONTH_S / DAY_S,
    "week": MONTH_S / WEEK_S,
    "month": 1.0,
    "year": MONTH_S / YEAR_S,
}
_N = r"(?P<{}>[0-9]+(?:\.[0-9]+)?)"
_HOURS = r" *(?:h|hr|hrs|hour|hours)"
_EACH = r" *(?:/|a|per|an) *(?P<each>day|week|month|year)"
_OF_HOURS = re.compile(
    rf"{_N.format('hours')}{_HOURS}{_EACH}"
    rf"(?:,? *{_N.format('days')} *days? *(?:/|a|per) *week)?"
)
_SESSIONS = re.compile(
    rf"{_N.format('times')} *sessions?{_EACH} *(?:of|x|,) *{_N.format('hours')}{_HOURS}(?: each)?"
)
_SHARE = re.compile(rf"{_N.format('share')} *%")
_ALWAYS = ("24/7", "always", "all the time", "round the clock")


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthlyUse:
    """How much a machine is used in a month, and in how many sessions."""

    hours_per_month: float
    sessions_per_month: float
    text: str
    """As it was written."""
    assumed: bool = False
    """Whether it was not written, but is what is usual."""

    @property
    def busy_fraction(self) -> float:
        """The share of all hours."""
        return self.hours_per_month / HOURS_IN_MONTH

    @property
    def is_always(self) -> bool:
        """Whether that counts as 24/7."""
        return self.busy_fraction >= assumption_number("always")

    @property
    def hours_per_day(self) -> float:
        """Over all days."""
        return self.hours_per_month / _PER_MONTH["day"]


def monthly_use(text: str | None) -> MonthlyUse:
    """The use a text describes; without one, what is usual on a desktop of one's own."""
    if text is None:
        share = assumption_number("hours_not_said")
        return _spread(share * HOURS_IN_MONTH, f"{share:.0%} of all hours", assumed=True)
    words = " ".join(text.lower().split())
    use = _use(words)
    if use is None:
        raise InputError(
            f"--usage {text!r} is not a use of a machine.",
            why="It is hours a day, week or month, sessions of some hours, a share, or 24/7.",
            fix="Write 24/7, 2h/day, '4h/day 5 days/week', 20h/week, 15% or "
            "'4 sessions/month of 6h'.",
        )
    if not 0 < use.hours_per_month <= HOURS_IN_MONTH * 1.0001:
        raise InputError(
            f"--usage {text!r} is {use.hours_per_month:,.0f} h a month.",
            why=f"A month has {HOURS_IN_MONTH:.0f} h; a machine is used for some of them.",
            fix="Give fewer hours; more GPUs are --gpus.",
        )
    return use


def _use(text: str) -> MonthlyUse | None:
    if text in _ALWAYS:
        return MonthlyUse(hours_per_month=HOURS_IN_MONTH, sessions_per_month=1.0, text=text)
    if match := _SESSIONS.fullmatch(text):
        times = float(match["times"]) * _PER_MONTH[match["each"]]
        hours = times * float(match["hours"])
        return MonthlyUse(hours_per_month=hours, sessions_per_month=times, text=text)
    if match := _SHARE.fullmatch(text):
        return _spread(float(match["share"]) / 100 * HOURS_IN_MONTH, text)
    if match := _OF_HOURS.fullmatch(text):
        return _of_hours(match, text)
    return None


def _of_hours(match: re.Match[str], text: str) -> MonthlyUse | None:
    hours, each = float(match["hours"]), match["each"]
    if each != "day":
        return None if match["days"] else _spread(hours * _PER_MONTH[each], text)
    days = _PER_MONTH["day"] * (float(match["days"]) / 7 if match["days"] else 1.0)
    if hours > 24 or days > _PER_MONTH["day"]:
        return MonthlyUse(hours_per_month=float("inf"), sessions_per_month=days, text=text)
    return MonthlyUse(hours_per_month=hours * days, sessions_per_month=days, text=text)


def _spread(hours: float, text: str, *, assumed: bool = False) -> MonthlyUse:
    """Hours over as many sessions as are usual, none of them longer than a day."""
    usual = assumption_number("sessions_per_week") * _PER_MONTH["week"]
    sessions = 1.0 if hours >= assumption_number("always") * HOURS_IN_MONTH else usual
    return MonthlyUse(
        hours_per_month=hours, sessions_per_month=sessions, text=text, assumed=assumed
    )


# --- purposes, and the bundled profile that stands for each: `data/purposes.csv` ---


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
    wording = " ".join(text.lower().replace("-", " ").split())
    by_name = {
        name.replace("-", " "): purpose
        for purpose in purposes()
        for name in (purpose.name, *purpose.also)
    }
    if wording not in by_name:
        names = ", ".join(purpose.name for purpose in purposes())
        raise NotKnown("purpose", text, by_name, fix=f"There are: {names}.")
    return by_name[wording]


# --- the request ---

SLACK = 1.05
# Assumes: a session may run a twentieth into the next one; 24/7 leaves no room for set-up else.


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRequest:
    """What advice is asked on. Money in dollars; `currency` is how it is shown."""

    profile: Profile
    use: MonthlyUse
    months: float
    today: str
    prices: PriceBook | None = None
    """None: the bundled ones."""
    imported: ImportedPrices = NOTHING_IMPORTED
    """Prices of cards besides the bundled ones."""
    purpose: Purpose | None = None
    workload: Workload | None = None
    """The user's own, whose step, data and terms count instead of a purpose's."""
    budget_usd: float | None = None
    own_gpu: str | None = None
    """The card in the machine one has: then only a card is bought, not a desktop."""
    hours_on: str | None = None
    """The GPU the hours of use are meant on; None: see `machines.reference_of`."""
    country: str = "us"
    gpus: int = 1
    used: bool = True
    amd: bool = True
    """Whether to look at AMD's, whose ranges are wide: none was ever measured."""
    regions: tuple[str, ...] = ()
    currency: str = "USD"
    usd_per_unit: float = 1.0
    rate_as_of: str = ""

    @property
    def years(self) -> float:
        """How long this goes on."""
        return self.months / 12

    @property
    def monthly_usd(self) -> float | None:
        """What the purse allows for renting, a month."""
        return None if self.budget_usd is None else self.budget_usd / self.months

    @property
    def notebook_will_do(self) -> bool:
        """Whether a notebook in the browser is enough for the purpose."""
        return self.purpose is not None and self.purpose.notebook_will_do


def workload_for(request: AdviceRequest, samples_per_month: float) -> Workload:
    """A month of the work: sessions that train on so many samples together.

    A slower machine may take longer for it than the hours said, but not too long, and a session
    has to end before the next one begins. The purse is judged later: a purchase is paid at once
    and rent by the month.
    """
    use, own = request.use, request.workload
    base = own or Workload(name=_name(request), step=Step(), length=Length())
    return replace(
        base,
        length=Length(samples=samples_per_month / use.sessions_per_month),
        usage=replace(
            base.usage,
            sessions_per_month=use.sessions_per_month,
            hours_per_day=None,
            machines_tried=(),
            horizon_s=request.months * MONTH_S,
        ),
        # Assumes: a session that takes an hour more now and then does no harm.
        limits=Limits(
            deadline_s=_longest_s(use), gpu_memory_bytes=_memory_bytes(request), confidence=0.5
        ),
        prefer=_preferences(base.prefer),
        consider=_selection(request, base.consider),
        currency=request.currency,
        usd_per_unit=request.usd_per_unit,
        rate_as_of=request.rate_as_of,
    )


def _memory_bytes(request: AdviceRequest) -> float | None:
    """What a GPU has to have at least: as the file says, or as is advised for the purpose."""
    if request.workload is not None:
        return request.workload.limits.gpu_memory_bytes
    return request.purpose.memory_least_bytes if request.purpose else None


def _preferences(preferences: Preferences) -> Preferences:
    """What the file prefers; notebooks are looked at where it does not say what access."""
    if any(name == "access" for name, _ in preferences.qualities):
        return preferences
    return replace(preferences, qualities=(*preferences.qualities, ("access", "notebook")))


def _selection(request: AdviceRequest, selection: Selection) -> Selection:
    """What the workload file considers, and no more GPUs than asked for."""
    return replace(selection, max_gpus=request.gpus, regions=request.regions or selection.regions)


def _longest_s(use: MonthlyUse) -> float:
    """What a session may take."""
    session_s = use.hours_per_month / use.sessions_per_month * HOUR_S
    return min(assumption_number("patience") * session_s, SLACK * MONTH_S / use.sessions_per_month)


def _name(request: AdviceRequest) -> str:
    return request.purpose.name if request.purpose else request.profile.name
