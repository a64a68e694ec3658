"""What a plan took for granted, in plain words: about each option, and about the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from outlay.caching import ById
from outlay.currency import rate_in_words
from outlay.facts import assumed, assumptions
from outlay.offers.catalog import offer_gpus
from outlay.offers.offer import CHEAPEST_REGION, HostQuality, Offer, Tenancy
from outlay.offers.places import HOME, DataRoute, Place
from outlay.offers.price_book import PriceBook, bundled_book
from outlay.offers.spot import assumed_interruptions, spot_risk
from outlay.offers.terms import terms_of
from outlay.plan.option import Option
from outlay.predict.evidence import PREDICTED, MeasuredStep
from outlay.predict.parallel import mixed_gpus_note
from outlay.predict.run_time import SessionOverheads
from outlay.predict.step import StepPrediction
from outlay.trace.profile import Profile
from outlay.uncertainty import Estimate, Uncertain
from outlay.units import GB, HOUR_S, MB, MINUTE_S, days_between
from outlay.workload.workload import Workload


def option_notes(
    offer: Offer, tenancy: Tenancy, profile: Profile, step: StepPrediction
) -> tuple[str, ...]:
    """What one should know about an option before taking it."""
    notes = [f"price: {doubt.word}" for doubt in offer.doubts]
    if offer.host is not None:
        notes += host_notes(offer.host)
    gpus = offer_gpus(offer)
    if len(gpus) > 1:
        notes.append(f"form not stated: {gpus[0].name} taken, the slowest")
    if "bf16" not in gpus[0].peak_flops_per_s and _asks_for_bf16(ById(profile)):
        notes.append("has no bf16 units: computed in fp32; fp16 would be faster")
    if gpus[0].software.runs in ("old builds", "special build", "unknown"):
        notes.append(f"PyTorch: {gpus[0].software.runs} ({gpus[0].software.note})")
    if tenancy == "spot" and spot_risk(offer).is_assumption:
        notes.append("interruption rate assumed")
    scarcity = scarcity_note(tenancy, step)
    return (*notes, *([scarcity] if scarcity else []), *_spread_notes(offer, step))


def host_notes(host: HostQuality) -> list[str]:
    """What a marketplace measured of a single host, and what of it is in no prediction."""
    speeds = {
        "reads its disk at": host.disk_bytes_per_s,
        "downloads at": host.download_bytes_per_s,
        "uploads at": host.upload_bytes_per_s,
    }
    measured = [f"{what} {rate / MB:,.4g} MB/s" for what, rate in speeds.items() if rate]
    notes = [f"the host {', '.join(measured)}, as measured"] if measured else []
    if host.reliability_fraction is not None:
        notes.append(
            f"the host was there {host.reliability_fraction:.1%} of the time: when it goes, an "
            "on-demand run stops, too, which is not counted"
        )
    if host.dlperf is not None:
        notes.append(
            f"DLPerf {host.dlperf:.4g} is the marketplace's own score of other training: this step "
            "is predicted by itself, the score is not used"
        )
    return notes


def scarcity_note(tenancy: Tenancy, step: StepPrediction) -> str | None:
    """That there may not be so many spot GPUs at once, in one region; None where there may."""
    gpus, gpu = step.placement.site.total, step.placement.gpu
    if tenancy != "spot":
        return None
    memory = gpu.facts.get("memory_type")
    is_scarce = memory is not None and (memory.text or "").startswith("HBM")
    most = assumed("spot_gpus_at_once_hbm" if is_scarce else "spot_gpus_at_once")
    return (
        f"{gpus} spot {gpu.name} at once may not be available in one region"
        if gpus > most
        else None
    )


@lru_cache(maxsize=8)
def _asks_for_bf16(profile: ById[Profile]) -> bool:
    return profile.value.asks_for_bf16


def _spread_notes(offer: Offer, step: StepPrediction) -> list[str]:
    """How the step is spread over the GPUs, and what that rests on."""
    notes = [] if step.time_from == PREDICTED else [f"step time {step.time_from}"]
    if step.placement.site.total > 1 and step.batch_size:
        notes.append(f"{step.strategy.name}: {_efficiency(step)}")
    if step.micro_batches > 1:
        notes.append(f"{step.micro_batches} passes of {step.batch_size} before each update")
    if offer.other_gpus:
        names = (offer.gpu, *offer.other_gpus)
        notes.append(mixed_gpus_note(names, step.placement.gpu.name))
    return [*notes, *step.notes]


def _efficiency(step: StepPrediction) -> str:
    lost = (step.exchange_s.likely + step.waiting_s) / step.step_time_s.likely
    return f"{lost:.0%} of the step goes to communication and waiting"


def plan_assumptions(
    workload: Workload,
    profile: Profile,
    habits: SessionOverheads,
    offers: Sequence[Offer],
    today: str,
    measured: Sequence[MeasuredStep] = (),
    book: PriceBook | None = None,
) -> tuple[str, ...]:
    """What was taken where the workload file says nothing, in plain words."""
    usage, data = workload.usage, workload.data
    book = book or bundled_book()
    notes = [
        *_price_notes(workload, book, today),
        f"Step times: {_step_times_from(measured)}, carried to other GPUs: trust the range first.",
        *_not_counted(workload, measured),
    ]
    if workload.step.precision is not None:
        notes.append(
            f"Matrix arithmetic in {workload.step.precision} instead of what was traced; memory "
            "and traffic stay as traced."
        )
    if usage.setup_s is None:
        notes.append(
            f"Each session starts with {_minutes(habits.provisioning_s)} to get a machine, "
            f"{_minutes(habits.environment_s)} to set up the environment and "
            f"{_minutes(habits.warmup_s)} to warm up (guesses)."
        )
    if data.size_bytes is None:
        notes.append("No dataset size is given: storing and fetching it is not counted.")
    notes.extend(_assumed_interruptions(offers))
    machines = max(usage.machines_tried or (usage.machines,))
    if any(offer.gpus > 1 for offer in offers) or machines > 1:
        kept = workload.step.global_batch_size
        batch = f"stays {kept:,}" if kept else "grows with the GPUs"
        notes.append(
            f"Several GPUs: data parallel, sharded where that fits or is faster; the global batch "
            f"{batch}."
        )
    return (*notes, *_of_money(workload, today), *_of_cash(workload, offers), *profile.notes)


def _trust(book: PriceBook) -> Iterator[str]:
    """Which doubts were taken how, where the user said so."""
    if book.trust:
        yield f"Doubtful prices may be chosen as you asked: trust is {book.trust}."


def data_notes(chosen: Option | None) -> tuple[str, ...]:
    """How the data gets to the chosen machine, and what brings it there."""
    route, run = (chosen.route, chosen.run) if chosen else (None, None)
    if route is None or run is None:
        return ()
    amount = f"The {route.size_bytes / GB:,.4g} GB"
    notes = []
    if route.copied_by:
        verb = "uploaded" if route.origin == HOME else f"copied from {_where(route.origin)}"
        notes.append(
            f"{amount} are {verb} to {route.kept} before the machine is rented, by "
            f"{_brought_by(route)}: {_time(float(run.before_s))}."
        )
    if route.fetched_from is not None:
        often = " in each session" if route.fetched_each_session else ""
        notes.append(
            f"{amount} are fetched from {_where(route.fetched_from)} by the machine itself{often}, "
            f"which is billed: {_time(float(run.download_s))}."
        )
    if not notes and route.size_bytes and not route.origin.is_free:
        notes.append(f"{amount} lie at {route.origin}, where the machine is: nothing is moved.")
    return tuple(notes)


def _where(place: Place) -> str:
    return "the internet" if place.provider == "internet" else str(place)


def _time(time_s: float) -> str:
    """In hours, or in minutes where it is less than one."""
    return f"{time_s / HOUR_S:,.3g} h" if time_s >= HOUR_S else f"{time_s / MINUTE_S:,.2g} min"


def _brought_by(route: DataRoute) -> str:
    """What copies the data, and why that is enough."""
    if route.copied_by == "copying machine":
        why = "a volume needs one" if route.storage == "volume" else "between clouds it takes one"
        return f"a copying machine without GPU ({why}; a line of the bill)"
    if route.storage == "volume":
        return "no machine (its volumes take uploads directly)"
    if route.origin == HOME:
        return "no machine (object storage takes them directly)"
    return "no machine (its object stores copy among themselves)"


def plan_cautions(
    measured: Sequence[MeasuredStep], workload: Workload | None = None, offers: Sequence[Offer] = ()
) -> tuple[str, ...]:
    """What to cure before the answer is acted on, and what it could not keep to."""
    cautions = []
    if any(step.holder == "input" for step in measured):
        cautions.append(
            "Speed up the input pipeline first and probe again: it limited the measured step, and "
            "a faster one changes this answer."
        )
    selections = () if workload is None else (workload.consider, workload.leave_out)
    if any(selection.regions for selection in selections) and any(
        offer.region == CHEAPEST_REGION for offer in offers
    ):
        cautions.append(
            "Prices of then are those of the cheapest region anywhere, which need not be one of "
            "the regions you ask for."
        )
    return tuple(cautions)


def _assumed_interruptions(offers: Sequence[Offer]) -> Iterator[str]:
    """How often spot machines of unknown risk are taken to be interrupted, each rate once."""
    providers = {
        assumed_interruptions(offer.provider): offer.provider
        for offer in offers
        if "spot" in offer.tenancies and spot_risk(offer).is_assumption
    }
    for name, provider in sorted(providers.items(), key=lambda item: "default" not in item[0]):
        whose = "" if name.endswith("_default") else f" of {terms_of(provider).name}"
        yield (
            f"Spot machines{whose} without a published rate are interrupted "
            f"{assumptions()[name].text} times a month (guess)."
        )


def _of_money(workload: Workload, today: str) -> list[str]:
    """Of exchange rates, and of how much one's own machine will be used."""
    notes = []
    if workload.currency != "USD":
        rate_day = workload.rate_as_of
        today = "" if workload.currency_day else today
        day = rate_in_words(rate_day, today) if rate_day else "your own rate"
        notes.append(f"1 {workload.currency} is {workload.usd_per_unit:.5g} USD: {day}.")
    if any(machine.utilisation is not None for machine in workload.workstations):
        usual = assumptions()["utilisation_usual_desktop"]
        notes.append(
            "Most people overestimate how much they will use a machine: personal ones run some "
            f"{usual.number or 0.0:.1%} of the time ({usual.source})."
        )
    return notes


