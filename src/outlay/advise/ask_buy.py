"""Questions about buying: which card for what, used ones, cards to avoid, AMD, TPU, licences."""

from __future__ import annotations

from outlay.advise.cards import (
    assumption_fact,
    assumption_number,
    desktop_cards,
    dominated_cards,
    resale_usd,
)
from outlay.advise.questions import Answer, Figures, QuestionContext, quoted, sources_of
from outlay.advise.request import purposes
from outlay.hardware.gpus import gpus
from outlay.units import GIB

_YEARS = 2.0


def purpose(about: QuestionContext) -> Answer:  # noqa: ARG001
    """The purposes there are, and what each asks of a GPU."""
    return Answer(
        topic="purpose",
        question="Which card at all, by purpose and purse?",
        words=(
            (
                "Ask with your own figures: outlay advise --purpose NAME --budget N --usage "
                "2h/day. A purpose stands for a bundled step and the memory people advise for it."
            ),
        ),
        figures=Figures(
            heads=("purpose", "step", "gb least", "gb better", "gpus", "as of"),
            rows=tuple(
                (
                    one.name,
                    one.profile,
                    f"{one.memory_least_bytes / GIB:.0f}",
                    f"{one.memory_better_bytes / GIB:.0f}",
                    f"{one.gpus}",
                    one.as_of,
                )
                for one in purposes()
            ),
            drop=("gpus",),
        ),
        sources=tuple(dict.fromkeys(one.source for one in purposes())),
    )


def used(about: QuestionContext) -> Answer:
    """Used cards with a price, what they sell for later, and how old the price is."""
    listed = [card for card in desktop_cards(about.today) if card.condition == "used"]
    fresh = sum(not card.is_old for card in listed)
    keep = assumption_number("used_card_keep_per_year")
    return Answer(
        topic="used",
        question="Used cards: what do they cost, and what are they worth later?",
        words=(
            (
                f"{fresh} used cards have a price of the last "
                f"{assumption_number('price_old_months'):.0f} months, {len(listed) - fresh} an older "
                f"one, which advice does not go by. A used card kept {keep:.0%} of its price a "
                "year lately."
            ),
        ),
        figures=Figures(
            heads=("card", "gb", "price", "as of", f"sold in {_YEARS:.0f} years", "pytorch"),
            rows=tuple(
                (
                    card.gpu.name,
                    f"{card.gpu.memory_bytes / GIB:.0f}",
                    f"${card.seen_usd:,.0f}",
                    f"{card.as_of}{' (old)' if card.is_old else ''}",
                    f"${resale_usd(card, _YEARS, about.today).likely:,.0f}",
                    card.gpu.software.runs,
                )
                for card in sorted(listed, key=lambda one: (one.is_old, one.seen_usd))
            ),
        ),
        sources=("card_prices.csv", assumption_fact("used_card_keep_per_year").note),
    )


def avoid(about: QuestionContext) -> Answer:
    """Every card that another one beats, and why."""
    beaten = dominated_cards(about.today)
    old = [gpu.name for gpu in gpus().values() if gpu.software.runs in ("no", "old builds")]
    return Answer(
        topic="avoid",
        question="Which cards should one avoid?",
        words=(
            (
                f"{len(beaten)} cards cost as much as another one or more, have no more memory and "
                "are faster on none of the bundled steps."
            ),
            f"And GPUs that today's PyTorch hardly runs on or not at all: {', '.join(old)}.",
        ),
        figures=Figures(
            heads=("avoid", "price", "as of", "better", "its price", "as fast"),
            rows=tuple(
                (
                    f"{one.card.name}{' (leftover)' if one.card.is_leftover else ''}",
                    f"${one.card.seen_usd:,.0f}",
                    one.card.as_of,
                    one.by.name,
                    f"${one.by.seen_usd:,.0f}",
                    f"{one.times_as_fast:.1f}x and more",
                )
                for one in beaten
            ),
            drop=("as of",),
        ),
        sources=("card_prices.csv", "software.csv"),
    )


def amd(about: QuestionContext) -> Answer:
    """AMD cards: what software says of them, and those with a price."""
    listed = [gpu for gpu in gpus().values() if gpu.vendor == "AMD"]
    priced = {card.gpu.name: card for card in desktop_cards(about.today)}
    return Answer(
        topic="amd",
        question="AMD cards and their software?",
        words=(
            (
                "PyTorch has ROCm builds for some; a training script in plain PyTorch usually "
                "runs unchanged, packages with CUDA kernels of their own do not. No prediction of "
                "an AMD card was ever checked here: ranges are wider, and advice leaves them out "
                "unless --amd is given."
            ),
            *quoted("amd"),
        ),
        figures=Figures(
            heads=("gpu", "target", "pytorch", "price", "source"),
            rows=tuple(
                (
                    gpu.name,
                    gpu.compute_capability,
                    gpu.software.runs,
                    f"${priced[gpu.name].seen_usd:,.0f}" if gpu.name in priced else "",
                    gpu.software.source,
                )
                for gpu in listed
            ),
        ),
        sources=("software.csv", *sources_of("amd")),
    )


def geforce(about: QuestionContext) -> Answer:  # noqa: ARG001
    """What the driver's licence says of data centres."""
    return Answer(
        topic="geforce",
        question="May GeForce cards be used in a data centre?",
        words=quoted("geforce"),
        sources=sources_of("geforce"),
    )


def tpu(about: QuestionContext) -> Answer:  # noqa: ARG001
    """TPUs are out of scope; the little that is known."""
    return Answer(
        topic="tpu",
        question="A TPU instead of a GPU?",
        words=(
            (
                "Out of scope: outlay traces CUDA steps of PyTorch and has no model of a TPU's "
                "speed. Known is one price:"
            ),
            *quoted("tpu"),
        ),
        sources=sources_of("tpu"),
    )


def driver(about: QuestionContext) -> Answer:  # noqa: ARG001
    """Whether machines come with a driver."""
    return Answer(
        topic="driver",
        question="Is the NVIDIA driver ready on the machine?",
        words=(
            (
                "Where nothing else is said, images for deep learning have it; of most providers "
                "it is not known here."
            ),
            *quoted("driver"),
        ),
        sources=sources_of("driver"),
    )


def colab(about: QuestionContext) -> Answer:  # noqa: ARG001
    """How long a month of units lasts."""
    return Answer(
        topic="colab",
        question="How long do Colab's units last?",
        words=quoted("colab"),
        sources=sources_of("colab"),
    )
