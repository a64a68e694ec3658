"""outlay on one page: workload -> profile -> prediction -> cost -> plan.

    read_workload   what to train, for how long, within which limits      workload_file.py
    profile_for     one training step, operation by operation             trace/
    candidates      every offer worth a look, the user's own included     offers/
    predict_step    its time and memory on a GPU                          predict/step.py
    run_of          the whole run: sessions, set-up, interruptions        predict/run.py
    rented_cost     what that costs, in the lines of a bill               cost.py
    rank_options    the order, the choice, and why each loser lost        plan.py

Facts come from the tables in `data/`; everything from `predict` to `plan` is values in, values out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import get_args

from outlay.cost import Bill, Cost, owned_cost, rented_cost
from outlay.errors import InputError
from outlay.estimate import Estimate
from outlay.facts import assumed, assumptions, rows_of
from outlay.hardware import Gpu
from outlay.offers.catalog import (
    Wanted,
    bundled_offers,
    gpu_filter,
    known_regions,
    offer_gpus,
    search,
    snapshot_date,
)
from outlay.offers.offer import Offer, Tenancy
from outlay.offers.sources.quoted import quoted_offers
from outlay.offers.sources.workstation import workstation_offers
from outlay.offers.spot import spot_price_usd, spot_risk
from outlay.offers.terms import StorageKind, Terms, known_provider, terms_of
from outlay.plan import Option, Plan, break_evens, choose, rank_options
from outlay.predict.calibration import Calibration, calibration_of
from outlay.predict.run import Habits, Run, run_of, steps, training_time_s
from outlay.predict.step import (
    Placement,
    StepPrediction,
    on_gpus,
    predict_step,
    spanning,
)
from outlay.trace.bundled import find_profile
from outlay.trace.profile import profile_of
from outlay.trace.trace import Precision, Profile
from outlay.units import GB
from outlay.workload import (
    FREE_SOURCES,
    WITH_THE_RUN,
    Selection,
    Step,
    TermsOverride,
    Workload,
)


def plan_workload(workload: Workload, profile: Profile | None = None, *, today: str = "") -> Plan:
    """The plan of a workload: every candidate predicted, priced, ranked and explained.

    `today` (YYYY-MM-DD) leaves out what providers have stopped selling by then.
    """
    workload = with_known_places(workload)
    planner = _planner(workload, profile or profile_for(workload.step))
    offers = candidates(workload, today)
    options = [
        planner.option(offer, tenancy)
        for offer in offers
        for tenancy in offer.tenancies
        if not workload.consider.tenancies or tenancy in workload.consider.tenancies
        if tenancy not in workload.leave_out.tenancies
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
        assumptions=_assumptions(workload, planner, offers),
    )


def profile_for(step: Step) -> Profile:
    """The profile a workload's step names, or a trace of its code."""
    if step.target is not None:
        return profile_of(step.target)
    return find_profile(step.profile or "")


def with_known_places(workload: Workload) -> Workload:
    """The workload with every place something lies at checked and spelled as in the tables."""
    quoted = _quoted(workload)

    def place(name: str) -> str:
        return name if name in (WITH_THE_RUN, *FREE_SOURCES) else known_provider(name, quoted)

    data = replace(workload.data, at=place(workload.data.at), kept_at=place(workload.data.kept_at))
    stored = tuple(replace(item, at=place(item.at)) for item in workload.stored)
    return replace(workload, data=data, stored=stored)


@cache
def calibration() -> Calibration:
    """The fitted numbers, from `data/calibration.csv`."""
    return calibration_of(rows_of("calibration.csv"))


def candidates(workload: Workload, today: str = "") -> list[Offer]:
    """The offers to consider: bundled, quoted, and machines of one's own; less what is left out."""
    own = [
        replace(offer, as_of=offer.as_of or today)
        for offer in (
            *quoted_offers(workload.quotes),
            *workstation_offers(workload.workstations),
        )
    ]
    consider, leave_out = workload.consider, workload.leave_out
    selected = _selected(bundled_offers(today), consider)  # also checks the names
    bundled = selected if consider.bundled else []
    left_out = {id(offer) for offer in _named(bundled, leave_out)} if _any(leave_out) else set()
    kept = [
        offer
        for offer in bundled
        if id(offer) not in left_out
        and (consider.max_gpus is None or offer.gpus <= consider.max_gpus)
    ]
    return own + kept


