"""The offers a user wrote into the workload file, checked and in the shape of all others."""

from __future__ import annotations

from collections.abc import Iterable

from outlay.errors import InputError
from outlay.gpu_names import find_gpu
from outlay.offers.offer import Commitment, Offer, refuse_twins
from outlay.offers.terms import as_known_provider
from outlay.units import DAY_S
from outlay.workload import Quote

SOURCE = "the workload file"


def quoted_offers(quotes: Iterable[Quote]) -> tuple[Offer, ...]:
    """The quotes as offers. Two with the same provider, instance and region are an error."""
    offers = tuple(_offer(quote) for quote in quotes)
    refuse_twins(offers, "[[offer]]", "Give each its own `instance`, or remove one.")
    return offers


def _offer(quote: Quote) -> Offer:
    provider = as_known_provider(quote.provider)
    return Offer(
        provider=provider,
        instance=quote.instance,
        gpu=find_gpu(quote.gpu, provider).meaning,
        gpus=quote.gpus,
        region=quote.region,
        price_usd_per_hour=quote.price_usd_per_hour,
        spot_usd_per_hour=quote.spot_usd_per_hour,
        spot_high_usd_per_hour=quote.spot_usd_per_hour,
        vcpus=quote.vcpus,
        ram_bytes=quote.ram_bytes,
        local_disk_bytes=quote.local_disk_bytes,
        network_bytes_per_s=quote.network_bytes_per_s,
        disk=quote.disk,
        disk_bytes_per_s=quote.disk_bytes_per_s,
        setup_s=quote.setup_s,
        interruptions_per_month=quote.interruptions_per_month,
        commitment=_commitment(quote),
        as_of=quote.as_of,
        source=SOURCE + (f": {quote.note}" if quote.note else ""),
        quoted=True,
    )


def _commitment(quote: Quote) -> Commitment | None:
    if quote.term_s is None:
        return None
    if quote.price_usd_per_hour is None:
        raise InputError(
            f"The offer {quote.instance!r} has a term but no price.",
            fix="Give its price_per_hour, what is paid upfront spread over the term.",
        )
    return Commitment(
        name=f"{quote.term_s / DAY_S:,.0f} days",
        term_s=quote.term_s,
        price_usd_per_hour=quote.price_usd_per_hour,
        source=SOURCE,
    )
