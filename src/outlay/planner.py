"""One offer after the other, predicted and priced: what every option of a plan shares.

An offer alone becomes an `Option` with its bill. Offers that differ in the price alone can be
billed together: the lines of a bill are worked out on all their prices at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from outlay.chance import LIKELY, Luck, Number, Uncertain
from outlay.cost.bill import Bill, cost_of
from outlay.cost.lines import Cost
from outlay.explain import option_notes
from outlay.habits import habits_of
from outlay.offers.agreed import terms_for
from outlay.offers.catalog import offer_gpus
from outlay.offers.links import links_of
from outlay.offers.offer import Offer, Tenancy
from outlay.offers.qualities import lacks
from outlay.offers.spot import spot_price_usd, spot_risk
from outlay.offers.terms import Terms
from outlay.option import TRAINING_LINES, Option, Outcome
from outlay.placing import steps_on
from outlay.plan import Total
from outlay.predict.experience import NO_EXPERIENCE, Experience
from outlay.predict.run import NeverEnds, Run, run_of
from outlay.predict.step import StepPrediction
from outlay.predict.work import Habits, pace_of, steps
from outlay.trace.trace import Profile
from outlay.units import GIB
from outlay.workload import WITH_THE_RUN, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """What every option of one plan shares."""

    workload: Workload
    profile: Profile
    habits: Callable[[Offer], Habits]
    predict: Callable[[Offer], StepPrediction]
    terms: Callable[[str], Terms]
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
            keeping=keeping(self.workload, offer) or "",
            notes=option_notes(offer, tenancy, self.profile, step),
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
        return lacks(terms, dict(self.workload.prefer.qualities))

    def _outcome(self, offer: Offer, tenancy: Tenancy, step: StepPrediction, luck: Luck) -> Outcome:
        """The run on an offer and what it costs, as luck has it."""
        run = self._run(offer, tenancy, step, luck)
        return run, self._cost(offer, tenancy, run, step, luck)

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
            offer.gpu, offer.gpus, offer.gpu_share, offer.vcpus, offer.ram_bytes, offer.setup_s,
            offer.other_gpus, offer.power_limit_w, offer.network_bytes_per_s, offer.owned,
            offer.commitment, offer.local_disk_bytes, offer.disk, offer.disk_bytes_per_s,
            offer.gpu_memory_bytes, rate, links_of(offer),
        )  # fmt: skip

    def _group_totals(self, offers: Sequence[Offer], tenancy: Tenancy) -> Iterator[Total]:
        """Cost and time of offers of one kind, their lines worked out together."""
        first, limits = offers[0], self.workload.limits
        option = self.option(first, tenancy)
        prices = [offer.hourly_usd(tenancy) or 0.0 for offer in offers]
        if option.run is None or option.cost is None or option.blocked:
            return
        special = option.step.placement.gpu.software.runs == "special build"
        if special or not (option.runs and option.meets_deadline):
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

    def _run(self, offer: Offer, tenancy: Tenancy, step: StepPrediction, luck: Luck) -> Run:
        """The run on an offer; the likely one is the same on all offers of a kind."""
        rate = spot_risk(offer).interruptions_per_month if tenancy == "spot" else None
        habits = self.habits(offer)
        key = (id(step), id(habits), rate, offer.setup_s)
        if luck is LIKELY and key in self.runs:
            return self.runs[key][1]
        workload = self.workload
        if offer.setup_s is not None:
            workload = replace(workload, usage=replace(workload.usage, setup_s=offer.setup_s))
        run = run_of(workload, pace_of(workload, step, luck), habits, rate, luck)
        if luck is LIKELY:
            self.runs[key] = (step, run)
        return run

    def _cost(
        self, offer: Offer, tenancy: Tenancy, run: Run, step: StepPrediction, luck: Luck
    ) -> Cost | None:
        price = _hourly_usd(offer, tenancy)
        if price is None and offer.owned is None:
            return None
        price_usd = luck.of(f"spot price: {offer.provider}", price or 0.0)
        return self._priced(offer, tenancy, run, step, price_usd, luck)

    def _priced(
        self,
        offer: Offer,
        tenancy: Tenancy,
        run: Run,
        step: StepPrediction,
        price_usd_per_hour: Number,
        luck: Luck,
    ) -> Cost:
        """The bill of a run at a price an hour, or at several of them at once."""
        bill = Bill(
            run=run,
            offer=offer,
            tenancy=tenancy,
            price_usd_per_hour=price_usd_per_hour,
            terms=self.terms,
            gpu_w=(step.placement.power_limit_w or step.placement.gpu.tdp_w) * offer.gpus,
            luck=luck,
        )
        return cost_of(self.workload, bill)


def _hourly_usd(offer: Offer, tenancy: Tenancy) -> Uncertain | None:
    """The price of an hour; with the range it moves in where it is a spot price."""
    hourly_usd = offer.hourly_usd(tenancy)
    return hourly_usd if tenancy != "spot" or hourly_usd is None else spot_price_usd(offer)


def planner_of(
    workload: Workload, profile: Profile, experience: Experience = NO_EXPERIENCE
) -> Planner:
    """What predicts and prices the offers of one workload."""
    terms = terms_for(workload)
    return Planner(
        workload=workload,
        profile=profile,
        habits=habits_of(terms),
        predict=steps_on(workload, profile, experience),
        terms=terms,
    )


def keeping(workload: Workload, offer: Offer) -> str | None:
    """Where things lie in words; None where that is another variant's place, said otherwise."""
    said = []
    for item in workload.stored:
        if not item.also_at:
            continue
        if item.at == offer.provider and WITH_THE_RUN in item.also_at:
            return None
        said.append(f"{item.name} at {offer.provider if item.at == WITH_THE_RUN else item.at}")
    return ", ".join(said)


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
    return steps(workload, step) * step.global_batch_size * sessions