def _selected(offers: Iterable[Offer], selection: Selection) -> list[Offer]:
    """The offers that satisfy every restriction of a selection."""
    everything = list(offers)
    found = search(
        everything,
        Wanted(
            gpus=tuple(gpu_filter(text) for text in selection.gpus),
            providers=selection.providers,
            regions=selection.regions,
        ),
    )
    return [offer for offer in found if _instance_matches(offer, selection)]


def _named(offers: Iterable[Offer], selection: Selection) -> list[Offer]:
    """The offers that any restriction of a selection names."""
    everything = list(offers)
    filters = [gpu_filter(text) for text in selection.gpus]
    providers = {known_provider(name) for name in selection.providers}
    regions = known_regions(selection.regions, bundled_offers())
    return [
        offer
        for offer in everything
        if any(one.accepts(offer) for one in filters)
        or offer.provider in providers
        or offer.region in regions
        or (selection.instances and _instance_matches(offer, selection))
    ]


def _any(selection: Selection) -> bool:
    return bool(selection.gpus or selection.providers or selection.regions or selection.instances)


def _instance_matches(offer: Offer, selection: Selection) -> bool:
    patterns = selection.instances
    return not patterns or any(fnmatchcase(offer.instance, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planner:
    """What every option of one plan shares."""

    workload: Workload
    profile: Profile
    habits: Habits
    predict: Callable[[tuple[Gpu, ...], int, float], StepPrediction]
    terms: Callable[[str], Terms]

    def option(self, offer: Offer, tenancy: Tenancy) -> Option:
        """One offer in one tenancy, predicted and priced."""
        step = self.predict(offer_gpus(offer), offer.gpus, offer.gpu_share)
        run = self._run(offer, tenancy, step) if step.fits else None
        return Option(
            offer=offer,
            tenancy=tenancy,
            step=step,
            samples=_samples(self.workload, step, run),
            run=run,
            cost=None if run is None else self._cost(offer, tenancy, run, step),
            limits=self.workload.limits,
            notes=_notes(offer, tenancy),
        )

    def _run(self, offer: Offer, tenancy: Tenancy, step: StepPrediction) -> Run:
        rate = spot_risk(offer).interruptions_per_month if tenancy == "spot" else None
        habits = self.habits
        if offer.owned is not None:
            habits = replace(habits, provisioning_s=0.0, environment_s=0.0)
        return run_of(self.workload, training_time_s(self.workload, step), habits, rate)

    def _cost(self, offer: Offer, tenancy: Tenancy, run: Run, step: StepPrediction) -> Cost | None:
        hourly_usd = offer.hourly_usd(tenancy)
        gpu_w = step.placement.gpu.tdp_w * offer.gpus
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

    @cache
    def alone(gpu: Gpu, gpu_share: float) -> StepPrediction:
        placement = Placement(gpu=gpu, gpu_share=gpu_share)
        return predict_step(profile, placement, workload.step.batch_size, calibration(), precision)

    @cache
    def predict(forms: tuple[Gpu, ...], gpus: int, gpu_share: float) -> StepPrediction:
        return spanning([on_gpus(alone(gpu, gpu_share), gpus, calibration()) for gpu in forms])

    overrides = _overrides(workload)

    @cache
    def terms(provider: str) -> Terms:
        return _overridden(terms_of(provider), overrides.get(provider))

    return _Planner(
        workload=workload,
        profile=profile,
        habits=habits_assumed(),
        predict=predict,
        terms=terms,
    )


def _overrides(workload: Workload) -> dict[str, TermsOverride]:
    found: dict[str, TermsOverride] = {}
    for one in workload.terms:
        provider = known_provider(one.provider, _quoted(workload))
        if provider in found:
            raise InputError(
                f"Two [[provider]] tables are of {provider!r}.", fix="Put their keys into one."
            )
        found[provider] = one
    return found


def _quoted(workload: Workload) -> tuple[str, ...]:
    return tuple(quote.provider for quote in workload.quotes)


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


def _overridden(terms: Terms, override: TermsOverride | None) -> Terms:
    """A provider's terms with what the user pays instead."""
    if override is None:
        return terms
    own: dict[str, float | None] = {
        "billing_step": override.billing_step_s,
        "billing_minimum": override.billing_minimum_s,
        "volume_storage": _times(override.volume_usd_per_gb_month, 1 / GB),
        "object_storage": _times(override.object_usd_per_gb_month, 1 / GB),
        "registry_storage": _times(override.registry_usd_per_gb_month, 1 / GB),
        "egress": _times(override.egress_usd_per_gb, 1 / GB),
        "egress_free": _times(override.egress_free_gb_per_month, GB),
    }
    return replace(
        terms,
        billing_step_s=_or(own["billing_step"], terms.billing_step_s),
        billing_minimum_s=_or(own["billing_minimum"], terms.billing_minimum_s),
        storage_usd_per_byte_month={
            kind: _or(own[f"{kind}_storage"], terms.storage_usd_per_byte_month.get(kind))
            for kind in get_args(StorageKind)
        },
        egress_usd_per_byte=_or(own["egress"], terms.egress_usd_per_byte),
        egress_free_bytes_per_month=_or(own["egress_free"], terms.egress_free_bytes_per_month),
        facts={name: fact for name, fact in terms.facts.items() if own.get(name) is None},
    )


def _or(first: float | None, second: float | None) -> float | None:
    return second if first is None else first


def _times(amount: float | None, unit: float) -> float | None:
    return None if amount is None else amount * unit


def _samples(workload: Workload, step: StepPrediction, run: Run | None) -> float | None:
    if run is None:
        return None
    given = workload.samples()
    sessions = workload.usage.sessions_per_month or 1.0
    if given is not None:
        return given * sessions
    return steps(workload, step) * step.global_batch_size * workload.usage.machines * sessions


def _notes(offer: Offer, tenancy: Tenancy) -> tuple[str, ...]:
    notes = [f"price: {doubt.word}" for doubt in offer.doubts]
    gpus = offer_gpus(offer)
    if len(gpus) > 1:
        notes.append(f"form not stated: {gpus[0].name} taken, the slowest")
    if gpus[0].software.runs in ("old builds", "unknown"):
        notes.append(f"PyTorch: {gpus[0].software.runs} ({gpus[0].software.note})")
    if tenancy == "spot" and spot_risk(offer).is_assumption:
        notes.append("interruption rate assumed")
    return tuple(notes)


def _assumptions(workload: Workload, planner: _Planner, offers: Sequence[Offer]) -> tuple[str, ...]:
    """What was taken where the workload file says nothing, in plain words."""
    habits, usage, data = planner.habits, workload.usage, workload.data
    said = [
        f"Prices: the bundled snapshot of {snapshot_date()}, and quotes in the workload file.",
        "Step times: a roofline per operation, fitted on eight GPUs: trust the range first.",
        "The input pipeline keeps up with the GPU; evaluation is not counted.",
    ]
    if usage.setup_s is None:
        said.append(
            f"Each session starts with {habits.provisioning_s / 60:.0f} min to get a machine and "
            f"{habits.environment_s / 60:.0f} min to set up the environment (guess)."
        )
    if data.size_bytes is None:
        said.append("No dataset size is given: storing and fetching it is not counted.")
    rate = assumptions()["spot_interruptions_per_month_default"]
    said.append(
        f"Spot machines without a published rate are interrupted {rate.text} times a month (guess)."
    )
    if any(offer.gpus > 1 for offer in offers):
        said.append(
            "Several GPUs: data parallel in fp32 gradients, the global batch grows with the GPUs."
        )
    return tuple(said + list(planner.profile.notes))
