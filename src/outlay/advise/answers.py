"""Every question there is an answer to, by topic."""

from __future__ import annotations

from collections.abc import Callable

from outlay.advise import ask_buy, ask_rent, ask_speed
from outlay.advise.questions import Answer, Figures, QuestionContext
from outlay.errors import NotKnown

Answering = Callable[[QuestionContext], Answer]

TOPICS: dict[str, tuple[Answering, str]] = {
    "purpose": (ask_buy.purpose, "Which card at all, by purpose and purse?"),
    "used": (ask_buy.used, "Used cards: what do they cost, and what are they worth later?"),
    "avoid": (ask_buy.avoid, "Which cards should one avoid?"),
    "tflops": (ask_speed.tflops, "Which number is the TFLOPS column, and why does it mislead?"),
    "nvlink": (ask_speed.nvlink, "Is SLI or NVLink worth it for training on two cards?"),
    "mixed": (ask_speed.mixed, "Two different cards in one machine?"),
    "amd": (ask_buy.amd, "AMD cards and their software?"),
    "cpu": (ask_speed.cpu, "Train on many CPU cores instead of a GPU?"),
    "tpu": (ask_buy.tpu, "A TPU instead of a GPU?"),
    "geforce": (ask_buy.geforce, "May GeForce cards be used in a data centre?"),
    "share": (ask_rent.share, "Does a cloud give a whole GPU or a share?"),
    "upload": (ask_rent.upload, "How long does uploading the data from home take?"),
    "download": (ask_rent.download, "What about downloading the results?"),
    "distance": (ask_rent.distance, "Does the region's distance matter (72 ms or 47 ms)?"),
    "tablet": (ask_rent.tablet, "Can it be used from a tablet's browser?"),
    "calculator": (ask_rent.calculator, "Where do a price calculator's usual inputs go?"),
    "free": (ask_rent.free, "What is free: hours, trials, credits?"),
    "reserved": (ask_rent.reserved, "H100 reserved, commitments, prepaid balance?"),
    "driver": (ask_buy.driver, "Is the NVIDIA driver ready on the machine?"),
    "colab": (ask_buy.colab, "How long do Colab's units last?"),
}
LIST = "list"


def answer(topic: str, about: QuestionContext) -> Answer:
    """The answer to a topic, or the list of topics."""
    asked = topic.strip().lower()
    if asked == LIST:
        return _list()
    if asked not in TOPICS:
        raise NotKnown("question", topic, TOPICS, fix="`outlay advise --ask list` names them all.")
    answering, _ = TOPICS[asked]
    return answering(about)


def _list() -> Answer:
    return Answer(
        topic=LIST,
        question="What can be asked?",
        words=("outlay advise --ask TOPIC answers one of these.",),
        figures=Figures(
            heads=("topic", "question"),
            rows=tuple((topic, question) for topic, (_, question) in TOPICS.items()),
        ),
    )
