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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice, product

import numpy as np

from outlay.cost.bill import Bill, cost_of
from outlay.cost.cash import Cash, cash_of
from outlay.cost.lines import Cost
from outlay.errors import InputError
from outlay.facts import assumed, assumed_range
from outlay.offers.candidates import candidates
from outlay.offers.catalog import offer_gpus, reserved_offers
from outlay.offers.instances import links_of
from outlay.offers.offer import Offer, Tenancy
from outlay.offers.places import data_route, place_for, place_of_offer, with_known_places
from outlay.offers.spot import spot_price_usd, spot_risk
from outlay.offers.terms import (
    Terms,
    has_network_volumes,
    kept_on_volumes,
    missing_quality,
    terms_for,
)
from outlay.plan.assumptions import data_notes, option_notes, plan_assumptions, plan_cautions
from outlay.plan.from_measurement import (
    at_measured_batch,
    evidence_for,
    profile_for,
    with_measured_pauses,
)
from outlay.plan.option import TRAINING_LINES, Option, Outcome
from outlay.plan.placement import steps_on
from outlay.plan.ranking import Plan, Total, break_evens, choose, rank_options, shortlist
from outlay.predict.evidence import NO_EVIDENCE, NOTHING_LEARNED, Evidence, LearnedCalibration
from outlay.predict.run_time import (
    NeverEnds,
    Run,
    SessionOverheads,
    optimizer_steps,
    pace_of,
    run_of,
)
from outlay.predict.step import StepPrediction
from outlay.trace.profile import Profile
from outlay.uncertainty import LIKELY, Number, Sampler, Uncertain
from outlay.units import GIB
from outlay.workload.workload import WITH_THE_RUN, Workload


def plan_workload(
    workload: Workload,
    profile: Profile | None = None,
    *,
    measured: Sequence[str] = (),
    learned: LearnedCalibration = NOTHING_LEARNED,
    evidence: Evidence | None = None,
    today: str = "",
) -> Plan:
    """The plan of a workload: every candidate predicted, priced, ranked and explained.

    profile: the step's operations; without it, what the workload names is read or traced.
    measured: files of `outlay probe`, beside those that the workload names.
    learned: what earlier measurements of any training taught (`learned_calibration`).
    evidence: all that was measured, where it is at hand already.
    today: YYYY-MM-DD, leaves out what providers have stopped selling by then.
    """
    inputs = _inputs(workload, profile, measured=measured, learned=learned, evidence=evidence)
    with _without_collecting():
        return _plan_all(inputs, today)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    """What a plan is made from: the workload with what measurements and places say of it."""

    workload: Workload
    profile: Profile
    evidence: Evidence
    notes: tuple[str, ...]
    """What was taken over from measurements beside the step's time."""


def _inputs(
    workload: Workload,
    profile: Profile | None,
    *,
    measured: Sequence[str] = (),
    learned: LearnedCalibration = NOTHING_LEARNED,
    evidence: Evidence | None = None,
) -> _Inputs:
    profile = profile or profile_for(workload.step)
    evidence = evidence or evidence_for(workload.step, profile, learned, measured)
    workload, notes = with_measured_pauses(workload, measured)
    workload = with_known_places(replace(workload, step=at_measured_batch(workload.step)))
    return _Inputs(workload=workload, profile=profile, evidence=evidence, notes=notes)


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


def _plan_all(inputs: _Inputs, today: str) -> Plan:
    """The plan of every candidate, in all numbers of machines and places of data to compare."""
    workload = inputs.workload
    offers = _with_terms(candidates(workload, today), workload)
    options = [
        option
        for number, machines in enumerate(_machines_tried(workload))
        for variant in _storage_variants(_with_machines(workload, machines))
        for option in _options(
            replace(inputs, workload=variant),
            [offer for offer in offers if offer.owned is None or number == 0],
        )
    ]
    if not options:
        raise InputError(
            "No candidate is left to plan with.",
            why="What [consider] and [leave_out] ask for matches no offer.",
            fix="Loosen them, add an [[offer]], or look at `outlay offers`.",
        )
    return _plan(inputs, options, offers, today)


def _plan(inputs: _Inputs, options: Sequence[Option], offers: Sequence[Offer], today: str) -> Plan:
    ranked, evidence = rank_options(options), inputs.evidence
    chosen = choose(ranked)
    assumptions = plan_assumptions(
        inputs.workload, inputs.profile, assumed_overheads(), offers, today, evidence.measured
    )
    return Plan(
        options=ranked,
        chosen=chosen,
        break_even=break_evens(ranked),
        assumptions=(*assumptions, *data_notes(chosen), *evidence.notes, *inputs.notes),
        cautions=plan_cautions(evidence.measured),
        profile=inputs.profile,
        workload=inputs.workload,
        measured=tuple(evidence.measured),
        today=today,
    )


