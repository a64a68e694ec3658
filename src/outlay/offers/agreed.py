"""What one user pays each provider: the table's terms with the workload file's own on top."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import get_args

from outlay.errors import InputError
from outlay.offers.terms import StorageKind, Terms, known_provider, terms_of
from outlay.units import GB
from outlay.workload import FREE_SOURCES, WITH_THE_RUN, TermsOverride, Workload


def terms_for(workload: Workload) -> Callable[[str], Terms]:
    """Each provider's terms as they are for this workload."""
    overrides = _overrides(workload)

    @cache
    def terms(provider: str) -> Terms:
        return _overridden(terms_of(provider), overrides.get(provider))

    return terms


def with_known_places(workload: Workload) -> Workload:
    """The workload with every place something lies at checked and spelled as in the tables."""
    quoted = _quoted(workload)

    def place(name: str) -> str:
        return name if name in (WITH_THE_RUN, *FREE_SOURCES) else known_provider(name, quoted)

    data = replace(workload.data, at=place(workload.data.at), kept_at=place(workload.data.kept_at))
    stored = tuple(
        replace(item, at=place(item.at), also_at=tuple(map(place, item.also_at)))
        for item in workload.stored
    )
    return replace(workload, data=data, stored=stored)


def _overrides(workload: Workload) -> dict[str, TermsOverride]:
    found: dict[str, TermsOverride] = {}
    for one in workload.terms:
        provider = known_provider(one.provider, _quoted(workload))
        if provider in found:
            raise InputError(
                f"Two [[provider]] tables are of {provider!r}.", fix="Put their keys into one."
            )
        found[provider] = one
    return found


def _quoted(workload: Workload) -> tuple[str, ...]:
    return tuple(quote.provider for quote in workload.quotes)


def _overridden(terms: Terms, override: TermsOverride | None) -> Terms:
    """A provider's terms with what the user pays instead."""
    if override is None:
        return terms
    own: dict[str, float | None] = {
        "billing_step": override.billing_step_s,
        "billing_minimum": override.billing_minimum_s,
        "volume_storage": _times(override.volume_usd_per_gb_month, 1 / GB),
        "object_storage": _times(override.object_usd_per_gb_month, 1 / GB),
        "registry_storage": _times(override.registry_usd_per_gb_month, 1 / GB),
        "egress": _times(override.egress_usd_per_gb, 1 / GB),
        "egress_free": _times(override.egress_free_gb_per_month, GB),
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
        block_usd=_or(override.block_usd, terms.block_usd),
        fee_usd_per_month=override.fee_usd_per_month,
        discount_fraction=override.discount_fraction,
        credit_usd=override.credit_usd,
        facts={name: fact for name, fact in terms.facts.items() if own.get(name) is None},
    )


def _or(first: float | None, second: float | None) -> float | None:
    return second if first is None else first


def _times(amount: float | None, unit: float) -> float | None:
    return None if amount is None else amount * unit
