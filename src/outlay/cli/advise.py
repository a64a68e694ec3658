"""`outlay advise`: which card to buy or where to rent, for a purpose, a purse and a use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from outlay.cli.options import (
    as_of_option,
    cache_option,
    imported_of,
    json_option,
    prices_of,
    prices_option,
    print_document,
    progress_option,
    tell,
    today,
    trust_option,
)
from outlay.errors import InputError

if TYPE_CHECKING:
    from outlay.advise.request import AdviceRequest, Purpose
    from outlay.trace.profile import Profile
    from outlay.workload.workload import Workload

_LONGEST_MONTHS = 120


@click.command("advise", no_args_is_help=True)
@click.option("--purpose", help="kaggle, 'computer vision', nlp, startup ...; --ask purpose: all.")
@click.option("--profile", help="A bundled or saved profile instead of a purpose's.")
@click.option(
    "--workload",
    "file",
    type=click.Path(path_type=Path),
    help="A workload file: its step, data, terms, offers and machines count.",
)
@click.option(
    "--budget",
    type=click.FloatRange(0, min_open=True),
    help="What a purchase may cost at once, and renting over all months.",
)
@click.option("--currency", default="USD", show_default=True, help="Of the budget: EUR, KRW ...")
@click.option(
    "--usage",
    metavar="TEXT",
    help="24/7, 2h/day, '4h/day 5 days/week', 20h/week, 15%, '4 sessions/month of 6h'.",
)
@click.option(
    "--months",
    type=click.FloatRange(1, _LONGEST_MONTHS),
    default=24,
    show_default=True,
    help="How long this goes on.",
)
@click.option("--own", metavar="GPU", help="The card in the machine you have: only it is replaced.")
@click.option("--hours-on", metavar="GPU", help="The GPU that the hours of --usage are meant on.")
@click.option("--country", default="us", show_default=True, help="For electricity: us, eu, kr.")
@click.option("--region", "regions", multiple=True, help="Rent there only: us-east, europe ...")
@click.option("--gpus", type=click.IntRange(1, 8), help="GPUs in one machine.  [default: 1]")
@click.option("--used/--no-used", default=True, help="Whether to look at second-hand cards.")
@click.option("--amd/--no-amd", default=True, help="Whether to look at AMD's, never measured here.")
@click.option("--ask", metavar="TOPIC", help="Answer one question; --ask list names them all.")
@click.option("--size", metavar="SIZE", help="How much data, for --ask upload and download.")
@prices_option
@trust_option
@as_of_option
@cache_option
@progress_option
@json_option
def command(**options: Any) -> int:
    """Advise on a card to buy or a place to rent, by purpose, budget and use.

    Every card with a dated price, in a desktop, and every rented offer do the same work of a
    month: the hours of --usage on one GPU. What costs least within the budget is advised, with
    the use at which the other way would be better.

    \b
    Example:
      outlay advise --purpose kaggle --budget 2000 --usage 2h/day
      outlay advise --profile gpt2-medium --usage 24/7 --months 36
      outlay advise --purpose startup --budget 7500000 --currency KRW --country kr --gpus 2
      outlay advise --purpose "computer vision" --own "GTX 1080" --usage 4h/day --hours-on T4
      outlay advise --ask list
      outlay advise --ask upload --size 900GB
      outlay advise --purpose kaggle --usage 2h/day --as-of 2025-06

    Exits with 3 when nothing does the work within the budget.
    """
    if options["ask"] is not None:
        return _answer(options)
    from outlay.advise.recommendation import recommend

    advice = recommend(_request(options), tell)
    if options["as_json"]:
        from outlay.report.advise import advice_document

        print_document(advice_document(advice))
    else:
        from outlay.report.advise import print_advice
        from outlay.report.console import Page
        from outlay.report.text import amounts_in

        with amounts_in(advice.request.currency, advice.request.usd_per_unit):
            print_advice(Page(), advice)
    return 0 if advice.chosen is not None else 3


def _request(options: dict[str, Any]) -> AdviceRequest:
    """The options as a request for advice."""
    from outlay.advise.request import AdviceRequest, monthly_use
    from outlay.currency import usd_per_unit

    purpose, workload, profile = _trained(options)
    trust = options["trust"] or (workload.prefer.trust if workload else "") or None
    rate, day = usd_per_unit(options["currency"])
    return AdviceRequest(
        profile=profile,
        use=monthly_use(options["usage"]),
        months=float(options["months"]),
        today=today(),
        prices=prices_of(options["prices"], options["as_of"], trust),
        imported=imported_of(options["prices"]),
        purpose=purpose,
        workload=workload,
        budget_usd=None if options["budget"] is None else options["budget"] * rate,
        own_gpu=_gpu(options["own"]),
        hours_on=_gpu(options["hours_on"]),
        country=options["country"],
        gpus=options["gpus"] or (purpose.gpus if purpose else 1),
        used=options["used"],
        amd=options["amd"],
        regions=options["regions"],
        currency=options["currency"].upper(),
        usd_per_unit=rate,
        rate_as_of=day,
    )


def _trained(options: dict[str, Any]) -> tuple[Purpose | None, Workload | None, Profile]:
    """What is trained: by purpose, by profile, or by a workload file."""
    from outlay.advise.request import find_purpose
    from outlay.plan.from_measurement import profile_for
    from outlay.trace.store import find_profile
    from outlay.workload.file import read_workload

    given = [name for name in ("purpose", "profile", "file") if options[name] is not None]
    if len(given) != 1:
        raise InputError(
            "Say what is trained, in one way." if given else "Nothing says what is trained.",
            why="It takes one of --purpose, --profile and --workload.",
            fix="Write for example --purpose kaggle; --ask purpose lists them.",
        )
    if options["file"] is not None:
        workload = read_workload(options["file"])
        return None, workload, profile_for(workload.step, progress=tell)
    if options["profile"] is not None:
        return None, None, find_profile(options["profile"])
    purpose = find_purpose(options["purpose"])
    return purpose, None, find_profile(purpose.profile)


def _gpu(name: str | None) -> str | None:
    """The GPU that a name means, as the tables have it."""
    from outlay.hardware.gpu_names import find_gpu

    return None if name is None else find_gpu(name).meaning


def _answer(options: dict[str, Any]) -> int:
    """Answer the question of --ask."""
    from outlay.advise.questions import USUAL_PROFILE, QuestionContext, answer
    from outlay.units import size_bytes

    context = QuestionContext(
        today=today(),
        profile=options["profile"] or USUAL_PROFILE,
        prices=prices_of(options["prices"], options["as_of"], options["trust"]),
        imported=imported_of(options["prices"]),
        size_bytes=None if options["size"] is None else size_bytes(options["size"]),
    )
    reply = answer(options["ask"], context)
    if options["as_json"]:
        from outlay.report.advise import answer_document

        print_document(answer_document(reply))
    else:
        from outlay.report.advise import print_answer
        from outlay.report.console import Page

        print_answer(Page(), reply)
    return 0
