"""What somebody asks advice on: purpose, purse, usage, and what they have."""

from __future__ import annotations

from dataclasses import dataclass, replace

from outlay.advise.purposes import Purpose
from outlay.advise.tables import taken_number
from outlay.advise.usage import Use
from outlay.trace.trace import Profile
from outlay.units import HOUR_S, MONTH_S
from outlay.workload import (
    Length,
    Limits,
    Preferences,
    Selection,
    Step,
    Workload,
)

SLACK = 1.05
# Assumes: a session may run a twentieth into the next one; 24/7 leaves no room for set-up else.


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question for advice. Money in dollars; `currency` is how it is shown."""

    profile: Profile
    use: Use
    months: float
    today: str
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
    amd: bool = False
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


def workload_for(asked: Asked, samples_per_month: float) -> Workload:
    """A month of the work: sessions that train on so many samples together.

    A slower machine may take longer for it than the hours said, but not too long, and a session
    has to end before the next one begins. The purse is judged later: a purchase is paid at once
    and rent by the month.
    """
    use, own = asked.use, asked.workload
    base = own or Workload(name=_name(asked), step=Step(), length=Length())
    return replace(
        base,
        length=Length(samples=samples_per_month / use.sessions_per_month),
        usage=replace(
            base.usage,
            sessions_per_month=use.sessions_per_month,
            hours_per_day=None,
            machines_tried=(),
            horizon_s=asked.months * MONTH_S,
        ),
        limits=Limits(deadline_s=_longest_s(use), gpu_memory_bytes=_memory_bytes(asked)),
        prefer=_preferences(base.prefer),
        consider=_selection(asked, base.consider),
        currency=asked.currency,
        usd_per_unit=asked.usd_per_unit,
        rate_as_of=asked.rate_as_of,
    )


def _memory_bytes(asked: Asked) -> float | None:
    """What a GPU has to have at least: as the file says, or as is advised for the purpose."""
    if asked.workload is not None:
        return asked.workload.limits.gpu_memory_bytes
    return asked.purpose.memory_least_bytes if asked.purpose else None


def _preferences(said: Preferences) -> Preferences:
    """What the file prefers; notebooks are looked at where it does not say what access."""
    if any(name == "access" for name, _ in said.qualities):
        return said
    return replace(said, qualities=(*said.qualities, ("access", "notebook")))


def _selection(asked: Asked, said: Selection) -> Selection:
    """What the workload file considers, and no more GPUs than asked for."""
    return replace(said, max_gpus=asked.gpus, regions=asked.regions or said.regions)


def _longest_s(use: Use) -> float:
    """What a session may take."""
    said_s = use.hours_per_month / use.sessions_per_month * HOUR_S
    return min(taken_number("patience") * said_s, SLACK * MONTH_S / use.sessions_per_month)


def _name(asked: Asked) -> str:
    return asked.purpose.name if asked.purpose else asked.profile.name