def _with_terms(offers: Sequence[Offer], workload: Workload) -> list[Offer]:
    """The offers, and those that can be taken for a term where the use goes on for long."""
    usage = workload.usage
    if usage.horizon_s is None and "reserved" not in workload.consider.tenancies:
        return list(offers)
    return [*offers, *(reserved for offer in offers for reserved in reserved_offers(offer))]


def rank_offers(
    workload: Workload,
    offers: Sequence[Offer],
    profile: Profile | None = None,
    *,
    today: str = "",
) -> Plan:
    """The plan of these offers alone, every one of them an option with its bill."""
    inputs = _inputs(workload, profile)
    with _without_collecting():
        return _plan(inputs, _options(inputs, offers), offers, today)


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
    inputs = _inputs(workload, profile)
    planner = planner_of(inputs.workload, inputs.profile, inputs.evidence)
    best: list[Total] = []
    with _without_collecting():
        for chunk in _chunks(offers):
            best = shortlist([*best, *planner.totals(chunk)], keep)
        options = [planner.option(total.offer, total.tenancy) for total in best]
    return _plan(inputs, options, [total.offer for total in best], today)


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


def _options(inputs: _Inputs, offers: Sequence[Offer]) -> list[Option]:
    """Every offer in every tenancy that the workload allows."""
    workload = inputs.workload
    planner = planner_of(workload, inputs.profile, inputs.evidence)
    return [
        planner.option(offer, tenancy)
        for offer in offers
        if storage_note(workload, offer) is not None
        for tenancy in planner.tenancies(offer)
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
    runs: dict[object, tuple[StepPrediction, Run]] = field(default_factory=dict)
    """Likely runs by what they depend on; each with its step, whose identity is in the key."""

    def option(self, offer: Offer, tenancy: Tenancy) -> Option:
        """One offer in one tenancy, predicted and priced."""
        step = self.predict(offer)
        outcome = partial(self._outcome, offer, tenancy, step)
        run, cost, blocked = None, None, None
        if step.fits:
            try:
                run, cost = outcome(LIKELY)
            except NeverEnds as error:
                blocked = str(error)
        return Option(
            offer=offer,
            tenancy=tenancy,
            step=step,
            samples=_samples(self.workload, step, run),
            work=_work(self.workload, step, run),
            run=run,
            cost=cost,
            limits=self.workload.limits,
            prefer=self.workload.prefer,
            blocked=blocked or self._blocked(offer, run),
            outcome=outcome,
            cash_of=partial(self._cash, offer, tenancy),
            keeping=storage_note(self.workload, offer) or "",
            notes=option_notes(offer, tenancy, self.profile, step),
            route=data_route(self.workload, offer, self.terms),
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
        return missing_quality(terms, dict(self.workload.prefer.qualities))

    def _outcome(
        self, offer: Offer, tenancy: Tenancy, step: StepPrediction, sampler: Sampler
    ) -> Outcome:
        """The run on an offer and what it costs, as the sampler draws it."""
        run = self._run(offer, tenancy, step, sampler)
        return run, self._cost(offer, tenancy, run, step, sampler)

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
        rate = spot_risk(offer).interruptions_per_month if tenancy == "spot" else None
        return (
            offer.setup_cost_usd,
            offer.gpu, offer.gpus, offer.gpu_share, offer.vcpus, offer.ram_bytes, offer.setup_s,
            offer.other_gpus, offer.power_limit_w, offer.network_bytes_per_s, offer.owned,
            offer.commitment, offer.local_disk_bytes, offer.disk, offer.disk_bytes_per_s,
            offer.gpu_memory_bytes, rate, links_of(offer), self._region(offer),
            has_network_volumes(self.terms(offer.provider), offer.instance),
        )  # fmt: skip

    def _region(self, offer: Offer) -> str:
        """The region, where bills differ by it: data lies in one, or results leave it."""
        data = self.workload.data
        places = (data.at, data.kept_at, *(item.at for item in self.workload.stored))
        matters = data.results_bytes or any(":" in place for place in places)
        return offer.region if matters else ""

    def _group_totals(self, offers: Sequence[Offer], tenancy: Tenancy) -> Iterator[Total]:
        """Cost and time of offers of one kind, their lines worked out together."""
        first, limits = offers[0], self.workload.limits
        option = self.option(first, tenancy)
        prices = [offer.hourly_usd(tenancy) or 0.0 for offer in offers]
        if option.run is None or option.cost is None or option.blocked:
            return
        doubted = bool(option.step.software_doubts)
        possible = option.runs and option.meets_deadline and option.cash_within_budget
        if doubted or not possible:
            return
        cost = self._priced(
            first, tenancy, option.run, option.step, np.asarray(prices, float), LIKELY
        )
        total_usd = np.broadcast_to(np.asarray(cost.usd, float), (len(offers),)).tolist()
        trained = np.asarray(cost.breakdown.line_usd(*TRAINING_LINES), float)
        trained_usd = np.broadcast_to(trained, (len(offers),)).tolist()
        equal = self.workload.samples() is not None or self.workload.length.hours_are_equal
        for offer, usd, training in zip(offers, total_usd, trained_usd, strict=True):
            within = limits.budget_usd is None or usd <= limits.budget_usd
            if not within or offer.not_for_sale(tenancy) or offer.cautions(tenancy):
                continue
            expected_usd = usd + option.cost.usual_usd
            if equal:
                yield Total(option.merit_at(usd), expected_usd, option.busy_s, offer, tenancy)
            else:
                each_usd = (expected_usd if offer.owned else training) / (option.samples or 1.0)
                yield Total(each_usd, each_usd, option.training_s_per_sample, offer, tenancy)

    def _run(self, offer: Offer, tenancy: Tenancy, step: StepPrediction, sampler: Sampler) -> Run:
        """The run on an offer; the likely one is the same on all offers of a kind."""
        rate = spot_risk(offer).interruptions_per_month if tenancy == "spot" else None
        overheads = self.overheads(offer)
        route = data_route(self.workload, offer, self.terms)
        key = (id(step), id(overheads), rate, offer.setup_s, route.timing)
        if sampler is LIKELY and key in self.runs:
            return self.runs[key][1]
        workload = self.workload
        if offer.setup_s is not None:
            workload = replace(workload, usage=replace(workload.usage, setup_s=offer.setup_s))
        pace = pace_of(workload, step, sampler)
        run = run_of(workload, pace, overheads, rate, sampler, route)
        if sampler is LIKELY:
            self.runs[key] = (step, run)
        return run

    def _cost(
        self, offer: Offer, tenancy: Tenancy, run: Run, step: StepPrediction, sampler: Sampler
    ) -> Cost | None:
        price = _hourly_usd(offer, tenancy)
        if price is None and offer.owned is None:
            return None
        price_usd = sampler.of(_price_input(offer, tenancy), price or 0.0)
        return self._priced(offer, tenancy, run, step, price_usd, sampler)

    def _cash(self, offer: Offer, tenancy: Tenancy, sampler: Sampler) -> Cash:
        """What must be paid on the first day, as the sampler draws it."""
        price_usd = sampler.of(_price_input(offer, tenancy), _hourly_usd(offer, tenancy) or 0.0)
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


def _hourly_usd(offer: Offer, tenancy: Tenancy) -> Uncertain | None:
    """The price of an hour; with its range where it is a spot price or a commitment's."""
    if offer.commitment is not None:
        return offer.commitment.price_usd_per_hour
    hourly_usd = offer.hourly_usd(tenancy)
    return hourly_usd if tenancy != "spot" or hourly_usd is None else spot_price_usd(offer)


def _price_input(offer: Offer, tenancy: Tenancy) -> str:
    """The name of the price among the uncertain inputs; prices of a provider move together."""
    kind = "commitment price" if tenancy == "reserved" else "spot price"
    return f"{kind}: {offer.provider}"


def interest_per_year(workload: Workload) -> Uncertain:
    """What money paid upfront for a commitment costs a year: as stated, or assumed."""
    stated = workload.usage.interest_per_year
    return assumed_range("interest_per_year") if stated is None else stated


def planner_of(workload: Workload, profile: Profile, evidence: Evidence = NO_EVIDENCE) -> Planner:
    """What predicts and prices the offers of one workload."""
    terms = terms_for(workload)
    return Planner(
        workload=workload,
        profile=profile,
        overheads=session_overheads(terms),
        predict=steps_on(workload, profile, evidence),
        terms=terms,
        interest_per_year=interest_per_year(workload),
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
    if workload.length.hours_are_equal:
        return None if run is None else float(run.training_s)
    return _samples(workload, step, run)


def _samples(workload: Workload, step: StepPrediction, run: Run | None) -> float | None:
    if run is None:
        return None
    given = workload.samples()
    sessions = workload.usage.sessions_per_month or 1.0
    if given is not None:
        return given * sessions
    return optimizer_steps(workload, step) * step.global_batch_size * sessions


# Session overheads: what the provider states, and assumptions for the rest


def session_overheads(terms: Callable[[str], Terms]) -> Callable[[Offer], SessionOverheads]:
    """What sessions are like on an offer."""

    @cache
    def of_provider(provider: str) -> SessionOverheads:
        return overheads_at(terms(provider))

    def of_offer(offer: Offer) -> SessionOverheads:
        return _overheads_at_home() if offer.owned is not None else of_provider(offer.provider)

    return of_offer


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
