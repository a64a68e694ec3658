"""What `--json` prints: one dataclass for each document, whose fields are the keys of the JSON.

The types give both the output (`outlay.files.to_json`) and its schema (`outlay.report.schemas`): a
new key is a new field, and a line where its value comes from. `"schema": 1` says which set of keys
it is. Times are in seconds, memory in bytes, money in US dollars; unknown is None. Where the
library's own dataclass has just the keys of the JSON (`Estimate`, `CallSite`), it is used as it is.

Here are the documents of plan, offers, gpus, predict, host, profiles and trace; those of advise,
build, calibrate, diff, fit, vary and of a search for the largest batch stand beside their words.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import zip_longest
from typing import Any, Final, Literal, TypeVar

from outlay.facts import Fact
from outlay.files import FLATTEN, json_text
from outlay.fit.gpu_memory import REFERENCE_GPU, GpuMemory, reference_gpu
from outlay.hardware.gpus import Gpu
from outlay.offers.offer import HostQuality, Offer, OtherPrice, Tenancy
from outlay.plan.option import Option, Ranges
from outlay.plan.question import AnsweredQuestion
from outlay.plan.ranking import Plan, best_of_each_kind
from outlay.plan.sensitivity import Swing, TrialValue, rivals_of, swings, trial_value
from outlay.predict.host_time import HostTest
from outlay.predict.step import Bound, StepPrediction
from outlay.predict.strategy import Sharding
from outlay.report.rests_on import rests_on
from outlay.report.text import doubt_reasons
from outlay.trace.profile import Kind, Memory, Phase, Precision, Profile
from outlay.trace.step_report import CallSite, HeavyOp, MemoryPoint, PhaseTotal, StepReport
from outlay.uncertainty import Estimate
from outlay.units import days_between
from outlay.workload.workload import Risk

SCHEMA: Final = 1
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What one command prints."""

    schema: Literal[1] = SCHEMA
    """Which set of keys this is."""


def dumps(document: object) -> str:
    """The document as text."""
    return json_text(document)


def copied(kind: type[T], source: object, **values: Any) -> T:
    """A document of what `source` has under the names of its keys, but for the values given."""
    names = [key.name for key in fields(kind) if key.name not in values]  # type: ignore[arg-type]
    return kind(**{name: getattr(source, name) for name in names}, **values)


# How a step is spread over GPUs: part of a plan's options and of predictions.


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyDocument:
    """How a step is spread over GPUs."""

    name: str
    data: int
    sharding: Sharding
    within_node: bool
    tensor: int
    pipeline: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadDocument:
    """The GPUs of a step, and how it is spread over them."""

    gpus: int
    nodes: int
    strategy: StrategyDocument
    micro_batches: int
    power_limit_w: float | None


def spread_document(step: StepPrediction) -> SpreadDocument:
    """How a step is spread over GPUs."""
    return SpreadDocument(
        gpus=step.placement.gpus,
        nodes=step.placement.nodes,
        strategy=copied(StrategyDocument, step.strategy),
        micro_batches=step.micro_batches,
        power_limit_w=step.placement.power_limit_w,
    )


# `outlay plan`