def _of_cash(workload: Workload, offers: Sequence[Offer]) -> list[str]:
    """Of interest on what is paid on the first day, and of the budget there."""
    bought = [offer.owned for offer in offers if offer.owned and offer.owned.purchase_usd]
    committed = [offer.commitment for offer in offers if offer.commitment is not None]
    notes = []
    if any(commitment.upfront_fraction for commitment in committed):
        stated, fact = workload.usage.interest_per_year, assumptions()["interest_per_year"]
        rate, guess = (fact.number or 0.0, " (guess)") if stated is None else (stated, "")
        notes.append(
            f"What is paid upfront for a commitment bears interest at {rate * 100:.3g} % a year"
            f"{guess} until it is used up: usage.interest_per_year."
        )
    if bought and not any(owned.interest_per_year for owned in bought):
        notes.append(
            "No interest is counted on machines to be bought: usage.interest_per_year, or each "
            "machine's own."
        )
    if workload.limits.budget_usd is not None and (bought or committed):
        notes.append(
            "The budget also limits what must be paid on the first day; limits.cash_upfront sets "
            "another limit."
        )
    return notes


def _step_times_from(measured: Sequence[MeasuredStep]) -> str:
    """`measured on H200 at batch 32`, or what they are predicted from."""
    if not measured:
        return "kernels as an H200 runs them"
    places = dict.fromkeys(f"{step.gpu.name} at batch {step.batch_size:,}" for step in measured)
    return f"measured on {', '.join(places)}"


