"""How much a machine would be used: hours and sessions a month, from what people say.

24/7, 2h/day, 4h/day 5 days/week, 20h/week, 60h/month, 15%, 4 sessions/month of 6h
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from outlay.advise.tables import taken_number
from outlay.errors import InputError
from outlay.units import DAY_S, HOUR_S, MONTH_S, WEEK_S, YEAR_S

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
class Use:
    """How much a machine is used in a month, and in how many sessions."""

    hours_per_month: float
    sessions_per_month: float
    said: str
    assumed: bool = False
    """Whether nobody said it."""

    @property
    def busy_fraction(self) -> float:
        """The share of all hours."""
        return self.hours_per_month / HOURS_IN_MONTH

    @property
    def is_always(self) -> bool:
        """Whether that counts as 24/7."""
        return self.busy_fraction >= taken_number("always")

    @property
    def hours_per_day(self) -> float:
        """Over all days."""
        return self.hours_per_month / _PER_MONTH["day"]


def use_of(text: str | None) -> Use:
    """The use a text describes; without one, what is usual on a desktop of one's own."""
    if text is None:
        share = taken_number("hours_not_said")
        return _spread(share * HOURS_IN_MONTH, f"{share:.0%} of all hours", assumed=True)
    said = " ".join(text.lower().split())
    use = _use(said)
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


def _use(said: str) -> Use | None:
    if said in _ALWAYS:
        return Use(hours_per_month=HOURS_IN_MONTH, sessions_per_month=1.0, said=said)
    if match := _SESSIONS.fullmatch(said):
        times = float(match["times"]) * _PER_MONTH[match["each"]]
        hours = times * float(match["hours"])
        return Use(hours_per_month=hours, sessions_per_month=times, said=said)
    if match := _SHARE.fullmatch(said):
        return _spread(float(match["share"]) / 100 * HOURS_IN_MONTH, said)
    if match := _OF_HOURS.fullmatch(said):
        return _of_hours(match, said)
    return None


def _of_hours(match: re.Match[str], said: str) -> Use | None:
    hours, each = float(match["hours"]), match["each"]
    if each != "day":
        return None if match["days"] else _spread(hours * _PER_MONTH[each], said)
    days = _PER_MONTH["day"] * (float(match["days"]) / 7 if match["days"] else 1.0)
    if hours > 24 or days > _PER_MONTH["day"]:
        return Use(hours_per_month=float("inf"), sessions_per_month=days, said=said)
    return Use(hours_per_month=hours * days, sessions_per_month=days, said=said)


def _spread(hours: float, said: str, *, assumed: bool = False) -> Use:
    """Hours over as many sessions as are usual, none of them longer than a day."""
    usual = taken_number("sessions_per_week") * _PER_MONTH["week"]
    sessions = 1.0 if hours >= taken_number("always") * HOURS_IN_MONTH else usual
    return Use(hours_per_month=hours, sessions_per_month=sessions, said=said, assumed=assumed)
