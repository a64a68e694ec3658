"""A provider's terms: what it charges besides the hour, in what steps, and what it is like.

`terms_of` has them from `data/providers.csv` and `data/provider_qualities.csv`, `terms_for` with
what the workload file says that the user pays instead, `terms_on` with what a single host of a
marketplace charges; `missing_quality` and `remarks` put into
words what a provider is like besides its prices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from statistics import median
from typing import Literal, get_args

from outlay.caching import ById
from outlay.errors import InputError, NotKnown
from outlay.facts import Fact, fact_of, rows_of
from outlay.offers.offer import Offer
from outlay.units import GB, GIB, HOUR_S
from outlay.workload.workload import WITH_THE_RUN, TermsOverride, Workload

StorageKind = Literal["volume", "object", "registry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A provider's billing step, storage and transfer prices. None is unknown, never free."""

    provider: str
    name: str
    kind: str = "cloud"
    billing_step_s: float | None = None
    billing_minimum_s: float | None = None
    storage_usd_per_byte_month: Mapping[StorageKind, float | None] = field(default_factory=dict)
    egress_usd_per_byte: float | None = None
    egress_free_bytes_per_month: float | None = None
    between_regions_usd_per_byte: float | None = None
    """What another of its regions costs, as the user says; else see `offers.places`."""
    copying_machine_usd_per_hour: float | None = None
    """A small machine without GPU, that fills a volume."""
    stopped_disk_usd_per_byte_month: float | None = None
    running_disk_usd_per_byte_month: float | None = None
    """Of a machine's own disk while it runs; None: as a volume."""
    local_disk_usd_per_byte_month: float | None = None
    """Of a disk that comes with a machine and is not in its price."""
    local_disk_spot_fraction: float = 1.0
    """Of that, on a spot machine."""
    spot_interruptions_per_month: float | None = None
    spot_notice_s: float | None = None
    provisioning_s: float | None = None
    longest_session_s: float | None = None
    weekly_s: float | None = None
    """Machine time it gives a week, where that is limited."""
    block_usd: float | None = None
    """What is sold at a time where machine time is bought in blocks beforehand."""
    tax_included: bool | None = None
    fee_usd_per_month: float = 0.0
    """What is paid each month besides, as the user says: a subscription, an address."""
    discount_fraction: float = 0.0
    """Off machine time, as agreed."""
    credit_usd: float = 0.0
    """Free money the user has there."""
    facts: Mapping[str, Fact] = field(default_factory=dict)

    def quality(self, name: str) -> str | None:
        """What is known of it besides money (`access`, `quota` ...), None where nothing is."""
        return _text(self.facts, name)

    def source_of(self, parameter: str) -> str:
        """Where a figure comes from, with its date."""
        fact = self.facts.get(parameter)
        return f"{fact.source}, {fact.as_of}" if fact else "the workload file"


@cache
def all_terms() -> Mapping[str, Terms]:
    """The terms of every provider in the table."""
    facts: dict[str, dict[str, Fact]] = {}
    for row in (*rows_of("providers.csv"), *rows_of("provider_qualities.csv")):
        facts.setdefault(row["provider"], {})[row["parameter"]] = fact_of(row)
    return {provider: _terms(provider, by_name) for provider, by_name in facts.items()}


@cache
def usual_usd_per_byte_month(kind: StorageKind) -> float | None:
    """What storage of a kind usually costs: the middle of the providers that say."""
    return _median([terms.storage_usd_per_byte_month.get(kind) for terms in all_terms().values()])


@cache
def usual_egress_usd_per_byte() -> float | None:
    """What transfer out of a provider usually costs: the middle of those that say."""
    return _median([terms.egress_usd_per_byte for terms in all_terms().values()])


def _median(prices: Iterable[float | None]) -> float | None:
    """Of the prices that are known; None where none is."""
    known = [price for price in prices if price is not None]
    return median(known) if known else None


def terms_of(provider: str) -> Terms:
    """One provider's terms; all unknown for one that is in no table, such as a quote's."""
    return all_terms().get(provider, Terms(provider=provider, name=provider))


def known_provider(name: str, others: tuple[str, ...] = ()) -> str:
    """The provider meant by a name in any case, or an error with the nearest ones."""
    by_name = {provider.lower(): provider for provider in (*all_terms(), *others)}
    by_name |= {terms.name.lower(): provider for provider, terms in all_terms().items()}
    if name.lower() not in by_name:
        raise NotKnown("provider", name, sorted(by_name.values()))
    return by_name[name.lower()]


@cache
def as_known_provider(name: str) -> str:
    """The table's spelling of a provider's name, or the name itself where nobody knows it."""
    try:
        return known_provider(name)
    except NotKnown:
        return name


