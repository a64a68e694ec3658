"""The offers a plan looks at: bundled, quoted, and machines of one's own; less what is left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from outlay.offers.catalog import Wanted, bundled_offers, gpu_filter, known_regions, search
from outlay.offers.offer import Offer
from outlay.offers.sources.quoted import quoted_offers
from outlay.offers.sources.subscriptions import free_offers
from outlay.offers.sources.workstation import workstation_offers
from outlay.offers.terms import known_provider
from outlay.workload import Selection, Workload


def candidates(workload: Workload, today: str = "") -> list[Offer]:
    """The offers to consider: bundled, quoted, and machines of one's own; less what is left out."""
    own = [
        replace(offer, as_of=offer.as_of or today)
        for offer in (
            *quoted_offers(workload.quotes),
            *workstation_offers(workload.workstations),
        )
    ]
    consider, leave_out = workload.consider, workload.leave_out
    notebooks = ("access", "notebook") in workload.prefer.qualities
    everything = (*bundled_offers(today), *(free_offers() if notebooks else ()))
    selected = _selected(everything, consider)  # also checks the names
    bundled = selected if consider.bundled else []
    left_out = {id(offer) for offer in _named(bundled, leave_out)} if _any(leave_out) else set()
    kept = [
        offer
        for offer in bundled
        if id(offer) not in left_out
        and (consider.max_gpus is None or offer.gpus <= consider.max_gpus)
    ]
    return own + kept


def _selected(offers: Iterable[Offer], selection: Selection) -> list[Offer]:
    """The offers that satisfy every restriction of a selection."""
    everything = list(offers)
    found = search(
        everything,
        Wanted(
            gpus=tuple(gpu_filter(text) for text in selection.gpus),
            providers=selection.providers,
            regions=selection.regions,
        ),
    )
    return [offer for offer in found if _instance_matches(offer, selection)]


def _named(offers: Iterable[Offer], selection: Selection) -> list[Offer]:
    """The offers that any restriction of a selection names."""
    everything = list(offers)
    filters = [gpu_filter(text) for text in selection.gpus]
    providers = {known_provider(name) for name in selection.providers}
    regions = known_regions(selection.regions, bundled_offers())
    return [
        offer
        for offer in everything
        if any(one.accepts(offer) for one in filters)
        or offer.provider in providers
        or offer.region in regions
        or (selection.instances and _instance_matches(offer, selection))
    ]


def _any(selection: Selection) -> bool:
    return bool(selection.gpus or selection.providers or selection.regions or selection.instances)


def _instance_matches(offer: Offer, selection: Selection) -> bool:
    patterns = selection.instances
    return not patterns or any(fnmatchcase(offer.instance, pattern) for pattern in patterns)
