"""outlay on one page: workload -> profile -> prediction -> cost -> plan.

    read_workload   what to train, for how long, within which limits      workload_file.py
    profile_for     one training step, operation by operation             trace/
    candidates      every offer worth a look, the user's own included     offers/
    best_step       its time and memory on a machine's GPUs               predict/search.py
    run_of          the whole run: sessions, set-up, interruptions        predict/run.py
    rented_cost     what that costs, in the lines of a bill               cost.py
    rank_options    the order, the choice, and why each loser lost        plan.py

Facts come from the tables in `data/`; everything from `predict` to `plan` is values in, values out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from outlay.cost import Bill, Cost, owned_cost, rented_cost
from outlay.errors import InputError
from outlay.estimate import Estimate
from outlay.explain import option_notes, plan_assumptions
from outlay.facts import assumed, rows_of
from outlay.hardware import Gpu
from outlay.offers.agreed import terms_for, with_known_places
from outlay.offers.candidates import candidates
from outlay.offers.catalog import offer_gpus
from outlay.offers.links import KnownLinks, links_of
from outlay.offers.offer import Offer, Tenancy
from outlay.offers.spot import spot_price_usd, spot_risk
from outlay.offers.terms import Terms
from outlay.plan import Option, Plan, break_evens, choose, rank_options
from outlay.predict.calibration import Calibration, calibration_of
from outlay.predict.links import Wiring, Within
from outlay.predict.machine import checked_limit_w
from outlay.predict.run import Habits, Run, run_of, steps, training_time_s
from outlay.predict.search import Question, best_step, on_unlike
from outlay.predict.step import Placement, StepPrediction, spanning
from outlay.predict.strategy import wanted_of
from outlay.trace.bundled import find_profile
from outlay.trace.profile import SELECTED, profile_of
from outlay.trace.trace import Precision, Profile
from outlay.workload import Step, Workload


def plan_workload(workload: Workload, profile: Profile | None = None, *, today: str = "") -> Plan:
    """The plan of a workload: every candidate predicted, priced, ranked and explained.

    `today` (YYYY-MM-DD) leaves out what providers have stopped selling by then.
    """
    workload = with_known_places(workload)
    profile = profile or profile_for(workload.step)
    offers = candidates(workload, today)
    options = [
        option
        for number, machines in enumerate(_machines_tried(workload))
        for option in _options(
            _with_machines(workload, machines),
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
    ranked = rank_options(options)
    return Plan(
        options=ranked,
        chosen=choose(ranked),
        break_even=break_evens(ranked),
        assumptions=plan_assumptions(workload, profile, habits_assumed(), offers, today),
    )


def _machines_tried(workload: Workload) -> list[int]:
    """Numbers of machines to compare, fewest first: of one's own machines there are no more."""
    return sorted(workload.usage.machines_tried) or [workload.usage.machines]


def _with_machines(workload: Workload, machines: int) -> Workload:
    return replace(workload, usage=replace(workload.usage, machines=machines))


def _options(workload: Workload, profile: Profile, offers: Sequence[Offer]) -> list[Option]:
    """Every offer in every tenancy that the workload allows."""
    planner = _planner(workload, profile)
    return [
        planner.option(offer, tenancy)
        for offer in offers
        for tenancy in offer.tenancies
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
    habits: Habits
    predict: Callable[[Offer], StepPrediction]
    terms: Callable[[str], Terms]

    def option(self, offer: Offer, tenancy: Tenancy) -> Option:
        """One offer in one tenancy, predicted and priced."""
        step = self.predict(offer)
        run = self._run(offer, tenancy, step) if step.fits else None
        return Option(
            offer=offer,
            tenancy=tenancy,
            step=step,
            samples=_samples(self.workload, step, run),
            run=run,
            cost=None if run is None else self._cost(offer, tenancy, run, step),
            limits=self.workload.limits,
            notes=option_notes(offer, tenancy, self.profile, step),
        )

    def _run(self, offer: Offer, tenancy: Tenancy, step: StepPrediction) -> Run:
        rate = spot_risk(offer).interruptions_per_month if tenancy == "spot" else None
        habits = self.habits
        if offer.owned is not None:
            habits = replace(habits, provisioning_s=0.0, environment_s=0.0)
        return run_of(self.workload, training_time_s(self.workload, step), habits, rate)

    def _cost(self, offer: Offer, tenancy: Tenancy, run: Run, step: StepPrediction) -> Cost | None:
        hourly_usd = offer.hourly_usd(tenancy)
        gpu_w = (step.placement.power_limit_w or step.placement.gpu.tdp_w) * offer.gpus
        bill = Bill(
            run=run,
            offer=offer,
            tenancy=tenancy,
            hourly_usd=Estimate.exactly(hourly_usd or 0.0)
            if tenancy != "spot"
            else spot_price_usd(offer),
            terms=self.terms,
            gpu_w=gpu_w,
        )
        if offer.owned is not None:
            return owned_cost(self.workload, bill, offer.owned)
        return None if hourly_usd is None else rented_cost(self.workload, bill)


def _planner(workload: Workload, profile: Profile) -> _Planner:
    precision: Precision | None = workload.step.precision  # type: ignore[assignment]
    wanted = wanted_of(workload.step.strategy or "auto")

    @cache
    def predict_form(placement: Placement, batch_size: int | None = None) -> StepPrediction:
        question = Question(
            profile=profile,
            placement=placement,
            batch_size=batch_size or workload.step.batch_size,
            global_batch_size=workload.step.global_batch_size,
            precision=precision,
            wanted=wanted,
        )
        return best_step(question, calibration(), thorough=False)

    def predict(offer: Offer) -> StepPrediction:
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

    return _Planner(
        workload=workload,
        profile=profile,
        habits=habits_assumed(),
        predict=predict,
        terms=terms_for(workload),
    )


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
        provisioning_s=assumed("provisioning_time_s"),
        environment_s=assumed("environment_setup_time_s"),
        download_bytes_per_s=assumed("data_download_bytes_per_s"),
        checkpoint_bytes_per_s=assumed("checkpoint_write_bytes_per_s"),
        checkpoint_interval_s=assumed("checkpoint_interval_s"),
        spot_restart_s=assumed("spot_requeue_s"),
    )


def _samples(workload: Workload, step: StepPrediction, run: Run | None) -> float | None:
    if run is None:
        return None
    given = workload.samples()
    sessions = workload.usage.sessions_per_month or 1.0
    if given is not None:
        return given * sessions
    return steps(workload, step) * step.global_batch_size * sessions