def _terms(provider: str, facts: Mapping[str, Fact]) -> Terms:
    return Terms(
        provider=provider,
        name=_text(facts, "name") or provider,
        kind=_text(facts, "kind") or "cloud",
        billing_step_s=_number(facts, "billing_step"),
        billing_minimum_s=_number(facts, "billing_minimum"),
        storage_usd_per_byte_month={
            "volume": _per_byte(facts, "volume_storage"),
            "object": _per_byte(facts, "object_storage"),
            "registry": _per_byte(facts, "registry_storage"),
        },
        egress_usd_per_byte=_per_byte(facts, "egress"),
        egress_free_bytes_per_month=_scaled(_number(facts, "egress_free"), GB),
        copying_machine_usd_per_hour=_number(facts, "copying_machine"),
        stopped_disk_usd_per_byte_month=_per_byte(facts, "stopped_disk_storage"),
        running_disk_usd_per_byte_month=_per_byte(facts, "running_disk_storage"),
        local_disk_usd_per_byte_month=_per_byte(facts, "local_disk_storage"),
        local_disk_spot_fraction=_number(facts, "local_disk_spot_share") or 1.0,
        spot_interruptions_per_month=_number(facts, "spot_interruption_rate"),
        spot_notice_s=_number(facts, "spot_notice"),
        provisioning_s=_number(facts, "provisioning_time"),
        longest_session_s=_number(facts, "max_session"),
        weekly_s=_weekly_s(facts),
        block_usd=_number(facts, "block"),
        tax_included={"yes": True, "no": False}.get(_text(facts, "tax_included") or ""),
        facts=facts,
    )


def _weekly_s(facts: Mapping[str, Fact]) -> float | None:
    """Free hours a week or a day, where a provider gives no others."""
    fact = facts.get("free_hours")
    if fact is None or fact.unit not in ("h/week", "h/day"):
        return None
    return (fact.number or 0.0) * HOUR_S * (7 if fact.unit == "h/day" else 1)


def _text(facts: Mapping[str, Fact], parameter: str) -> str | None:
    return facts[parameter].text if parameter in facts else None


def _number(facts: Mapping[str, Fact], parameter: str) -> float | None:
    return facts[parameter].number if parameter in facts else None


def _per_byte(facts: Mapping[str, Fact], parameter: str) -> float | None:
    """A price per GB or GiB as a price per byte."""
    value = _number(facts, parameter)
    if value is None:
        return None
    return value / (GIB if "GiB" in facts[parameter].unit else GB)


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit


# --- what one user pays: the table's terms with the workload file's own on top ---


def terms_for(workload: Workload) -> Callable[[str], Terms]:
    """Each provider's terms as they are for this workload."""
    overrides = _overrides(workload)

    @cache
    def terms(provider: str) -> Terms:
        return _overridden(terms_of(provider), overrides.get(provider))

    return terms


def _overrides(workload: Workload) -> dict[str, TermsOverride]:
    overrides: dict[str, TermsOverride] = {}
    for override in workload.terms:
        provider = known_provider(override.provider, quoted_providers(workload))
        if provider in overrides:
            raise InputError(
                f"Two [[provider]] tables are of {provider!r}.", fix="Put their keys into one."
            )
        overrides[provider] = override
    return overrides


def quoted_providers(workload: Workload) -> tuple[str, ...]:
    """The providers of the user's own quotes."""
    return tuple(quote.provider for quote in workload.quotes)


def _overridden(terms: Terms, override: TermsOverride | None) -> Terms:
    """A provider's terms with what the user pays instead."""
    if override is None:
        return terms
    own: dict[str, float | None] = {
        "billing_step": override.billing_step_s,
        "billing_minimum": override.billing_minimum_s,
        "volume_storage": _scaled(override.volume_usd_per_gb_month, 1 / GB),
        "object_storage": _scaled(override.object_usd_per_gb_month, 1 / GB),
        "registry_storage": _scaled(override.registry_usd_per_gb_month, 1 / GB),
        "egress": _scaled(override.egress_usd_per_gb, 1 / GB),
        "egress_free": _scaled(override.egress_free_gb_per_month, GB),
        "copying_machine": override.copying_machine_usd_per_hour,
    }
    return replace(
        terms,
        billing_step_s=_or(own["billing_step"], terms.billing_step_s),
        billing_minimum_s=_or(own["billing_minimum"], terms.billing_minimum_s),
        storage_usd_per_byte_month={
            kind: _or(own[f"{kind}_storage"], terms.storage_usd_per_byte_month.get(kind))
            for kind in get_args(StorageKind)
        },
        egress_usd_per_byte=_or(own["egress"], terms.egress_usd_per_byte),
        egress_free_bytes_per_month=_or(own["egress_free"], terms.egress_free_bytes_per_month),
        between_regions_usd_per_byte=_scaled(override.between_regions_usd_per_gb, 1 / GB),
        copying_machine_usd_per_hour=_or(
            own["copying_machine"], terms.copying_machine_usd_per_hour
        ),
        block_usd=_or(override.block_usd, terms.block_usd),
        fee_usd_per_month=override.fee_usd_per_month,
        discount_fraction=override.discount_fraction,
        credit_usd=override.credit_usd,
        facts={name: fact for name, fact in terms.facts.items() if own.get(name) is None},
    )


