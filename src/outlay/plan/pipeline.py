"""outlay on one page: workload -> profile -> prediction -> cost -> plan.

    read_workload    what to train, for how long, within which limits      workload/file.py
    profile_for      one training step, operation by operation             plan/from_measurement.py
    evidence_for     what was measured of it, to correct predictions by    plan/from_measurement.py
    candidates       every offer worth a look, the user's own included     offers/candidates.py
    steps_on         its time and memory on a machine's GPUs               plan/placement.py
    planner_of       each offer as an option: run, bill, ranges            here
    run_of           the whole run: sessions, set-up, interruptions        predict/run_time.py
    cost_of          what that costs, in the lines of a bill               cost/bill.py
    rank_options     the order, the choice, and why each loser lost        plan/ranking.py

Facts come from the tables in `data/`; everything from `predict` to `plan` is values in, values out.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice, product

import numpy as np

from outlay.cost.bill import Bill, cost_of
from outlay.cost.cash import Cash, cash_of
from outlay.cost.lines import Cost
from outlay.currency import refuse_day_to_come
from outlay.errors import InputError
from outlay.facts import assumed, assumed_range
from outlay.offers.candidates import (
    BestHosts,
    HostRuns,
    best_hosts,
    candidates,
    host_charges,
    host_needs,
)
from outlay.offers.catalog import offer_gpus, reserved_offers
from outlay.offers.expected_price import expected_price, highest_price, weeks_since
from outlay.offers.instances import links_of
from outlay.offers.offer import Offer, Tenancy
from outlay.offers.places import (
    DataRoute,
    data_distance,
    data_route,
    place_for,
    place_of_offer,
    with_known_places,
)
from outlay.offers.price_book import PriceBook, bundled_book, trusted_book
from outlay.offers.spot import spot_risk
from outlay.offers.terms import (
    Terms,
    has_network_volumes,
    kept_on_volumes,
    missing_quality,
    terms_for,
)
from outlay.plan.assumptions import (
    data_notes,
    option_notes,
    plan_assumptions,
    plan_cautions,
    scarcity_note,
)
from outlay.plan.from_measurement import (
    at_measured_batch,
    evidence_for,
    profile_for,
    with_measured_pauses,
)
from outlay.plan.model_step import with_model_defaults
from outlay.plan.option import RANKED, Option, Outcome, draws_of
from outlay.plan.placement import steps_on
from outlay.plan.ranking import (
    Plan,
    Total,
    break_evens,
    choose,
    equal_work,
    rank_options,
    shortlist,
)
from outlay.plan.simulation import (
    Forecast,
    Judgement,
    PriceCurve,
    SimulatedKind,
    Simulation,
    forecast_of,
    in_proportion,
    price_curve,
    simulation_of,
)
from outlay.predict.evidence import NO_EVIDENCE, NOTHING_LEARNED, Evidence, LearnedCalibration
from outlay.predict.run_time import (
    NeverEnds,
    Run,
    SessionOverheads,
    drawn_step_s,
    optimizer_steps,
    pace_of,
    run_of,
)
from outlay.predict.step import StepPrediction
from outlay.progress import Progress, silent
from outlay.trace.profile import Profile
from outlay.trace.trace_cache import TraceCache
from outlay.uncertainty import LIKELY, Draws, Estimate, Number, Sampler, Uncertain, mean_of
from outlay.units import DAY_S, GB, GIB, WEEK_S
from outlay.workload.workload import WITH_THE_RUN, Workload


def plan_workload(
    workload: Workload,
    profile: Profile | None = None,
    *,
    measured: Sequence[str] = (),
    learned: LearnedCalibration = NOTHING_LEARNED,
    evidence: Evidence | None = None,
    today: str = "",
    prices: PriceBook | None = None,
    cache: TraceCache | bool = True,
    progress: Progress = silent,
) -> Plan:
    """The plan of a workload: every candidate predicted, priced, ranked and explained.

    profile: the step's operations; without it, what the workload names is read or traced.
    measured: files of `outlay probe`, beside those that the workload names.
    learned: what earlier measurements of any training taught (`learned_calibration`).
    evidence: all that was measured, where it is at hand already.
    today: YYYY-MM-DD, the day the run would begin: prices are as old as they are then, and what
        providers have stopped selling is left out. Without it prices count as seen today.
    prices: what to plan with (`current_prices`, `past_prices`); without them, the bundled ones.
        With prices of the past the plan is made for their day, whatever today is.
    cache: where traces are kept; True is the user's own place, False nowhere.
    progress: hears how far the trace and the plan are.
    """
    refuse_day_to_come(workload.currency, workload.currency_day, today)
    today = today if prices is None else prices.day_of_plan(today)
    profile = profile or profile_for(
        workload.step, measured=measured, cache=cache, progress=progress
    )
    inputs = _inputs(
        workload, profile, measured=measured, learned=learned, evidence=evidence, today=today
    )
    inputs = replace(inputs, prices=_trusted(prices, workload.prefer.trust))
    with _without_collecting():
        return _plan_all(inputs, progress)


def _trusted(prices: PriceBook | None, trust: str) -> PriceBook | None:
    """Prices at the trust that a workload asks for, unless they were given with one."""
    if not trust or (prices is not None and prices.trust):
        return prices
    return trusted_book(prices or bundled_book(), trust)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    """What a plan is made from: the workload with what measurements and places say of it."""

    workload: Workload
    profile: Profile
    evidence: Evidence
    notes: tuple[str, ...]
    """What was taken over from measurements beside the step's time."""
    today: str = ""
    prices: PriceBook | None = None


