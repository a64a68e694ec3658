"""outlay on one page: workload -> profile -> prediction -> cost -> plan.

    read_workload   what to train, for how long, within which limits      workload_file.py
    profile_for     one training step, operation by operation             trace/
    candidates      every offer worth a look, the user's own included     offers/
    best_step       its time and memory on a machine's GPUs               predict/search.py
    run_of          the whole run: sessions, set-up, interruptions        predict/run.py
    cost_of         what that costs, in the lines of a bill               cost/
    rank_options    the order, the choice, and why each loser lost        plan.py

Facts come from the tables in `data/`; everything from `predict` to `plan` is values in, values out.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from itertools import islice, product

import numpy as np

from outlay.chance import LIKELY, Luck, Number, Uncertain
from outlay.cost.bill import Bill, cost_of
from outlay.cost.lines import Cost
from outlay.errors import InputError
from outlay.explain import option_notes, plan_assumptions
from outlay.facts import assumed, assumed_range, rows_of
from outlay.hardware import Gpu
from outlay.offers.agreed import terms_for, with_known_places
from outlay.offers.candidates import candidates
from outlay.offers.catalog import offer_gpus
from outlay.offers.commitments import committed
from outlay.offers.disks import disk_of, feed_rates
from outlay.offers.links import KnownLinks, links_of
from outlay.offers.offer import Offer, Tenancy
from outlay.offers.qualities import lacks
from outlay.offers.spot import spot_price_usd, spot_risk
from outlay.offers.terms import Terms
from outlay.option import Option, Outcome
from outlay.plan import Plan, Total, break_evens, choose, rank_options, shortlist
from outlay.predict import feed as feeding
from outlay.predict.calibration import Calibration, calibration_of
from outlay.predict.links import Wiring, Within
from outlay.predict.machine import checked_limit_w
from outlay.predict.remember import Same
from outlay.predict.run import Habits, NeverEnds, Run, pace_of, run_of, steps
from outlay.predict.search import Question, best_step, on_unlike
from outlay.predict.step import Placement, StepPrediction, spanning
from outlay.predict.strategy import Wanted, wanted_of
from outlay.trace.bundled import find_profile
from outlay.trace.profile import SELECTED, profile_of
from outlay.trace.trace import Precision, Profile
from outlay.units import GIB
from outlay.workload import WITH_THE_RUN, Step, Workload


def plan_workload(workload: Workload, profile: Profile | None = None, *, today: str = "") -> Plan:
    """The plan of a workload: every candidate predicted, priced, ranked and explained.

    `today` (YYYY-MM-DD) leaves out what providers have stopped selling by then.
    """
    with _without_collecting():
        return _plan_workload(workload, profile, today)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Without the garbage collector: what a plan is made of lives to its end, and looking for
    garbage among it takes as long as making it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _plan_workload(workload: Workload, profile: Profile | None, today: str) -> Plan:
    workload = with_known_places(workload)
    profile = profile or profile_for(workload.step)
    offers = _with_terms(candidates(workload, today), workload)
    options = [
        option
        for number, machines in enumerate(_machines_tried(workload))
        for kept in _kept_somewhere(_with_machines(workload, machines))
        for option in _options(
            kept,
            profile,
            [offer for offer in offers if offer.owned is None or number == 0],
        )
    ]
    if not options:
        raise InputError(
            "No candidate is left to plan with.",
            why="What [consider] and [leave_out] ask for matches no offer.",
            fix="Loosen them, add an [[offer]], or look at `outlay offers`.",
        )
    return _plan(workload, profile, options, offers, today)


def _plan(
    workload: Workload,
    profile: Profile,
    options: Sequence[Option],
    offers: Sequence[Offer],
    today: str,
) -> Plan:
    ranked = rank_options(options)
    return Plan(
        options=ranked,
        chosen=choose(ranked),
        break_even=break_evens(ranked),
        assumptions=plan_assumptions(workload, profile, habits_assumed(), offers, today),
    )


def _with_terms(offers: Sequence[Offer], workload: Workload) -> list[Offer]:
    """The offers, and those that can be taken for a term where the use goes on for long."""
    usage, asked = workload.usage, "reserved" in workload.consider.tenancies
    lasting = usage.horizon_s is not None or asked
    return [*offers, *(one for offer in offers if lasting for one in committed(offer))]


def rank_offers(
    workload: Workload,
    offers: Sequence[Offer],
    profile: Profile | None = None,
    *,
    today: str = "",
) -> Plan:
    """The plan of these offers alone, every one of them an option with its bill."""
    workload = with_known_places(workload)
    profile = profile or profile_for(workload.step)
    with _without_collecting():
        return _plan(workload, profile, _options(workload, profile, offers), offers, today)


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
    workload = with_known_places(workload)
    profile = profile or profile_for(workload.step)
    planner = _planner(workload, profile)
    kept: list[Total] = []
    with _without_collecting():
        for chunk in _chunks(offers):
            kept = shortlist([*kept, *planner.totals(chunk)], keep)
        options = [planner.option(one.offer, one.tenancy) for one in kept]
    return _plan(workload, profile, options, [one.offer for one in kept], today)


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


def _kept_somewhere(workload: Workload) -> Iterator[Workload]:
    """The workload with what is stored at each of the places to compare."""
    places = [(item.at, *item.also_at) for item in workload.stored]
    for chosen in product(*places):
        stored = tuple(
            replace(item, at=at, also_at=(item.at, *item.also_at) if item.also_at else ())
            for item, at in zip(workload.stored, chosen, strict=True)
        )
        yield replace(workload, stored=stored)


def _keeping(workload: Workload, offer: Offer) -> str | None:
    """Where things lie in words; None where that is another variant's place, said otherwise."""
    said = []
    for item in workload.stored:
        if not item.also_at:
            continue
        if item.at == offer.provider and WITH_THE_RUN in item.also_at:
            return None
        said.append(f"{item.name} at {offer.provider if item.at == WITH_THE_RUN else item.at}")
    return ", ".join(said)


