"""A stand-in for the store of past prices: a list of changes, and the days of refreshes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from outlay.prices.price_store import PastPrice


def price(
    at: str,
    usd: float | None = None,
    spot: float | None = None,
    *,
    provider: str = "lambda",
    instance: str = "gpu_1x",
    region: str = "us-1",
    zone: str = "",
    gpu: str = "H100 SXM",
    gpus: float = 1.0,
    source: str = "skypilot",
    as_of: str = "",
    doubts: tuple[str, ...] = (),
) -> PastPrice:
    """A change of a price; `at` may be a day, then it is of its noon."""
    return PastPrice(
        at=at if "T" in at else f"{at}T12:00:00Z",
        source=source,
        provider=provider,
        instance=instance,
        region=region,
        zone=zone,
        gpu=gpu,
        gpus=gpus,
        price_usd_per_hour=usd,
        spot_usd_per_hour=spot,
        as_of=as_of,
        doubts=doubts,
    )


@dataclass
class KeptPrices:
    """What a `PriceStore` answers, of changes in any order."""

    changes: Sequence[PastPrice]
    confirmed: Iterable[tuple[str, str, str]] = ()
    """Source, provider and day of refreshes that changed nothing."""
    list_days: Mapping[str, str] = field(default_factory=dict)
    """The day of the list, by the day of a refresh, where that is another."""
    asked: list[tuple[str, ...]] = field(default_factory=list)
    """The GPUs of each question for changes."""

    def past(
        self, gpus: Sequence[str] = (), *, provider: str = "", since: str = "", until: str = ""
    ) -> Iterator[PastPrice]:
        self.asked.append(tuple(gpus))
        for one in sorted(self.changes, key=lambda one: one.at):
            if (
                (not gpus or one.gpu in gpus)
                and provider in ("", one.provider)
                and since <= one.at
                and (not until or one.at <= until)
            ):
                yield one

    def refresh_days(self, source: str, provider: str) -> list[str]:
        changed = {
            one.at[:10] for one in self.changes if (one.source, one.provider) == (source, provider)
        }
        same = {day for who, name, day in self.confirmed if (who, name) == (source, provider)}
        return sorted(changed | same)

    def confirmations(self, source: str, provider: str) -> dict[str, str]:
        lists = {
            one.at[:10]: one.as_of or one.at[:10]
            for one in self.changes
            if (one.source, one.provider) == (source, provider)
        }
        days = self.refresh_days(source, provider)
        return {day: self.list_days.get(day, lists.get(day, day)) for day in days}

    def prices_at(self, at: str) -> list[PastPrice]:
        standing: dict[tuple[str, ...], PastPrice] = {}
        for one in sorted(self.changes, key=lambda one: one.at):
            if one.at <= at:
                key = (one.source, one.provider, one.instance, one.region, one.zone)
                standing[key] = one
        return list(standing.values())