def _inputs(
    workload: Workload,
    profile: Profile | None,
    *,
    measured: Sequence[str] = (),
    learned: LearnedCalibration = NOTHING_LEARNED,
    evidence: Evidence | None = None,
    today: str = "",
) -> _Inputs:
    profile = profile or profile_for(workload.step)
    evidence = evidence or evidence_for(workload.step, profile, learned, measured)
    workload, notes = with_measured_pauses(workload, measured)
    workload, decided = with_model_defaults(workload, profile)
    workload = with_known_places(replace(workload, step=at_measured_batch(workload.step)))
    return _Inputs(
        workload=workload,
        profile=profile,
        evidence=evidence,
        notes=(*notes, *decided),
        today=today,
    )


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Without the garbage collector: what a plan is made of lives to its end, and looking for
    garbage among it takes as long as making it. It has no cycles, so that it needs no collector
    to be freed, and is left out of later rounds."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.enable()


_TOLD_EVERY = 100
"""Offers after which it is said how far a plan is."""


def _tell(progress: Progress, place: int, variants: int, share: float) -> None:
    progress("Predicting and pricing every offer ...", place + share, variants)


def _plan_all(inputs: _Inputs, progress: Progress) -> Plan:
    """The plan of every candidate, in all numbers of machines and places of data to compare."""
    workload = inputs.workload
    alone = planner_of(_with_machines(workload, 1), inputs.profile, inputs.evidence, inputs.today)
    listed = candidates(workload, inputs.today, inputs.prices)
    best = best_hosts(listed, workload, alone)
    offers = _with_terms(best, workload, "" if inputs.prices is None else inputs.prices.day)
    variants = [
        (number, variant)
        for number, machines in enumerate(_machines_tried(workload))
        for variant in _storage_variants(_with_machines(workload, machines))
    ]
    options: list[Option] = []
    for place, (number, variant) in enumerate(variants):
        here = [offer for offer in offers if offer.owned is None or number == 0]
        telling = partial(_tell, progress, place, len(variants))
        options += _options(replace(inputs, workload=variant), here, best.beaten, telling)
    if not options:
        raise _no_candidate(inputs.prices)
    return _plan(inputs, options, offers, best.notes)


def _no_candidate(prices: PriceBook | None) -> InputError:
    then = f" among {prices.name}" if prices is not None and prices.kind == "past" else ""
    return InputError(
        "No candidate is left to plan with.",
        why=f"What [consider] and [leave_out] ask for matches no offer{then}.",
        fix="Loosen them, add an [[offer]], or look at `outlay offers`.",
    )


def _plan(
    inputs: _Inputs,
    options: Sequence[Option],
    offers: Sequence[Offer],
    notes: tuple[str, ...] = (),
) -> Plan:
    today, evidence = inputs.today, inputs.evidence
    ranked = rank_options(options, today)
    chosen = choose(ranked)
    prices = inputs.prices or bundled_book()
    assumptions = plan_assumptions(
        inputs.workload,
        inputs.profile,
        assumed_overheads(),
        offers,
        today,
        evidence.measured,
        prices,
    )
    return Plan(
        options=ranked,
        chosen=chosen,
        break_even=break_evens(ranked),
        assumptions=(*assumptions, *notes, *data_notes(chosen), *evidence.notes, *inputs.notes),
        cautions=plan_cautions(evidence.measured, inputs.workload, offers),
        profile=inputs.profile,
        workload=inputs.workload,
        measured=tuple(evidence.measured),
        today=today,
        prices=prices,
    )


def _with_terms(best: BestHosts, workload: Workload, day: str) -> list[Offer]:
    """The offers, and those that can be taken for a term where the use goes on for long.

    `day`: of prices of the past, which no later discount is taken off.
    """
    usage, offers = workload.usage, best.offers
    if usage.horizon_s is None and "reserved" not in workload.consider.tenancies:
        return list(offers)
    terms = (
        reserved
        for offer in offers
        if (id(offer), "on-demand") not in best.beaten
        for reserved in reserved_offers(offer, day)
    )
    return [*offers, *terms]