@dataclass(frozen=True, slots=True, kw_only=True)
class LineDocument:
    """One named part of a cost."""

    name: str
    usd: float
    low: float | None
    high: float | None
    basis: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentDocument:
    """One part of what must be paid on the first day."""

    name: str
    usd: float
    basis: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionDocument:
    """An offer in one tenancy, predicted and priced for a workload."""

    rank: int
    provider: str
    instance: str
    gpu: str
    spread: SpreadDocument = field(metadata=FLATTEN)
    tenancy: Tenancy
    term: str | None
    keeping: str | None
    region: str
    zone: str | None
    """The zone of the region that its spot price is of."""
    price_usd_per_hour: float | None
    """What the bill is computed with: what an hour is expected to cost while the run runs."""
    price_range_usd_per_hour: Estimate | None
    """The same with its range; null for a machine of one's own."""
    quoted_usd_per_hour: float | None
    """The price as it was seen."""
    price_as_of: str | None
    price_seen_first: str | None
    """The day such a spot price was first seen, or a day by which it had been; null: not known."""
    price_source: str
    doubts: Sequence[str]
    """What is doubtful about its price or software, also what the price's range takes in."""
    doubt_reasons: Mapping[str, str]
    """What each of them means, by word."""
    cautions: Sequence[str]
    """The doubts that keep it from being chosen."""
    other_prices: Sequence[OtherPrice]
    """What other sources say that the offer costs."""
    batch_size: int
    global_batch_size: int
    max_batch_size: int
    step_time_s: Estimate
    step_time_from: str
    step_is_checked: bool
    """Whether predictions for such a GPU were ever held against a measurement."""
    samples: float | None
    time_parts_s: Mapping[str, float]
    """How long the machine is held for what, by the name of the line it is billed in."""
    sessions: float | None
    interruptions: float | None
    checkpoint_interval_s: float | None
    run_time_s: Estimate | None
    calendar_time_s: Estimate | None
    before_renting_s: float | None
    """Bringing the data to where it is kept before the machine is rented: in the calendar time,
    not in the machine's."""
    data_copied_by: str | None
    """What does that: `no machine`, or a `copying machine`, which is a line; null where nothing
    has to be brought."""
    cost_usd: Estimate | None
    expected_cost_usd: float | None
    """The mean of its simulated bills: what is ranked by, unless `prefer.risk` says otherwise."""
    trouble_usd: float
    """What it asks of a person, in money: in no line of the bill, but in the ranking."""
    cash_upfront_usd: float
    """What must be paid on the first day, whatever share of it this run bears; 0 where nothing."""
    cash_upfront: Sequence[PaymentDocument]
    """What that is made of."""
    cash_not_known: Sequence[str]
    """What must be paid beforehand in an amount that is not known, and is not in the sum."""
    due_if_stopped_usd: float
    """What a commitment leaves due to the end of its term if one stops right after the first day;
    it falls evenly to 0 at the end."""
    lines: Sequence[LineDocument]
    not_priced: Sequence[str]
    usd_per_million_samples: float | None
    training_usd_per_million_samples: float | None
    fits: bool
    within_budget: bool
    within_budget_chance: float | None
    meets_deadline: bool
    meets_deadline_chance: float | None
    on_frontier: bool
    condition: str | None
    """What must still be true when one acts."""
    why_not: str | None
    notes: Sequence[str]


def option_document(option: Option) -> OptionDocument:
    """One option of a plan."""
    offer, step, run, ranges = option.offer, option.step, option.run, option.ranges
    cash, price = option.cash, option.price_usd_per_hour
    return OptionDocument(
        rank=option.rank,
        provider=offer.provider,
        instance=offer.instance,
        gpu=offer.gpu,
        spread=spread_document(step),
        tenancy=option.tenancy,
        term=None if offer.commitment is None else offer.commitment.name,
        keeping=option.keeping or None,
        region=offer.region,
        zone=(offer.zone.zone or None) if offer.zone and option.tenancy == "spot" else None,
        price_usd_per_hour=price.likely if price and offer.owned is None else None,
        price_range_usd_per_hour=price if offer.owned is None else None,
        quoted_usd_per_hour=offer.hourly_usd(option.tenancy),
        price_seen_first=(
            offer.zone.seen_first if offer.zone and option.tenancy == "spot" else None
        ),
        price_as_of=offer.seen_on(option.tenancy) or None,
        price_source=offer.source,
        doubts=option.price_doubts,
        doubt_reasons=doubt_reasons(offer, option.price_doubts),
        other_prices=offer.other_prices,
        cautions=[*option.doubts, *([option.scarcity] if option.scarcity else [])],
        batch_size=step.batch_size,
        global_batch_size=step.global_batch_size,
        max_batch_size=step.max_batch_size,
        step_time_s=step.step_time_s,
        step_time_from=step.time_from,
        step_is_checked=step.is_checked,
        samples=option.samples,
        time_parts_s={}
        if run is None
        else {name: float(time_s) for name, time_s in run.time_parts_s},
        sessions=None if run is None else float(run.sessions),
        interruptions=None if run is None else float(run.interruptions),
        checkpoint_interval_s=None if run is None else float(run.checkpoint_interval_s),
        run_time_s=ranges.run_time_s if ranges else None,
        calendar_time_s=ranges.calendar_s if ranges else None,
        before_renting_s=None if run is None else float(run.before_s),
        data_copied_by=(option.route.copied_by or None) if option.route else None,
        cost_usd=ranges.cost_usd if ranges else None,
        expected_cost_usd=option.expected_cost_usd,
        trouble_usd=option.trouble_usd,
        cash_upfront_usd=float(cash.upfront_usd),
        cash_upfront=[
            copied(PaymentDocument, payment, usd=float(payment.usd)) for payment in cash.payments
        ],
        cash_not_known=cash.unknown,
        due_if_stopped_usd=float(cash.due_usd()),
        lines=_line_documents(option, ranges),
        not_priced=option.cost.unknown if option.cost else (),
        usd_per_million_samples=option.usd_per_million_samples,
        training_usd_per_million_samples=option.training_usd_per_million_samples,
        fits=option.fits,
        within_budget=option.within_budget,
        within_budget_chance=ranges.within_budget if ranges else None,
        meets_deadline=option.meets_deadline,
        meets_deadline_chance=ranges.meets_deadline if ranges else None,
        on_frontier=option.on_frontier,
        condition=option.condition,
        why_not=option.why_not,
        notes=option.notes,
    )