def _options(workload: Workload, profile: Profile, offers: Sequence[Offer]) -> list[Option]:
    """Every offer in every tenancy that the workload allows."""
    planner = _planner(workload, profile)
    return [
        planner.option(offer, tenancy)
        for offer in offers
        for tenancy in offer.tenancies
        if _keeping(workload, offer) is not None
        if not workload.consider.tenancies or tenancy in workload.consider.tenancies
        if tenancy not in workload.leave_out.tenancies
    ]


def profile_for(step: Step, selected: float = SELECTED) -> Profile:
    """The profile a workload's step names, or a trace of its code.

    `selected` is the share of elements that a selection by unknown values keeps in a trace.
    """
    if step.target is not None:
        return profile_of(step.target, selected=selected)
    return find_profile(step.profile or "")


@cache
def calibration() -> Calibration:
    """The fitted numbers, from the tables in `data/`."""
    return calibration_of(
        rows_of("calibration.csv"), rows_of("kernel_passes.csv"), rows_of("kernel_products.csv")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planner:
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
            keeping=_keeping(self.workload, offer) or "",
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
            for tenancy in offer.tenancies:
                key = (tenancy, offer.provider, self._kind(offer, tenancy))
                groups.setdefault(key, []).append(offer)
        for (tenancy, _, _), members in groups.items():
            yield from self._group_totals(members, tenancy)

    def _kind(self, offer: Offer, tenancy: Tenancy) -> object:
        """What offers share whose bills differ in the price alone."""
        rate = spot_risk(offer).interruptions_per_month if tenancy == "spot" else None
        return (
            offer.gpu, offer.gpus, offer.gpu_share, offer.vcpus, offer.ram_bytes, offer.setup_s,
            offer.other_gpus, offer.power_limit_w, offer.network_bytes_per_s, offer.owned,
            offer.commitment, offer.local_disk_bytes, offer.disk, rate, links_of(offer),
        )  # fmt: skip

    def _group_totals(self, offers: Sequence[Offer], tenancy: Tenancy) -> Iterator[Total]:
        """Cost and time of offers of one kind, their lines worked out together."""
        first, limits = offers[0], self.workload.limits
        option = self.option(first, tenancy)
        prices = [offer.hourly_usd(tenancy) for offer in offers]
        if option.run is None or option.cost is None or None in prices or option.blocked:
            return
        if not (option.runs and option.meets_deadline):
            return
        cost = self._priced(
            first, tenancy, option.run, option.step, np.asarray(prices, float), LIKELY
        )
        total_usd = np.broadcast_to(np.asarray(cost.usd, float), (len(offers),))
        for offer, usd in zip(offers, total_usd.tolist(), strict=True):
            merit_usd = option.merit_at(usd)
            within = limits.budget_usd is None or usd <= limits.budget_usd
            sound = not offer.not_for_sale(tenancy) and not offer.cautions(tenancy)
            if within and sound:
                expected_usd = usd + option.cost.usual_usd
                yield Total(merit_usd, expected_usd, option.busy_s, offer, tenancy)

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


def _planner(workload: Workload, profile: Profile) -> _Planner:
    precision: Precision | None = workload.step.precision  # type: ignore[assignment]
    wanted = wanted_of(workload.step.strategy or "auto")

    def predict_form(placement: Placement, batch_size: int | None = None) -> StepPrediction:
        batch_size = batch_size or workload.step.batch_size
        global_batch_size = workload.step.global_batch_size
        return _best_step(
            Same(profile), placement, batch_size, global_batch_size, precision, wanted
        )

    def predict(offer: Offer) -> StepPrediction:
        step = alone(offer)
        return _fed(step, offer, workload) if step.fits else step

    def alone(offer: Offer) -> StepPrediction:
        if offer.other_gpus:
            return on_unlike(partial(unlike, offer), workload.step.batch_size)
        return spanning([predict_form(one) for one in placements_of(offer, workload)])

    def unlike(offer: Offer, batch_size: int | None) -> list[StepPrediction]:
        names = (offer.gpu, *offer.other_gpus)
        parts = [replace(offer, gpu=name, other_gpus=()) for name in names]
        return [
            spanning([predict_form(one, batch_size) for one in placements_of(part, workload)])
            for part in parts
        ]

    terms = terms_for(workload)
    return _Planner(
        workload=workload,
        profile=profile,
        habits=_habits(terms),
        predict=predict,
        terms=terms,
    )


@lru_cache(maxsize=8192)
def _best_step(
    profile: Same[Profile],
    placement: Placement,
    batch_size: int | None,
    global_batch_size: int | None,
    precision: Precision | None,
    wanted: Wanted,
) -> StepPrediction:
    """The best way to run a step on a placement; asked again by another plan, the same."""
    question = Question(
        profile=profile.value,
        placement=placement,
        batch_size=batch_size,
        global_batch_size=global_batch_size,
        precision=precision,
        wanted=wanted,
    )
    return best_step(question, calibration(), thorough=False)


def _fed(step: StepPrediction, offer: Offer, workload: Workload) -> StepPrediction:
    """A step held to what its input pipeline delivers, where the workload says what that is."""
    data, feed = workload.data, workload.data.feed
    if feed is None:
        return step
    disk = disk_of(offer, data)
    host = feeding.Host(
        vcpus=offer.vcpus,
        gpus=offer.gpus,
        ram_bytes=offer.ram_bytes,
        disk_bytes_per_s=disk.bytes_per_s,
        disk=disk.name,
    )
    samples = workload.samples() or steps(workload, step) * step.global_batch_size
    epochs = samples / data.samples if data.samples else 1.0
    return feeding.fed(step, feeding.delivered(data, feed, host, epochs, feed_rates()))


def _habits(terms: Callable[[str], Terms]) -> Callable[[Offer], Habits]:
    """What sessions are like on an offer."""

    @cache
    def of_provider(provider: str) -> Habits:
        return habits_at(terms(provider))

    def of_offer(offer: Offer) -> Habits:
        return _habits_at_home() if offer.owned is not None else of_provider(offer.provider)

    return of_offer


_WITHIN: dict[str, Within] = {
    "nvswitch": "nvlink",
    "nvlink mesh": "mesh",
    "nvlink bridge": "bridge",
    "pcie": "pcie",
}


def placements_of(offer: Offer, workload: Workload) -> list[Placement]:
    """Where a step would run on an offer: one placement for each form its GPU may have."""
    known = links_of(offer)
    return [
        Placement(
            gpu=gpu,
            gpus=offer.gpus,
            nodes=workload.usage.machines,
            gpu_share=offer.gpu_share,
            power_limit_w=checked_limit_w(offer.power_limit_w, gpu),
            vcpus=offer.vcpus if offer.gpus > 1 else None,
            wiring=Wiring(
                within=_within(gpu, known),
                network_bytes_per_s=known.network_bytes_per_s,
                network_kind=known.network_kind,
            ),
        )
        for gpu in offer_gpus(offer)
    ]


def _within(gpu: Gpu, known: KnownLinks) -> Within | None:
    """What joins an offer's GPUs: as its provider says, or as cards without peers must."""
    said = _WITHIN.get(known.gpu_link)
    if said == "pcie" and gpu.peer_to_peer is False:
        return "host"
    return said


def habits_assumed() -> Habits:
    """The session habits of the assumptions table."""
    return Habits(
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


def habits_at(terms: Terms) -> Habits:
    """The session habits at a provider: what it states, and assumptions for the rest."""
    habits = habits_assumed()
    return replace(
        habits,
        provisioning_s=terms.provisioning_s or habits.provisioning_s,
        notice_s=habits.notice_s if terms.spot_notice_s is None else terms.spot_notice_s,
        longest_session_s=terms.longest_session_s,
        weekly_s=terms.weekly_s,
    )


@cache
def _habits_at_home() -> Habits:
    """One's own machine is there, with its environment."""
    return replace(habits_assumed(), provisioning_s=0.0, environment_s=0.0)


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
