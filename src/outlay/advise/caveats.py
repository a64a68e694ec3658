"""Caveats of an alternative: memory, software, space, quotas, interruptions, age of its price."""

from __future__ import annotations

from collections.abc import Iterator

from outlay.advise.alternatives import Alternative, many_gpus
from outlay.advise.cards import (
    CardForSale,
    assumption_fact,
    assumption_number,
    desktop_cards,
    fitting_profiles,
)
from outlay.advise.questions import faq_section
from outlay.advise.request import AdviceRequest
from outlay.hardware.gpus import Gpu
from outlay.offers.catalog import offer_gpus
from outlay.offers.terms import remarks, terms_of
from outlay.units import GIB

_TENSOR_FROM = 7.0
"""Compute capability of the first GPUs with tensor cores (Volta)."""
_WITHOUT_TENSOR = ("GTX 16",)
"""Of compute capability 7.5, but without them."""


def caveats_of(
    chosen: Alternative | None, buy: Alternative | None, request: AdviceRequest
) -> Iterator[str]:
    """What to know before taking the choice; of the best purchase where that is not it."""
    if chosen is not None:
        yield from _caveats_of_one(chosen, request)
    if buy is not None and buy is not chosen:
        for caveat in _caveats_of_one(buy, request):
            yield f"If bought: {caveat}"
    yield from _caveats_of_request(request)


def _caveats_of_one(alternative: Alternative, request: AdviceRequest) -> Iterator[str]:
    gpu = offer_gpus(alternative.option.offer)[0]
    yield from _memory(gpu, alternative, request)
    yield from _hardware(gpu, alternative)
    if alternative.card is not None:
        yield from _card(alternative.card, request)
    elif alternative.option.offer.owned is None:
        yield from _rented(alternative)


def _memory(gpu: Gpu, alternative: Alternative, request: AdviceRequest) -> Iterator[str]:
    memory_bytes = alternative.option.offer.gpu_memory_bytes or gpu.memory_bytes
    purpose = request.purpose
    if purpose is not None and memory_bytes < 0.97 * purpose.memory_better_bytes:
        yield (
            f"{gpu.name}: {memory_bytes / GIB:.0f} GB; for {purpose.name} "
            f"{purpose.memory_better_bytes / GIB:.0f} would be better ({purpose.as_of[:4]})."
        )
    if alternative.option.offer.gpu_share == 1:
        fits, too_big = fitting_profiles(gpu.name)
        if too_big:
            yield (
                f"{gpu.name}: even one sample of {', '.join(too_big)} does not fit; "
                f"{', '.join(fits)} {'does' if len(fits) == 1 else 'do'}."
            )


def _hardware(gpu: Gpu, alternative: Alternative) -> Iterator[str]:
    """What the GPU lacks, as software sees it."""
    if not has_tensor_cores(gpu):
        yield f"{gpu.name}: no tensor cores; 16-bit training is hardly faster than 32-bit."
    yield from (f"{gpu.name}: {note}." for note in alternative.option.notes if "bf16" in note)
    software = gpu.software
    if software.runs != "yes":
        yield f"{gpu.name}: PyTorch: {software.runs} ({software.note}; {software.as_of})."
    if not alternative.option.step.is_checked:
        yield f"{gpu.name}: never measured; predicted from its datasheet, with the range of that."
    if gpu.vendor == "AMD":
        yield f"{gpu.name}: needs ROCm builds; not every CUDA package has one. See --ask amd."


def has_tensor_cores(gpu: Gpu) -> bool:
    """Whether a GPU multiplies matrices in units of their own."""
    if gpu.vendor != "NVIDIA":
        return True
    if gpu.name.startswith(_WITHOUT_TENSOR):
        return False
    return float(gpu.compute_capability) >= _TENSOR_FROM


def _card(card: CardForSale, request: AdviceRequest) -> Iterator[str]:
    slots = card.gpu.facts["slot_width"].number
    if slots is not None and slots >= 3:
        yield f"{card.gpu.name}: takes {slots:.0f} slots; partners' cards may differ."
    if request.gpus > 1:
        yield "Cards next to each other: blower coolers or a free slot between them."
    if card.condition == "used":
        yield f"{card.gpu.name}: used, usually without warranty; {card.note}."
    elif "few listings" in card.note:
        yield f"{card.gpu.name}: price of few listings ({card.note})."
    if card.age_months >= 1.5:
        yield (
            f"{card.gpu.name}: its price is {card.age_months:.0f} months old "
            f"(${card.listed_usd:,.0f} on {card.as_of}); the range allows for that."
        )
    if request.own_gpu is not None:
        yield (
            f"{card.gpu.name}: check the power supply of the machine you have: the card takes "
            f"{card.gpu.board_tdp_w:.0f} W."
        )


def _rented(alternative: Alternative) -> Iterator[str]:
    offer = alternative.option.offer
    terms = terms_of(offer.provider)
    for remark in remarks(terms):
        yield f"{terms.name}: {remark}."
    if alternative.kind == "spot" and alternative.option.run is not None:
        count = float(alternative.option.run.interruptions)
        assumed = any("interruption rate assumed" in note for note in alternative.option.notes)
        yield (
            f"Spot: it may be taken away; {_few(count)} a month to expect"
            f"{' (assumed)' if assumed else ''}. Save checkpoints."
        )
    if alternative.option.cost is not None and alternative.option.cost.unknown:
        yield f"Not counted, price unknown: {'; '.join(alternative.option.cost.unknown)}."
    yield f"{terms.name}: price of {offer.as_of}."


def _left_out(request: AdviceRequest) -> Iterator[str]:
    """Cards with a price that were not looked at, and why."""
    listed = desktop_cards(request.today, request.imported)
    old = sum(card.is_old for card in listed)
    amd = sum(card.gpu.vendor == "AMD" and not card.is_old for card in listed)
    if old and not many_gpus(request):
        months = assumption_number("price_old_months")
        yield f"{old} card prices are older than {months:.0f} months and were not looked at."
    if amd and not request.amd and not many_gpus(request):
        yield "AMD cards were left out, as asked for (--no-amd)."


def _few(count: float) -> str:
    return f"{count:.1f} interruptions" if count >= 0.1 else "less than 0.1 interruptions"


def _caveats_of_request(request: AdviceRequest) -> Iterator[str]:
    if request.workload is None:
        yield (
            "Keeping and moving data is not counted; a workload file with its size is "
            "(--workload outlay.toml)."
        )
    if request.use.assumed:
        fact = assumption_fact("hours_not_said")
        yield f"No --usage was given: {float(fact.text or 0):.0%} of all hours taken ({fact.note})."
    yield from _left_out(request)
    if many_gpus(request):
        most = assumption_number("workstation_gpus_most")
        yield (
            f"Buying is not compared: more than {most:.0f} GPUs need a server, and no price of "
            "one is known here. GeForce cards may not be used in data centres "
            f"({faq_section('geforce')})."
        )
        network = assumption_number("network_across_machines")
        yield (
            f"Training across machines wants {network:.0f} Gbit/s and more between them; "
            "usage.machines in a workload file counts what they lose to communication."
        )