def _not_counted(workload: Workload, measured: Sequence[MeasuredStep]) -> list[str]:
    """What is not counted because the file says nothing of it."""
    notes = []
    rates = [step.batch_size / step.step_s for step in measured if step.holder == "input"]
    if rates:
        notes.append(
            f"Its input limited the measured step to {max(rates):,.0f} samples/s a GPU: other "
            "machines are taken to load no faster, except at the low end of the range."
        )
    elif workload.data.feed is None:
        notes.append(
            "The input pipeline is taken to keep up with the GPU; data.kind (what a sample is) "
            "lets this be checked."
        )
    if workload.evaluation is None:
        notes.append("No evaluation while training: [evaluation] would count it.")
    return notes


def _minutes(time_s: Uncertain) -> str:
    """`3 min (1 to 15)`."""
    if not isinstance(time_s, Estimate):
        return f"{time_s / 60:.0f} min"
    low = f"{time_s.low / 60:.0f}" if time_s.low >= 60 else f"{time_s.low:.0f} s"
    return f"{time_s.likely / 60:.0f} min ({low} to {time_s.high / 60:.0f})"


def _price_notes(workload: Workload, book: PriceBook, today: str) -> list[str]:
    """Whose prices, how old, and what else is to be said of them."""
    if not workload.consider.bundled:
        return ["Prices: your own quotes.", *_later_quotes(workload, book)]
    newer = "" if book.kind == "past" else ", newer list prices where there are any"
    return [
        f"Prices: {book.name}{_age(book, today)}{newer}, and your own quotes.",
        *book.notes,
        *_later_quotes(workload, book),
        *_trust(book),
        *_unknown_gpus(book),
    ]


def _later_quotes(workload: Workload, book: PriceBook) -> list[str]:
    """That the user's quotes stand as written, though nobody had them on the day of the plan."""
    later = [quote for quote in workload.quotes if book.day and quote.as_of > book.day]
    if not later:
        return []
    return [f"Quotes of your own from after {book.day} are taken as you wrote them ({len(later)})."]


def _unknown_gpus(book: PriceBook) -> list[str]:
    """Offers that are in no plan, as nothing is known of their GPUs."""
    if not book.unknown:
        return []
    names = sorted({offer.gpu for offer in book.unknown})
    named = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    count = "1 offer" if len(book.unknown) == 1 else f"{len(book.unknown):,} offers"
    return [f"Not planned: {count} of GPUs that outlay knows nothing of ({named})."]


def _age(book: PriceBook, today: str) -> str:
    """How old the prices are, where the day is known."""
    if not today:
        return ""
    days = days_between(book.as_of, today)
    return f" ({days} day{'s' * (days > 1)} old)" if days > 0 else " (of today)"
