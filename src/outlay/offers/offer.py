"""An offer: a machine, a place, a price, the day it was seen, and what is doubtful about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Self

from outlay.errors import InputError
from outlay.uncertainty import Estimate, Uncertain, likely_of

Tenancy = Literal["on-demand", "spot", "reserved", "owned"]
BEFORE = "before"
"""The source of an `OtherPrice` that is an offer's own last good price."""
CHEAPEST_REGION = "cheapest region"
"""Region of an offer of the past: the one where it cost least, which the history does not name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """What may be wrong with an offer: a word of `data/offer_doubts.csv`."""

    word: str
    kind: Literal["note", "weighed", "caution", "no price"]
    """`note`: what is said stands. `weighed`: it may be off, which the price's range takes in.
    `caution`: it may be off, and nothing says how far. `no price`: nobody pays it."""
    about: Literal["price", "spot", "machine", "offer"]
    """The on-demand price, the spot price, the machine, or the whole offer."""

    def concerns(self, tenancy: Tenancy) -> bool:
        """Whether it touches what one pays in a tenancy."""
        return self.about == "offer" or self.about == ("spot" if tenancy == "spot" else "price")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedMachine:
    """What running one's own machine costs, or buying it. Power is of the whole machine."""

    electricity_usd_per_kwh: Uncertain
    host_w: float
    """The machine without its GPUs, under load."""
    purchase_usd: Uncertain | None = None
    """None for a machine one already has: then only running it is charged."""
    resale_usd: Uncertain = 0.0
    resale_fraction: Uncertain | None = None
    """Of the purchase; takes the place of `resale_usd`."""
    lifetime_use_s: float | None = None
    """Hours it will be used in its life, over which purchase less resale is spread."""
    life_s: float | None = None
    """From purchase to resale; None: used all the while."""
    idle_w: float | None = None
    """The whole machine while it is on and nothing runs; None: it is switched off."""
    maintenance_usd_per_year: float = 0.0
    interest_per_year: float = 0.0
    wear_usd_per_hour: float = 0.0
    pue: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitment:
    """A machine taken for a term and paid for, used or not: a row of `data/commitments.csv`."""

    name: str
    """`1 year, no upfront`."""
    term_s: float
    price_usd_per_hour: Uncertain
    """Of the whole machine, what is paid upfront spread over the term."""
    upfront_fraction: float = 0.0
    """Of the price of the whole term, what is paid on its first day."""
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneQuote:
    """The spot price of a type in one zone, and its past: a row of `data/spot_history_DATE.csv`."""

    zone: str
    """Empty where the provider has none, or charges the same in all."""
    usd_per_hour: float | None
    """Of that zone; None where only the region's is known."""
    share: float | None
    """Of the on-demand price."""
    weeks: int
    """In which its price was seen, the quote's own included."""
    seen_first: str | None
    """The day of the first of them, or a day by which it had been seen."""
    mean_share: float | None
    """What it was of on-demand in those weeks: the geometric mean."""
    weekly_change: float | None
    """How much the logarithm of its price changes in a week, root mean square."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualShare:
    """What a type's spot price is in all its zones, as shares of on-demand."""

    low: float
    middle: float
    high: float
    zones: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRisk:
    """Interruptions a month to expect on one machine, with where the figure comes from."""

    interruptions_per_month: Estimate
    source: str
    is_assumption: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostQuality:
    """What a marketplace says of a single host; None where it does not say."""

    disk_bytes_per_s: float | None = None
    """Read from its disk in one piece."""
    download_bytes_per_s: float | None = None
    """From the internet to it."""
    upload_bytes_per_s: float | None = None
    reliability_fraction: float | None = None
    """Of the time it was there, as the marketplace reckons it."""
    verified: bool | None = None
    """Whether the marketplace has looked at it itself."""
    disk_usd_per_byte_month: float | None = None
    """What it charges for its disk, running or stopped; not in the price of an hour."""
    download_usd_per_byte: float | None = None
    """What it charges for what comes to it from the internet ..."""
    upload_usd_per_byte: float | None = None
    """... and for what leaves it."""
    available_s: float | None = None
    """How long it can be rented at most, from when it was seen."""
    dlperf: float | None = None
    """Vast's own score of its speed: shown, and in no prediction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPrice:
    """What another source says that an offer costs, or what it cost before."""

    source: str
    """`gpuhunt`; `before` for the last good price of the same source."""
    as_of: str
    price_usd_per_hour: float | None
    spot_usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreedDiscount:
    """What a price list of one's own says comes off a provider's prices, by how one pays."""

    on_demand_fraction: float = 0.0
    spot_fraction: float = 0.0
    reserved_fraction: float = 0.0
    words: str
    """For the source of a price: `15 % off as agreed (your price list edp)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One machine type of one provider in one region, on demand and as spot where sold so."""

    provider: str
    instance: str
    gpu: str
    """As the facts table names it, or a family (`A100 80GB`) where the form is not stated."""
    gpus: int
    region: str
    """`any` where the provider charges the same everywhere; `CHEAPEST_REGION` where the price is
    the lowest of all regions, and nobody noted whose."""
    price_usd_per_hour: float | None
    spot_usd_per_hour: float | None = None
    spot_high_usd_per_hour: float | None = None
    """The dearest zone of the region; the spot price itself is the cheapest zone's."""
    as_of: str
    source: str
    doubts: tuple[Doubt, ...] = ()
    spot_as_of: str | None = None
    """The day of the spot price, where it is older than the other."""
    gpu_share: float = 1.0
    gpu_memory_bytes: float | None = None
    vcpus: float | None = None
    ram_bytes: float | None = None
    local_disk_bytes: float | None = None
    network_bytes_per_s: float | None = None
    """Between machines, as the user stated it; of bundled offers see `offers.instances`."""
    disk: str | None = None
    """What the user said of its disk: `nvme`, `sata`, `hdd`, `volume` or `network`."""
    disk_bytes_per_s: Uncertain | None = None
    setup_s: Uncertain | None = None
    """Of a session on it, where the user stated one."""
    setup_cost_usd: Uncertain = 0.0
    """Charged once for each machine, as the user stated it."""
    interruptions_per_month: Uncertain | None = None
    """As the user stated it; of bundled offers see `offers.spot`."""
    zones: int = 1
    zone: ZoneQuote | None = None
    """The zone that the spot price is of, where a plan has chosen one."""
    usual_share: UsualShare | None = None
    """What spot usually is of on-demand, in the market that the zone was chosen in."""
    spot_risk: SpotRisk | None = None
    """How often it is taken away, where its price book has newer figures than the bundled ones."""
    host: HostQuality | None = None
    """Of a single host of a marketplace."""
    other_gpus: tuple[str, ...] = ()
    """GPUs of another kind in the same machine; `gpus` counts them, too."""
    power_limit_w: float | None = None
    """Of each GPU, where it is held to less than it was shipped with."""
    owned: OwnedMachine | None = None
    commitment: Commitment | None = None
    """Where it is had for a term; then the prices above are not the ones paid."""
    quoted: bool = False
    """Whether the user wrote it into the workload file."""
    other_prices: tuple[OtherPrice, ...] = ()
    """What it costs by other sources, to be shown beside its own price."""
    in_own_list: bool = False
    """Whether it is of a price list of one's own: what one was promised, no list price."""
    discount: AgreedDiscount | None = None
    """What is off its prices already; `at_list_price` has them without it."""

    @property
    def is_promised(self) -> bool:
        """Whether its price is what the user was promised, wherever that is written."""
        return self.quoted or self.in_own_list

    def less(self, discount: AgreedDiscount) -> Self:
        """The offer with a discount off its list prices."""
        on_demand, spot = 1 - discount.on_demand_fraction, 1 - discount.spot_fraction
        return replace(
            self,
            price_usd_per_hour=_times(self.price_usd_per_hour, on_demand),
            spot_usd_per_hour=_times(self.spot_usd_per_hour, spot),
            spot_high_usd_per_hour=_times(self.spot_high_usd_per_hour, spot),
            source=f"{self.source}; {discount.words}",
            discount=discount,
        )

    def at_list_price(self) -> Self:
        """The offer without the discount that is off its prices."""
        if self.discount is None:
            return self
        on_demand, spot = 1 - self.discount.on_demand_fraction, 1 - self.discount.spot_fraction
        return replace(
            self,
            price_usd_per_hour=_times(self.price_usd_per_hour, 1 / on_demand),
            spot_usd_per_hour=_times(self.spot_usd_per_hour, 1 / spot),
            spot_high_usd_per_hour=_times(self.spot_high_usd_per_hour, 1 / spot),
            source=self.source.removesuffix(f"; {self.discount.words}"),
            discount=None,
        )

    @property
    def identity(self) -> tuple[str, str, str]:
        """What makes an offer one and the same: provider, instance and region."""
        return (self.provider, self.instance, self.region)

    def seen_on(self, tenancy: Tenancy) -> str:
        """The day of the price in a tenancy."""
        return (self.spot_as_of if tenancy == "spot" else None) or self.as_of

    def cautions(self, tenancy: Tenancy) -> tuple[str, ...]:
        """The doubts that the price in a tenancy may be off."""
        return tuple(
            doubt.word
            for doubt in self.doubts
            if doubt.kind == "caution" and doubt.concerns(tenancy)
        )

    def price_doubts(self, tenancy: Tenancy) -> tuple[str, ...]:
        """All that is doubtful about the price in a tenancy, what its range takes in included."""
        return tuple(
            doubt.word
            for doubt in self.doubts
            if doubt.kind in ("weighed", "caution") and doubt.concerns(tenancy)
        )

    def not_for_sale(self, tenancy: Tenancy) -> tuple[str, ...]:
        """The doubts that say nobody gets it at its price in a tenancy."""
        return tuple(
            doubt.word
            for doubt in self.doubts
            if doubt.kind == "no price" and doubt.concerns(tenancy)
        )

    def is_trusted(self, tenancy: Tenancy) -> bool:
        """Whether a plan may choose it at its price in a tenancy."""
        return not self.cautions(tenancy) and not self.not_for_sale(tenancy)

    @property
    def has_disk_apart(self) -> bool:
        """Whether a disk comes with it that is not in its price."""
        return any(doubt.word == "local disk billed apart" for doubt in self.doubts)

    @property
    def tenancies(self) -> tuple[Tenancy, ...]:
        """How it can be had; an offer without a price is still listed on demand."""
        if self.owned is not None:
            return ("owned",)
        if self.commitment is not None:
            return ("reserved",)
        tenancies: list[Tenancy] = []
        if self.price_usd_per_hour is not None or self.spot_usd_per_hour is None:
            tenancies.append("on-demand")
        if self.spot_usd_per_hour is not None:
            tenancies.append("spot")
        return tuple(tenancies)

    def hourly_usd(self, tenancy: Tenancy) -> float | None:
        """The whole machine's price an hour in one tenancy, None where it is not known."""
        if self.commitment is not None:
            return likely_of(self.commitment.price_usd_per_hour)
        return self.spot_usd_per_hour if tenancy == "spot" else self.price_usd_per_hour


def _times(usd: float | None, factor: float) -> float | None:
    return None if usd is None else usd * factor


def refuse_duplicates(offers: Iterable[Offer], table: str, fix: str) -> None:
    """Raise where two offers a user wrote are one and the same."""
    identities: set[tuple[str, str, str]] = set()
    for offer in offers:
        if offer.identity in identities:
            raise InputError(
                f"Two {table} tables are {' / '.join(offer.identity)}.",
                why="Provider, instance and region together name an offer.",
                fix=fix,
            )
        identities.add(offer.identity)