def rank_offers(
    workload: Workload,
    offers: Sequence[Offer],
    profile: Profile | None = None,
    *,
    today: str = "",
) -> Plan:
    """The plan of these offers alone, every one of them an option with its bill."""
    inputs = _inputs(workload, profile, today=today)
    with _without_collecting():
        return _plan(inputs, _options(inputs, offers), offers)


def best_offers(
    workload: Workload,
    offers: Iterable[Offer],
    profile: Profile | None = None,
    *,
    keep: int = 1000,
    today: str = "",
) -> Plan:
    """The plan of any number of offers, in memory for the best `keep` of them and the frontier.

    All lines of all offers are worked out, those of a kind (same step, provider and tenancy)
    together; what is kept is ranked as every plan is.
    """
    inputs = _inputs(workload, profile, today=today)
    planner = planner_of(inputs.workload, inputs.profile, inputs.evidence, today)
    best: list[Total] = []
    with _without_collecting():
        for chunk in _chunks(offers):
            best = shortlist([*best, *planner.totals(chunk)], keep + keep // 4 + 10)
        options = _kept([planner.option(total.offer, total.tenancy) for total in best], keep)
    return _plan(inputs, options, [option.offer for option in options])


def _kept(options: Sequence[Option], keep: int) -> list[Option]:
    """The best sound options and the frontier, by their own draws: what was shortlisted by mean
    prices is a little more than is kept."""
    sound = [option for option in options if option.sound]
    equal = equal_work(options)
    totals = [
        Total(option.merit_usd, option.paid_usd, option.busy_s, option.offer, option.tenancy)
        if equal
        else Total(
            option.training_merit_usd,
            option.training_merit_usd,
            option.training_s_per_sample,
            option.offer,
            option.tenancy,
        )
        for option in sound
    ]
    kept = {(id(total.offer), total.tenancy) for total in shortlist(totals, keep)}
    return [option for option in sound if (id(option.offer), option.tenancy) in kept]


_CHUNK = 50_000


def _chunks(offers: Iterable[Offer]) -> Iterator[list[Offer]]:
    source = iter(offers)
    while chunk := list(islice(source, _CHUNK)):
        yield chunk


def _machines_tried(workload: Workload) -> list[int]:
    """Numbers of machines to compare, fewest first: of one's own machines there are no more."""
    return sorted(workload.usage.machines_tried) or [workload.usage.machines]


def _with_machines(workload: Workload, machines: int) -> Workload:
    return replace(workload, usage=replace(workload.usage, machines=machines))


def _storage_variants(workload: Workload) -> Iterator[Workload]:
    """The workload with what is stored at each of the places to compare."""
    places = [(item.at, *item.also_at) for item in workload.stored]
    for chosen in product(*places):
        stored = tuple(
            replace(item, at=at, also_at=(item.at, *item.also_at) if item.also_at else ())
            for item, at in zip(workload.stored, chosen, strict=True)
        )
        yield replace(workload, stored=stored)


def _options(
    inputs: _Inputs,
    offers: Sequence[Offer],
    beaten: Set[tuple[int, Tenancy]] = frozenset(),
    on_share: Callable[[float], None] = lambda _: None,
) -> list[Option]:
    """Every offer in every tenancy that the workload allows and that is not beaten.

    `on_share` hears what share of the offers is done.
    """
    workload = inputs.workload
    planner = planner_of(workload, inputs.profile, inputs.evidence, inputs.today)

    def counted() -> Iterator[Offer]:
        for number, offer in enumerate(offers):
            if number % _TOLD_EVERY == 0:
                on_share(number / len(offers))
            yield offer

    return [
        planner.option(offer, tenancy)
        for offer in counted()
        if storage_note(workload, offer) is not None
        for tenancy in planner.tenancies(offer)
        if (id(offer), tenancy) not in beaten
    ]


# One offer after the other, predicted and priced
#
# An offer alone becomes an `Option` with its bill. Offers that differ in the price alone can be
# billed together: the lines of a bill are worked out on all their prices at once.


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """What every option of one plan shares."""

    workload: Workload
    profile: Profile
    overheads: Callable[[Offer], SessionOverheads]
    predict: Callable[[Offer], StepPrediction]
    terms: Callable[[str], Terms]
    interest_per_year: Uncertain = 0.0
    """On what is paid upfront for a commitment."""
    today: str = ""
    """The day the run would start, YYYY-MM-DD; without it prices count as seen today."""
    runs: dict[object, tuple[StepPrediction, Run]] = field(default_factory=dict)
    """Likely runs by what they depend on; each with its step, whose identity is in the key."""
    drawn_runs: dict[object, tuple[StepPrediction, Sampler, Run]] = field(default_factory=dict)
    """Runs as samplers drew them, of what was last asked for."""
    simulated: dict[object, SimulatedKind] = field(default_factory=dict)
    """Simulated runs of the kinds of offers that were last asked for."""
    curves: dict[object, PriceCurve] = field(default_factory=dict)
    """What each kind of offer is ranked by, by its price."""

    def option(self, offer: Offer, tenancy: Tenancy) -> Option:
        """One offer in one tenancy, predicted and priced."""
        step = self.predict(offer)
        route = data_route(self.workload, offer, self.terms)
        run, cost, blocked = None, None, None
        if step.fits:
            try:
                run = self._run(offer, tenancy, step, LIKELY, route)
            except NeverEnds as error:
                blocked = str(error)
            except InputError:
                if offer.host is None:
                    raise
                blocked = "fetching the data leaves no time to train in a session"
        price = self._price(offer, tenancy, 0.0 if run is None else float(run.calendar_s))
        if run is not None and price is not None:
            cost = self._priced(offer, tenancy, run, step, price.likely, LIKELY)
        return Option(
            offer=offer,
            tenancy=tenancy,
            step=step,
            samples=_samples(self.workload, step, run),
            work=_work(self.workload, step, run),
            run=run,
            price_usd_per_hour=price,
            cost=cost,
            limits=self.workload.limits,
            prefer=self.workload.prefer,
            blocked=blocked or self._blocked(offer, run),
            outcome=partial(self._outcome, offer, tenancy, step, price),
            cash_of=partial(self._cash, offer, tenancy, price),
            simulate=partial(self._simulation, offer, tenancy, step, price),
            foresee=partial(self._forecast, offer, tenancy, step, price),
            keeping=storage_note(self.workload, offer) or "",
            data_distance=data_distance(self.workload, offer),
            needs_quota=self.terms(offer.provider).quality("quota") == "apply",
            notes=option_notes(offer, tenancy, self.profile, step),
            route=route,
            scarcity=scarcity_note(tenancy, step),
        )

    def _blocked(self, offer: Offer, run: Run | None) -> str | None:
        """Why an offer cannot be taken, beside memory, price, budget and deadline."""
        limits, terms = self.workload.limits, self.terms(offer.provider)
        memory_bytes = offer.gpu_memory_bytes or min(gpu.memory_bytes for gpu in offer_gpus(offer))
        if limits.gpu_memory_bytes is not None and memory_bytes < 0.97 * limits.gpu_memory_bytes:
            return f"its GPU has {memory_bytes / GIB:,.0f} GiB, less than asked for"
        expected = 0.0 if run is None else float(run.interruptions)
        if limits.interruptions is not None and expected > limits.interruptions:
            return f"{expected:.2g} interruptions to expect, more than allowed"
        if not has_network_volumes(terms, offer.instance):
            on_volumes = kept_on_volumes(self.workload, offer.provider)
            if on_volumes:
                return (
                    f"{terms.name} has no network volumes on such machines: keep the "
                    f"{' and the '.join(on_volumes)} on the machine's own disk "
                    '(storage = "disk") or elsewhere'
                )
        if offer.host is not None:
            reason = _host_reason(self.workload, offer, run, self.today)
            if reason is not None:
                return reason
        if offer.gpu_share < 1 and self.workload.length.is_equal_hours:
            return f"its hours are of {offer.gpu_share:.3g} of a GPU, not of a whole one"
        return missing_quality(terms, dict(self.workload.prefer.qualities))

    def _price(self, offer: Offer, tenancy: Tenancy, run_s: float) -> Estimate | None:
        """What an hour is expected to cost over a run that begins today: in its middle."""
        if offer.owned is not None:
            return Estimate.exactly(0.0)
        if offer.commitment is not None:
            return Estimate.of(offer.commitment.price_usd_per_hour)
        weeks = weeks_since(offer.seen_on(tenancy), self.today)
        if tenancy == "spot" or not offer.is_promised:  # what one was promised holds for the run
            weeks += run_s / 2 / WEEK_S
        return expected_price(offer, tenancy, weeks)

    def _outcome(
        self,
        offer: Offer,
        tenancy: Tenancy,
        step: StepPrediction,
        price: Estimate | None,
        sampler: Sampler,
    ) -> Outcome:
        """The run on an offer and what it costs, as the sampler draws it."""
        run = self._run(offer, tenancy, step, sampler)
        price_usd = _drawn_price(offer, tenancy, price, sampler)
        if price_usd is None:
            return run, None
        return run, self._priced(offer, tenancy, run, step, price_usd, sampler)

    def _simulation(
        self,
        offer: Offer,
        tenancy: Tenancy,
        step: StepPrediction,
        price: Estimate | None,
        draws: Draws,
    ) -> Simulation:
        """What an offer is compared by, in simulated runs that offers of a kind share."""
        price_usd = _drawn_price(offer, tenancy, price, draws)
        if price_usd is None:
            run = self._run(offer, tenancy, step, draws)
            return simulation_of(run, None, 1.0, is_owned=False)
        return self._simulated_kind(offer, tenancy, step, draws).at(price_usd)

    def _forecast(
        self,
        offer: Offer,
        tenancy: Tenancy,
        step: StepPrediction,
        price: Estimate | None,
        draws: Draws,
    ) -> Forecast:
        """The same in short."""
        price_usd = _drawn_price(offer, tenancy, price, draws)
        if price_usd is None:
            runs = self._simulation(offer, tenancy, step, price, draws)
            return forecast_of(runs, self.workload.limits)
        return self._simulated_kind(offer, tenancy, step, draws).forecast(price_usd)

    def _simulated_kind(
        self, offer: Offer, tenancy: Tenancy, step: StepPrediction, draws: Draws
    ) -> SimulatedKind:
        """The simulated runs that an offer shares with all whose bills differ in the price alone:
        one provider's with the same step, interruptions and set-up."""
        key = (
            tenancy, offer.provider, id(step), _rate(offer, tenancy), offer.setup_s,
            id(self.overheads(offer)), *self._billed_by(offer), draws.size,
        )  # fmt: skip
        kind = self.simulated.pop(key, None)
        if kind is None:
            kind = self._simulate_kind(offer, tenancy, step, draws)
            if len(self.simulated) >= _KINDS_KEPT:
                self.simulated.pop(next(iter(self.simulated)))
        self.simulated[key] = kind
        return kind

    def _billed_by(self, offer: Offer) -> tuple[object, ...]:
        """What of an offer its bill depends on, beside its price, its run and its provider."""
        return (
            offer.owned, offer.commitment, offer.has_disk_apart,
            offer.local_disk_bytes if offer.has_disk_apart else None,
            has_network_volumes(self.terms(offer.provider), offer.instance),
            offer.setup_cost_usd, self._region(offer), host_charges(self.workload, offer),
        )  # fmt: skip

    def _simulate_kind(
        self, offer: Offer, tenancy: Tenancy, step: StepPrediction, draws: Draws
    ) -> SimulatedKind:
        run = self._run(offer, tenancy, step, draws)
        samples = _drawn_samples(self.workload, step, run, draws)

        def billed(usd_per_hour: Number) -> Simulation:
            cost = self._priced(offer, tenancy, run, step, usd_per_hour, draws)
            return simulation_of(run, cost, samples, is_owned=offer.owned is not None)

        kind = SimulatedKind(step=step, limits=self.workload.limits, billed=billed)
        return in_proportion(kind, draws.size) if self._is_linear(offer.provider) else kind

    def _is_linear(self, provider: str) -> bool:
        """Whether bills there grow in proportion to the price of an hour."""
        has_credit = any(terms.credit_usd for terms in self.workload.terms)
        return self.terms(provider).block_usd is None and not has_credit

    def totals(self, offers: Iterable[Offer]) -> Iterator[Total]:
        """Cost and time of every offer in every tenancy that can be taken."""
        groups: dict[tuple[Tenancy, str, object], list[Offer]] = {}
        for offer in offers:
            for tenancy in self.tenancies(offer):
                if offer.owned is None and offer.hourly_usd(tenancy) is None:
                    continue
                key = (tenancy, offer.provider, self._kind(offer, tenancy))
                groups.setdefault(key, []).append(offer)
        for (tenancy, _, _), members in groups.items():
            yield from self._group_totals(members, tenancy)

    def tenancies(self, offer: Offer) -> Iterator[Tenancy]:
        """The ways to have an offer that the workload allows."""
        wanted, unwanted = self.workload.consider.tenancies, self.workload.leave_out.tenancies
        for tenancy in offer.tenancies:
            if (not wanted or tenancy in wanted) and tenancy not in unwanted:
                yield tenancy

    def _kind(self, offer: Offer, tenancy: Tenancy) -> object:
        """What offers share whose bills differ in the price alone."""
        return (
            offer.gpu, offer.gpus, offer.gpu_share, offer.vcpus, offer.ram_bytes, offer.setup_s,
            offer.other_gpus, offer.power_limit_w, offer.network_bytes_per_s,
            offer.disk, offer.disk_bytes_per_s, offer.gpu_memory_bytes,
            _rate(offer, tenancy), links_of(offer), offer.host, *self._billed_by(offer),
        )  # fmt: skip

    def _region(self, offer: Offer) -> str:
        """The region, where bills differ by it: data lies in one, or results leave it."""
        data = self.workload.data
        places = (data.at, data.kept_at, *(item.at for item in self.workload.stored))
        matters = data.results_bytes or any(":" in place for place in places)
        return offer.region if matters else ""

    def _group_totals(self, offers: Sequence[Offer], tenancy: Tenancy) -> Iterator[Total]:
        """Cost and time of offers of one kind, by what their prices let expect."""
        first = offers[0]
        option = self.option(first, tenancy)
        if option.run is None or option.cost is None or option.blocked:
            return
        doubted = bool(option.step.software_doubts)
        possible = option.runs and option.meets_deadline and option.cash_within_budget
        if doubted or not possible:
            return
        run_s = float(option.run.calendar_s)
        known = [(offer, self._price(offer, tenancy, run_s)) for offer in offers]
        priced = [(offer, price) for offer, price in known if price is not None]
        prices = [mean_of(price) for _, price in priced]
        equal = self.workload.samples() is not None or self.workload.length.is_equal_hours
        curve = self._curve(option, max(prices), equal=equal)
        time_s = option.busy_s if equal else option.training_s_per_sample
        judged = zip(curve.merits_usd(prices), curve.all_paid_usd(prices), strict=True)
        for (offer, price), (merit_usd, paid_usd) in zip(priced, judged, strict=True):
            if price.low > curve.most_usd_per_hour:
                continue
            if not (offer.not_for_sale(tenancy) or offer.cautions(tenancy)):
                yield Total(merit_usd, paid_usd, time_s, offer, tenancy)

    def _curve(self, option: Option, highest_usd_per_hour: float, *, equal: bool) -> PriceCurve:
        """What offers of an option's kind are ranked by, at prices up to the highest there is."""
        offer, tenancy = option.offer, option.tenancy
        key = (tenancy, offer.provider, self._kind(offer, tenancy))
        curve = self.curves.get(key)
        if curve is None or curve.usd_per_hour[-1] < highest_usd_per_hour:
            kind = self._simulated_kind(offer, tenancy, option.step, draws_of(RANKED))

            def judge(usd_per_hour: float) -> Judgement:
                runs = kind.at(usd_per_hour)
                forecast = forecast_of(runs, option.limits)
                if option.prefer.risk == "likely":
                    runs = self._likely_at(option, usd_per_hour)
                return _judgement(option, forecast, runs, equal=equal)

            slope, most = kind.slope, float("inf")
            if slope is not None:
                most = slope.affordable_with(option.limits.confidence)
            curve = price_curve(judge, 2 * highest_usd_per_hour, most)
            self.curves[key] = curve
        return curve

    def _likely_at(self, option: Option, usd_per_hour: float) -> Simulation:
        """What an option is compared by if everything is likely, at a price of an hour."""
        offer, run = option.offer, option.run
        assert run is not None
        cost = self._priced(offer, option.tenancy, run, option.step, usd_per_hour, LIKELY)
        return simulation_of(run, cost, option.samples or 1.0, is_owned=offer.owned is not None)

    def _run(
        self,
        offer: Offer,
        tenancy: Tenancy,
        step: StepPrediction,
        sampler: Sampler,
        route: DataRoute | None = None,
    ) -> Run:
        """The run on an offer; the same on all offers whose bills alone differ."""
        rate = _rate(offer, tenancy)
        overheads = self.overheads(offer)
        route = route or data_route(self.workload, offer, self.terms)
        key = (id(step), id(overheads), rate, offer.setup_s, route.timing)
        if sampler is LIKELY:
            if key not in self.runs:
                run = self._worked_out(offer, step, overheads, rate, sampler, route)
                self.runs[key] = (step, run)
            return self.runs[key][1]
        known = self.drawn_runs.pop((*key, id(sampler)), None)
        if known is None:
            run = self._worked_out(offer, step, overheads, rate, sampler, route)
            known = (step, sampler, run)
            if len(self.drawn_runs) >= _KINDS_KEPT:
                self.drawn_runs.pop(next(iter(self.drawn_runs)))
        self.drawn_runs[*key, id(sampler)] = known
        return known[2]

    def _worked_out(
        self,
        offer: Offer,
        step: StepPrediction,
        overheads: SessionOverheads,
        rate: Estimate | None,
        sampler: Sampler,
        route: DataRoute,
    ) -> Run:
        workload = self.workload
        if offer.setup_s is not None:
            workload = replace(workload, usage=replace(workload.usage, setup_s=offer.setup_s))
        pace = pace_of(workload, step, sampler)
        return run_of(workload, pace, overheads, rate, sampler, route)

    def host_runs(self, best: Offer, worst: Offer) -> HostRuns | None:
        """The likely runs on hosts with the same GPUs, from the best host there could be to the
        worst; None where it does not fit or never ends."""
        steps = [self.predict(host) for host in (best, worst)]
        if not all(step.fits for step in steps):
            return None
        asked = [
            (host, tenancy, step)
            for host, step in zip((best, worst), steps, strict=True)
            for tenancy in self.tenancies(host)
        ]
        runs = [run for run in (self._likely_run(*of) for of in asked) if run is not None]
        if not runs:
            return None
        longest_s = max(float(run.completion_s) for run in runs)
        age_s = weeks_since(best.as_of, self.today) * WEEK_S
        return HostRuns(
            shortest_s=min(float(run.completion_s - run.before_s) for run in runs) + age_s,
            longest_s=longest_s + age_s if len(runs) == len(asked) else math.inf,
            busy_s=min(float(run.busy_s) for run in runs),
            starts=max(float(run.sessions + run.interruptions) for run in runs),
            storage_share=self._storage_share(runs),
            is_fed_evenly=steps[0].step_time_s == steps[1].step_time_s,
        )

    def _storage_share(self, runs: Sequence[Run]) -> tuple[float, float]:
        """How long what a host keeps is paid for, as multiples of the time it is held, however the
        runs turn out: as long as the run takes, waiting included, or as long as is stated."""
        shares = [float(run.storage_s / run.busy_s) for run in runs]
        if self.workload.usage.storage_s is not None:
            return min(1.0, min(shares) / 2), max(1.0, 2 * max(shares))
        return 1.0, 1.0 + 4 * max(max(shares) - 1.0, 0.0)

    def host_step_s(self, offer: Offer) -> tuple[float, ...]:
        """The time of a step on a host: low, likely and high."""
        time_s = self.predict(offer).step_time_s
        return time_s.low, time_s.likely, time_s.high

    def _likely_run(self, offer: Offer, tenancy: Tenancy, step: StepPrediction) -> Run | None:
        """The likely run; None where it never ends, or has no time to begin."""
        try:
            return self._run(offer, tenancy, step, LIKELY)
        except (NeverEnds, InputError):
            return None

    def _cash(
        self, offer: Offer, tenancy: Tenancy, price: Estimate | None, sampler: Sampler
    ) -> Cash:
        """What must be paid on the first day, as the sampler draws it."""
        price_usd = _drawn_price(offer, tenancy, price, sampler)
        price_usd = 0.0 if price_usd is None else price_usd
        return cash_of(self.workload, offer, price_usd, self.terms(offer.provider), sampler)

    def _priced(
        self,
        offer: Offer,
        tenancy: Tenancy,
        run: Run,
        step: StepPrediction,
        price_usd_per_hour: Number,
        sampler: Sampler,
    ) -> Cost:
        """The bill of a run at a price an hour, or at several of them at once."""
        bill = Bill(
            run=run,
            offer=offer,
            tenancy=tenancy,
            price_usd_per_hour=price_usd_per_hour,
            terms=self.terms,
            gpu_w=(step.placement.power_limit_w or step.placement.gpu.tdp_w) * offer.gpus,
            interest_per_year=self.interest_per_year,
            sampler=sampler,
        )
        return cost_of(self.workload, bill)


def _host_reason(workload: Workload, offer: Offer, run: Run | None, today: str) -> str | None:
    """Why a run cannot be had on a single host: there is one of it, for so long, with such a disk.

    Its disk and its time are what they were when it was seen.
    """
    host = offer.host
    if workload.usage.machines > 1:
        return "it is a single host: there is only one of it"
    kept_bytes, disk_bytes = host_needs(workload).kept_bytes, offer.local_disk_bytes
    if disk_bytes is not None and disk_bytes < kept_bytes:
        return (
            f"its disk has {disk_bytes / GB:,.0f} GB free, the run takes {kept_bytes / GB:,.0f} GB"
        )
    if host is None or host.available_s is None or run is None:
        return None
    left_s = host.available_s - weeks_since(offer.as_of, today) * WEEK_S
    needed_s = float(run.completion_s) - (0.0 if run.recurring else float(run.before_s))
    if left_s >= needed_s:
        return None
    return (
        f"on offer for {max(left_s, 0.0) / DAY_S:,.1f} more days, the run takes "
        f"{needed_s / DAY_S:,.1f}"
    )


def _rate(offer: Offer, tenancy: Tenancy) -> Estimate | None:
    """Interruptions a month to expect on one machine; None where it is not taken away."""
    return spot_risk(offer).interruptions_per_month if tenancy == "spot" else None


def _drawn_price(
    offer: Offer, tenancy: Tenancy, price: Estimate | None, sampler: Sampler
) -> Number | None:
    """The price of an hour as the sampler draws it; None where it is not known.

    Spot prices of a GPU move together at a provider, and half of what moves them moves all spot
    prices.
    """
    if price is None:
        return None
    if tenancy == "reserved":
        return sampler.of(f"commitment price: {offer.provider}", price)
    if tenancy != "spot":
        return sampler.of(f"price: {offer.provider}", price)
    drawn = sampler.of(f"spot price: {offer.provider} {offer.gpu}", price)
    most = highest_price(offer, tenancy)
    return drawn if most is None else np.minimum(drawn, max(most, price.likely))


def interest_per_year(workload: Workload) -> Uncertain:
    """What money paid upfront for a commitment costs a year: as stated, or assumed."""
    stated = workload.usage.interest_per_year
    return assumed_range("interest_per_year") if stated is None else stated


def _judgement(option: Option, forecast: Forecast, runs: Simulation, *, equal: bool) -> Judgement:
    """What an option is ranked by if its simulated runs are as given."""
    prospects = option.judged(forecast, runs)
    merit_usd, paid_usd = prospects.merit_usd, prospects.paid_usd
    if not equal:
        merit_usd = paid_usd = option.measured(option.training_of(runs))
    return Judgement(merit_usd=merit_usd, paid_usd=paid_usd)


_KINDS_KEPT = 64
"""Kinds of offers whose simulated runs are remembered: offers of a kind come one after another."""


def planner_of(
    workload: Workload, profile: Profile, evidence: Evidence = NO_EVIDENCE, today: str = ""
) -> Planner:
    """What predicts and prices the offers of one workload, for a run that begins today."""
    terms = terms_for(workload)
    return Planner(
        workload=workload,
        profile=profile,
        overheads=session_overheads(terms, workload),
        predict=steps_on(workload, profile, evidence),
        terms=terms,
        interest_per_year=interest_per_year(workload),
        today=today,
    )


def storage_note(workload: Workload, offer: Offer) -> str | None:
    """Where things lie in words; None where that is another variant's place, said otherwise."""
    places = []
    for item in workload.stored:
        if not item.also_at:
            continue
        machine = place_of_offer(offer)
        is_there = place_for(item.at, machine).is_same_as(machine)
        if is_there and item.at != WITH_THE_RUN and WITH_THE_RUN in item.also_at:
            return None
        places.append(f"{item.name} at {offer.provider if item.at == WITH_THE_RUN else item.at}")
    return ", ".join(places)


def _work(workload: Workload, step: StepPrediction, run: Run | None) -> float | None:
    """What a run gets done, by which options are compared: samples, or hours taken as equal."""
    if workload.length.is_equal_hours:
        return None if run is None else float(run.training_s)
    return _samples(workload, step, run)


def _drawn_samples(workload: Workload, step: StepPrediction, run: Run, sampler: Sampler) -> Number:
    """Samples a run trains on as it is drawn: in a stated time, more on a faster machine."""
    samples = _samples(workload, step, run) or 1.0
    if workload.length.training_s is None:
        return samples
    return samples * step.step_time_s.likely / drawn_step_s(step, sampler)


def _samples(workload: Workload, step: StepPrediction, run: Run | None) -> float | None:
    if run is None:
        return None
    given = workload.samples()
    sessions = workload.usage.sessions_per_month or 1.0
    if given is not None:
        return given * sessions
    return optimizer_steps(workload, step) * step.global_batch_size * sessions


# Session overheads: what the provider states, and assumptions for the rest


def session_overheads(
    terms: Callable[[str], Terms], workload: Workload | None = None
) -> Callable[[Offer], SessionOverheads]:
    """What sessions are like on an offer: data comes to a single host as fast as its network takes
    it, and no faster than to others."""
    fetches = workload is None or host_needs(workload).download
    known: dict[SessionOverheads, SessionOverheads] = {}

    @cache
    def of_provider(provider: str) -> SessionOverheads:
        its = overheads_at(terms(provider))
        return known.setdefault(its, its)  # providers with the same share their runs

    @cache
    def of_host(provider: str, bytes_per_s: float) -> SessionOverheads:
        usual = of_provider(provider)
        rate = Estimate.of(usual.download_bytes_per_s)
        if bytes_per_s >= rate.high:
            return usual
        return replace(usual, download_bytes_per_s=rate.at_most(bytes_per_s))

    def of_offer(offer: Offer) -> SessionOverheads:
        if offer.owned is not None:
            return _overheads_at_home()
        rate = offer.host.download_bytes_per_s if offer.host is not None else None
        if rate is None or not fetches:
            return of_provider(offer.provider)
        return of_host(offer.provider, _two_figures(rate))

    return of_offer


def _two_figures(rate: float) -> float:
    """A measured speed as precise as it is: so that hosts share what is worked out of it."""
    return float(f"{rate:.1e}")


def assumed_overheads() -> SessionOverheads:
    """Session overheads of the assumptions table."""
    return SessionOverheads(
        provisioning_s=assumed_range("provisioning_time_s"),
        environment_s=assumed_range("environment_setup_time_s"),
        warmup_s=assumed_range("warmup_time_s"),
        download_bytes_per_s=assumed_range("data_download_bytes_per_s"),
        upload_bytes_per_s=assumed_range("home_upload_bytes_per_s"),
        checkpoint_bytes_per_s=assumed_range("checkpoint_write_bytes_per_s"),
        checkpoint_interval_s=assumed("checkpoint_interval_s"),
        requeue_s=assumed_range("spot_requeue_s"),
        notice_s=assumed("spot_notice_s"),
    )


def overheads_at(terms: Terms) -> SessionOverheads:
    """Session overheads at a provider: what it states, and assumptions for the rest."""
    usual = assumed_overheads()
    return replace(
        usual,
        provisioning_s=terms.provisioning_s or usual.provisioning_s,
        notice_s=usual.notice_s if terms.spot_notice_s is None else terms.spot_notice_s,
        longest_session_s=terms.longest_session_s,
        weekly_s=terms.weekly_s,
    )


@cache
def _overheads_at_home() -> SessionOverheads:
    """One's own machine is there, with its environment."""
    return replace(assumed_overheads(), provisioning_s=0.0, environment_s=0.0)