def _or(first: float | None, second: float | None) -> float | None:
    return second if first is None else first


def terms_on(offer: Offer, terms: Terms) -> Terms:
    """A provider's terms on an offer: a single host has prices of its own for disk and traffic,
    where the user does not say what they are."""
    host = offer.host
    if host is None:
        return terms
    disk_usd, upload_usd = host.disk_usd_per_byte_month, host.upload_usd_per_byte
    return _terms_with(ById(terms), disk_usd, upload_usd, offer.source, offer.as_of)


@lru_cache(maxsize=1024)
def _terms_with(
    known_terms: ById[Terms],
    disk_usd: float | None,
    upload_usd: float | None,
    source: str,
    as_of: str,
) -> Terms:
    """Terms with a host's price of its disk, running or stopped, and of what leaves it."""
    terms = known_terms.value
    own = {
        "volume_storage": (terms.storage_usd_per_byte_month.get("volume"), disk_usd),
        "stopped_disk_storage": (terms.stopped_disk_usd_per_byte_month, disk_usd),
        "egress": (terms.egress_usd_per_byte, upload_usd),
    }
    fact = Fact(text=None, unit="", source=source, as_of=as_of)
    said = {name: fact for name, (known, its) in own.items() if known is None and its is not None}
    return replace(
        terms,
        storage_usd_per_byte_month={
            **terms.storage_usd_per_byte_month,
            "volume": _or(*own["volume_storage"]),
        },
        stopped_disk_usd_per_byte_month=_or(*own["stopped_disk_storage"]),
        egress_usd_per_byte=_or(*own["egress"]),
        facts={**terms.facts, **said},
    )


# --- what a provider is like besides its prices ---


_ACCESS = ("notebook", "container", "full machine")
"""What one gets, least first."""


def missing_quality(terms: Terms, qualities: Mapping[str, str]) -> str | None:
    """The first quality asked for that a provider is known not to have, in words.

    What is not known of a provider is no reason against it. Notebooks have to be asked for.
    """
    access = terms.quality("access")
    least = qualities.get("access", "container")
    if access in _ACCESS and _ACCESS.index(access) < _ACCESS.index(least):
        hint = "" if "access" in qualities else ' (prefer.access = "notebook" takes them in)'
        return f"{terms.name} gives a {access} only{hint}"
    for name, value in qualities.items():
        actual = terms.quality(name)
        if name != "access" and actual is not None and actual != value:
            return f"{terms.name}: {name.replace('_', ' ')} is {actual}, not {value}"
    return None


def has_network_volumes(terms: Terms, instance: str) -> bool:
    """Whether a network volume can be joined to a machine, as far as is known."""
    without = terms.quality("no_network_volume")
    return without is None or not fnmatchcase(instance, without)


def kept_on_volumes(workload: Workload, provider: str) -> list[str]:
    """The names of what the user keeps on volumes of the provider that the run is at."""
    data = workload.data
    kept = [(item.name, item.kind, item.at) for item in workload.stored]
    if data.size_bytes is not None:
        kept.append(("dataset", data.storage, data.kept_at))
    places = (WITH_THE_RUN, provider)
    return [name for name, kind, at in kept if kind == "volume" and at.split(":")[0] in places]


def remarks(terms: Terms) -> list[str]:
    """What one should know of a provider before choosing it."""
    notes = []
    if terms.quality("access") == "notebook":
        notes.append("a notebook in the browser, packages installed anew each time")
    if terms.quality("quota") == "apply":
        notes.append("GPU quota must be applied for before first use")
    if terms.quality("stops_itself") == "no":
        notes.append("runs and costs until it is stopped by hand")
    if terms.quality("stop_keeps_disk") == "no":
        notes.append("cannot be paused: what is not on its filesystem is lost at the end")
    if terms.quality("prepaid") == "yes":
        notes.append("is paid beforehand")
    if terms.quality("driver_image") == "no":
        notes.append("the driver is installed by hand")
    return notes