def _line_documents(option: Option, ranges: Ranges | None) -> list[LineDocument]:
    lines = option.cost.breakdown.lines if option.cost else ()
    return [
        LineDocument(
            name=line.name,
            usd=float(line.usd),
            low=None if usd is None else usd.low,
            high=None if usd is None else usd.high,
            basis=line.basis,
            source=line.source,
        )
        for line, usd in zip_longest(lines, ranges.lines if ranges else ())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEvenDocument:
    """When buying a machine has cost less than renting the same work."""

    rent: str
    use_s: float | None
    life_use_s: float | None
    calendar_s: float | None
    owned_usd_per_hour: float
    rented_usd_per_hour: float
    purchase_usd: float
    resale_usd: float
    over_budget: str | None
    """Why the purchase cannot be paid on the first day, where the budget is below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwingDocument:
    """What one uncertain input does to the cost of an option."""

    name: str
    value: Estimate
    cost_usd: Estimate
    cheaper_then: int | None
    """The rank of the option that would be chosen instead, at one end of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedDocument:
    """What the cost of an option hangs on, the input that moves it most first."""

    rank: int
    why_not: str | None
    inputs: Sequence[SwingDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialDocument:
    """Trying the choice and its rival (by rank) for a while before the run."""

    first: int
    second: int
    cost_usd: float
    gain_usd: float
    second_wins: float
    worth_it: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesDocument:
    """The price list a plan was made with."""

    as_of: str
    age_days: int | None
    """On the day of the plan; null where that is not known."""
    kind: Literal["bundled", "refreshed", "past"]
    """The snapshot that comes with outlay, refreshed ones, or those of a day in the past."""
    name: str
    """In words: `the bundled snapshot of 2026-08-22`."""
    trust: str
    """Which doubts could be ranked: `usual`, `strict`, `all`, or doubts with commas between."""


def _prices_document(plan: Plan) -> PricesDocument:
    as_of = plan.prices.as_of
    age_days = days_between(as_of, plan.today) if plan.today else None
    return PricesDocument(
        as_of=as_of,
        age_days=age_days,
        kind=plan.prices.kind,
        name=plan.prices.name,
        trust=plan.prices.trust or "usual",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionDocument:
    """What was asked of a model, with what was decided where nothing was said."""

    model: str
    method: str | None
    """The recipe; null of a bundled profile."""
    settings: Mapping[str, Any]
    tokens: int | None
    """Of a sample; null where it is no text."""
    samples: float | None
    """That the model sees in one pass over the data; null where steps or a time are asked for."""
    epochs: float
    budget_usd: float | None
    deadline_s: float | None
    decided: Sequence[str]
    """One sentence for each thing that was decided."""


def question_document(answered: AnsweredQuestion) -> QuestionDocument:
    """A question as part of a document."""
    question = answered.question
    return QuestionDocument(
        model=answered.name,
        method=answered.method,
        settings=dict(question.settings),
        tokens=answered.tokens,
        samples=answered.samples,
        epochs=answered.epochs,
        budget_usd=question.budget_usd,
        deadline_s=question.deadline_s,
        decided=answered.defaults,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument(Document):
    """All options of a workload in order, and the choice."""

    workload: str
    currency: str
    """Of the workload file, and of what is printed without --json; amounts here are dollars."""
    usd_per_unit: float
    """One unit of that currency in dollars."""
    rate_as_of: str | None
    """The day of that rate; null for dollars and for a rate of the user's own."""
    question: QuestionDocument | None
    """What was asked of a model by its name; null of a workload file."""
    ranked_by: Literal["cost", "training cost per million samples"]
    hours_are_equal: bool | None
    """Of a length in hours: true where an hour counts the same on every machine, so that the
    cheapest is best; false where it counts by the work done in it; null for other lengths."""
    risk: Risk
    """What of an uncertain cost the order follows: its mean, its 90th percentile, or the sum of
    its likely lines."""
    options: Sequence[OptionDocument]
    """Those worth reading, by rank: the first, the chosen one, ties, the frontier, the best of each
    provider, GPU and tenancy, quotes, and every rank that is named elsewhere here."""
    options_total: int
    """How many there are: `--all` lists every one, `--max-options N` the first N."""
    chosen: OptionDocument | None
    tie: Sequence[int]
    """The ranks that cannot be told apart from the chosen one, its own included."""
    nearest: int | None
    """Where nothing satisfies the limits: the rank of the sound option nearest to it."""
    break_even: Mapping[str, BreakEvenDocument]
    """By the machine to buy."""
    explained: ExplainedDocument | None
    trial: TrialDocument | None
    prices: PricesDocument
    rests_on: Sequence[str]
    """What to know of the choice before acting on it: the age of its price, what was never
    measured, quota, how far its batch is from the published one, what of its bill is unknown."""
    assumptions: Sequence[str]


def plan_document(
    plan: Plan,
    name: str,
    most: int | None = None,
    *,
    explained: Option | None = None,
    question: AnsweredQuestion | None = None,
) -> PlanDocument:
    """`outlay plan --json`: the options worth reading, or the first `most`; the choice is always
    told.

    `explained` is the option whose inputs are looked at one by one; without it the choice.
    `question` is what was asked, where that was no file.
    """
    looked_at, trial = explained or plan.chosen, trial_value(plan)
    nearest = plan.nearest
    inputs = None if looked_at is None else _explained_document(plan, looked_at)
    if most is None:
        named = {one.cheaper_then for one in inputs.inputs} if inputs is not None else set()
        named |= {trial.first.rank, trial.second.rank} if trial is not None else set()
        named |= {one.rank for one in (looked_at, nearest) if one is not None}
        listed = _worth_reading(plan, named)
    else:
        listed = list(plan.options[:most])
    options = [option_document(option) for option in listed]
    return PlanDocument(
        workload=name,
        currency=plan.currency[0],
        usd_per_unit=plan.currency[1],
        rate_as_of=(plan.workload.rate_as_of or None) if plan.workload else None,
        question=None if question is None else question_document(question),
        ranked_by=plan.ranked_by,
        hours_are_equal=plan.hours_are_equal,
        risk=plan.risk,
        options=options,
        options_total=len(plan.options),
        chosen=None if plan.chosen is None else option_document(plan.chosen),
        tie=plan.tie,
        nearest=None if nearest is None else nearest.rank,
        break_even={even.buy: copied(BreakEvenDocument, even) for even in plan.break_even},
        explained=inputs,
        trial=None if trial is None else _trial_document(trial),
        prices=_prices_document(plan),
        rests_on=rests_on(plan),
        assumptions=[*plan.cautions, *plan.assumptions],
    )


_FIRST_LISTED = 50
"""Options by rank that JSON lists whatever they are."""


def _worth_reading(plan: Plan, named: Collection[int | None]) -> list[Option]:
    """The options of a plan that JSON lists where nobody asks for all; `named` are ranks."""
    ranks = {*plan.tie, *named}
    kept = {id(option) for option in best_of_each_kind(plan.options)}
    return [
        option
        for place, option in enumerate(plan.options)
        if place < _FIRST_LISTED
        or option.on_frontier
        or option.rank in ranks
        or id(option) in kept
        or option is plan.chosen
    ]


def _explained_document(plan: Plan, option: Option) -> ExplainedDocument:
    rivals = rivals_of(plan) if option is plan.chosen else ()
    inputs = [_swing_document(swing) for swing in swings(option, rivals)]
    return ExplainedDocument(rank=option.rank, why_not=option.why_not, inputs=inputs)


def _swing_document(swing: Swing) -> SwingDocument:
    winner = None if swing.winner is None else swing.winner.rank
    return SwingDocument(
        name=swing.name, value=swing.value, cost_usd=swing.usd, cheaper_then=winner
    )


def _trial_document(trial: TrialValue) -> TrialDocument:
    ranks = {"first": trial.first.rank, "second": trial.second.rank}
    return copied(TrialDocument, trial, **ranks, worth_it=trial.is_worth_it)


# `outlay offers` and `outlay gpus`


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketHostDocument:
    """What a marketplace says of a single host; null where it does not say."""

    disk_bytes_per_s: float | None
    download_bytes_per_s: float | None
    upload_bytes_per_s: float | None
    reliability_fraction: float | None
    verified: bool | None
    disk_usd_per_byte_month: float | None
    download_usd_per_byte: float | None
    upload_usd_per_byte: float | None
    available_s: float | None
    dlperf: float | None


def market_host_document(host: HostQuality | None) -> MarketHostDocument | None:
    """A single host; None for other offers."""
    return None if host is None else copied(MarketHostDocument, host)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferDocument:
    """A machine, a place, a price, and the day the price was seen."""

    provider: str
    instance: str
    gpu: str
    gpus: int
    gpu_share: float
    gpu_memory_bytes: float | None
    vcpus: float | None
    ram_bytes: float | None
    local_disk_bytes: float | None
    region: str
    zones: int
    price_usd_per_hour: float | None
    spot_usd_per_hour: float | None
    spot_high_usd_per_hour: float | None
    as_of: str
    source: str
    doubts: Sequence[str]
    doubt_reasons: Mapping[str, str]
    """What each of them means, by word."""
    cautions: Sequence[str]
    """The doubts that keep it from being chosen, on demand or as spot."""
    other_prices: Sequence[OtherPrice]
    """What it costs by other sources, or cost before."""
    host: MarketHostDocument | None
    """Of a single host of a marketplace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffersDocument(Document):
    """Offers, in the order asked for."""

    offers: Sequence[OfferDocument]


def offers_document(offers: Sequence[Offer]) -> OffersDocument:
    """`outlay offers --json`."""
    return OffersDocument(offers=[_offer_document(offer) for offer in offers])


def _offer_document(offer: Offer) -> OfferDocument:
    words = [doubt.word for doubt in offer.doubts]
    cautions = [doubt.word for doubt in offer.doubts if doubt.kind in ("caution", "no price")]
    return copied(
        OfferDocument,
        offer,
        doubts=words,
        doubt_reasons=doubt_reasons(offer, words),
        cautions=cautions,
        host=market_host_document(offer.host),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FactDocument:
    """One value as it stands in the table of facts, with a unit, a source and a date."""

    value: str | None
    unit: str
    source: str
    as_of: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDocument:
    """One GPU in outlay's units, and the rows behind it as they stand in the table."""

    gpu: str
    vendor: str
    architecture: str
    form: str
    memory_bytes: float
    usable_bytes: float
    memory_bytes_per_s: float
    sm_count: int
    boost_hz: float
    peak_flops_per_s: Mapping[str, float]
    tdp_w: float
    compute_capability: str
    pytorch_runs: Literal["yes", "old builds", "special build", "no", "unknown"]
    facts: Mapping[str, FactDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusDocument(Document):
    """GPUs with every fact about them."""

    gpus: Sequence[GpuDocument]


def gpus_document(gpus: Sequence[Gpu]) -> GpusDocument:
    """`outlay gpus --json`: every fact with its unit, source and date."""
    return GpusDocument(gpus=[gpu_document(gpu) for gpu in gpus])


def gpu_document(gpu: Gpu) -> GpuDocument:
    """One GPU."""
    runs, facts = gpu.software.runs, fact_documents(gpu.facts)
    return copied(GpuDocument, gpu, gpu=gpu.name, pytorch_runs=runs, facts=facts)


def fact_documents(facts: Mapping[str, Fact]) -> dict[str, FactDocument]:
    """Facts by name."""
    return {name: copied(FactDocument, fact, value=fact.text) for name, fact in facts.items()}


# `outlay predict` and `outlay host`


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionDocument:
    """A step on the GPUs of one machine or several: its time, its memory, and what bounds it."""

    gpu: str
    asked: str
    """The GPU as it was spelled."""
    spread: SpreadDocument = field(metadata=FLATTEN)
    batch_size: int
    global_batch_size: int
    step_time_s: Estimate
    step_time_from: str
    step_is_checked: bool
    """Whether predictions for such a GPU were ever held against a measurement."""
    compiled: str | None
    """The mode of torch.compile that the step is predicted in; null: eager code."""
    host_time_s: float
    device_time_s: float
    device_time_by_kind_s: Mapping[str, float]
    input_time_s: float
    exchange_time_s: Estimate
    waiting_time_s: float
    samples_per_s: float | None
    bound: Bound
    mfu: float
    flops_per_step: float
    parameters: int
    peak_allocated_bytes: Estimate
    peak_reserved_bytes: Estimate
    context_bytes: float
    available_bytes: float
    fits: bool
    max_batch_size: int
    notes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionsDocument(Document):
    """A step on each of the GPUs asked for."""

    target: str
    predictions: Sequence[PredictionDocument]


def predictions_document(
    target: str, predictions: Sequence[tuple[str, StepPrediction, tuple[str, ...]]]
) -> PredictionsDocument:
    """`outlay predict --json`; of each machine its spelling, its step and notes."""
    return PredictionsDocument(
        target=target, predictions=[_prediction_document(*prediction) for prediction in predictions]
    )


def _prediction_document(
    spelling: str, step: StepPrediction, notes: tuple[str, ...]
) -> PredictionDocument:
    return PredictionDocument(
        gpu=step.placement.gpu.name,
        asked=spelling,
        spread=spread_document(step),
        batch_size=step.batch_size,
        global_batch_size=step.global_batch_size,
        step_time_s=step.step_time_s,
        step_time_from=step.time_from,
        step_is_checked=step.is_checked,
        compiled=step.compiled,
        host_time_s=step.host_time_s,
        device_time_s=step.device_time_s,
        device_time_by_kind_s={str(kind): time_s for kind, time_s in step.by_kind_s.items()},
        input_time_s=step.input_s,
        exchange_time_s=step.exchange_s,
        waiting_time_s=step.waiting_s,
        samples_per_s=step.samples_per_s if step.batch_size else None,
        bound=step.bound,
        mfu=step.mfu,
        flops_per_step=step.flops,
        parameters=step.parameters,
        peak_allocated_bytes=step.memory.allocated_bytes,
        peak_reserved_bytes=step.memory.reserved_bytes,
        context_bytes=step.memory.context_bytes,
        available_bytes=step.memory.available_bytes,
        fits=step.fits,
        max_batch_size=step.max_batch_size,
        notes=notes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDocument(Document):
    """How fast a host issues operations."""

    speed: float
    step_s: float
    spread: float
    samples: int


def host_document(test: HostTest) -> HostDocument:
    """`outlay host --json`."""
    return copied(HostDocument, test, schema=SCHEMA)


# `outlay profiles` and `outlay trace`


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileDocument:
    """A profile's head: what it is and where it came from."""

    name: str
    description: str
    sample: str
    parameters: int
    trainable_parameters: int
    flops_per_sample: float
    traced_batch_sizes: Sequence[int]
    traced_on: str
    versions: Mapping[str, str]
    unknown_ops: Mapping[str, float]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilesDocument(Document):
    """The bundled profiles."""

    profiles: Sequence[ProfileDocument]


def profiles_document(profiles: Sequence[Profile]) -> ProfilesDocument:
    """`outlay profiles --json`."""
    return ProfilesDocument(profiles=[profile_document(profile) for profile in profiles])


def profile_document(profile: Profile) -> ProfileDocument:
    """A profile's head."""
    return copied(
        ProfileDocument,
        profile,
        flops_per_sample=profile.at(16).flops / 16,
        traced_batch_sizes=sorted(profile.memory),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseDocument:
    """What one phase takes in a step."""

    phase: Phase
    operations: float
    kernels: float
    flops: float
    moved_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakDocument:
    """Memory at the moment of the step's peak."""

    bytes: float
    categories_bytes: Memory
    context_bytes: float
    workspace_gpu: str
    operation: int
    operations: int
    operator: str
    phase: Phase
    call_site: CallSite | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationDocument:
    """Identical operations from one line of code; amounts are of all of them in a step."""

    operator: str
    kind: Kind
    phase: Phase
    precision: Precision
    count: float
    flops: float
    moved_bytes: float
    shapes: Sequence[Sequence[int]]
    call_site: CallSite | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemoryDocument:
    """What a step needs on one GPU: at a batch size, or at the largest that fits."""

    gpu: str
    asked: str
    """The GPU as it was spelled."""
    batch_size: int
    peak_allocated_bytes: Estimate
    peak_reserved_bytes: Estimate
    context_bytes: float
    available_bytes: float
    fits: bool
    max_batch_size: int
    verified: bool
    """Whether the step was traced at the largest batch and fits."""
    notes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDocument(Document):
    """The step at one batch size, GPUs, and the profile if one was saved."""

    name: str
    target: str
    batch_size: int
    period: int
    parameters: int
    trainable_parameters: int
    flops_per_step: float
    moved_bytes_per_step: float
    phases: Sequence[PhaseDocument]
    peak: PeakDocument
    heaviest_by_flops: Sequence[OperationDocument]
    heaviest_by_bytes: Sequence[OperationDocument]
    unknown_ops: Mapping[str, float]
    unknown_moved_fraction: float
    notes: Sequence[str]
    versions: Mapping[str, str]
    traced_on: str
    from_cache: bool
    """Whether it was traced earlier, and nothing that it depends on has changed since."""
    gpus: Sequence[GpuMemoryDocument]
    profile: ProfileDocument | None


def trace_document(
    report: StepReport, profile: Profile | None = None, on_gpus: Sequence[GpuMemory] = ()
) -> TraceDocument:
    """`outlay trace --json`."""
    return copied(
        TraceDocument,
        report,
        schema=SCHEMA,
        flops_per_step=report.flops,
        moved_bytes_per_step=report.moved_bytes,
        phases=[_phase_document(total) for total in report.phases],
        peak=_peak_document(report.peak, report.timeline.operations),
        heaviest_by_flops=[_operation_document(op) for op in report.heaviest_by_flops()],
        heaviest_by_bytes=[_operation_document(op) for op in report.heaviest_by_bytes()],
        gpus=[_gpu_memory_document(on_gpu) for on_gpu in on_gpus],
        profile=None if profile is None else profile_document(profile),
    )


def _phase_document(total: PhaseTotal) -> PhaseDocument:
    return copied(PhaseDocument, total, kernels=total.launches)


def _peak_document(peak: MemoryPoint, operations: int) -> PeakDocument:
    return PeakDocument(
        bytes=peak.memory.peak_bytes,
        categories_bytes=peak.memory,
        context_bytes=reference_gpu().libraries.context_bytes,
        workspace_gpu=REFERENCE_GPU,
        operation=peak.operation,
        operations=operations,
        operator=peak.name,
        phase=peak.phase,
        call_site=peak.site,
    )


def _operation_document(op: HeavyOp) -> OperationDocument:
    return copied(OperationDocument, op, operator=op.name, call_site=op.site)


def _gpu_memory_document(on_gpu: GpuMemory) -> GpuMemoryDocument:
    return copied(
        GpuMemoryDocument,
        on_gpu,
        gpu=on_gpu.gpu.name,
        peak_allocated_bytes=on_gpu.memory.allocated_bytes,
        peak_reserved_bytes=on_gpu.memory.reserved_bytes,
        context_bytes=on_gpu.memory.context_bytes,
        available_bytes=on_gpu.memory.available_bytes,
        verified=on_gpu.is_verified,
    )
