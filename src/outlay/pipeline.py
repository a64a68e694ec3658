"""outlay on one page: workload -> profile -> prediction -> cost -> plan.

    read_workload   what to train, for how long, within which limits      workload_file.py
    profile_for     one training step, operation by operation             trace/
    experience_for  what was measured of it, to be carried over           carried.py
    candidates      every offer worth a look, the user's own included     offers/
    steps_on        its time and memory on a machine's GPUs               placing.py, predict/
    planner_of      each offer as an option: run, bill, luck              planner.py
    run_of          the whole run: sessions, set-up, interruptions        predict/run.py
    cost_of         what that costs, in the lines of a bill               cost/
    rank_options    the order, the choice, and why each loser lost        plan.py

Facts come from the tables in `data/`; everything from `predict` to `plan` is values in, values out.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice, product

from outlay.carried import as_measured, experience_for, named_profile
from outlay.errors import InputError
from outlay.explain import plan_assumptions, plan_cautions
from outlay.habits import habits_assumed
from outlay.offers.agreed import with_known_places
from outlay.offers.candidates import candidates
from outlay.offers.commitments import committed
from outlay.offers.offer import Offer
from outlay.option import Option
from outlay.plan import Plan, Total, break_evens, choose, rank_options, shortlist
from outlay.planner import keeping, planner_of
from outlay.predict.experience import Experience
from outlay.trace.profile import SELECTED, profile_of
from outlay.trace.trace import Profile
from outlay.workload import Step, Workload


def plan_workload(
    workload: Workload,
    profile: Profile | None = None,
    *,
    today: str = "",
    experience: Experience | None = None,
) -> Plan:
    """The plan of a workload: every candidate predicted, priced, ranked and explained.

    `today` (YYYY-MM-DD) leaves out what providers have stopped selling by then. `experience` is
    what was measured; without it, what the measurements say that the workload names.
    """
    with _without_collecting():
        return _plan_workload(workload, profile, today, experience)


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


def _plan_workload(
    workload: Workload, profile: Profile | None, today: str, experience: Experience | None
) -> Plan:
    workload = _known(workload)
    profile = profile or profile_for(workload.step)
    experience = experience or experience_for(workload.step, profile)
    offers = _with_terms(candidates(workload, today), workload)
    options = [
        option
        for number, machines in enumerate(_machines_tried(workload))
        for kept in _kept_somewhere(_with_machines(workload, machines))
        for option in _options(
            kept,
            profile,
            [offer for offer in offers if offer.owned is None or number == 0],
            experience,
        )
    ]
    if not options:
        raise InputError(
            "No candidate is left to plan with.",
            why="What [consider] and [leave_out] ask for matches no offer.",
            fix="Loosen them, add an [[offer]], or look at `outlay offers`.",
        )
    return _plan(workload, profile, options, offers, today, experience)


def _known(workload: Workload) -> Workload:
    """The workload with what its measurements and places say that it leaves open."""
    return with_known_places(replace(workload, step=as_measured(workload.step)))


def _plan(
    workload: Workload,
    profile: Profile,
    options: Sequence[Option],
    offers: Sequence[Offer],
    today: str,
    experience: Experience,
) -> Plan:
    ranked = rank_options(options)
    assumed = plan_assumptions(workload, profile, habits_assumed(), offers, today, experience.seen)
    return Plan(
        options=ranked,
        chosen=choose(ranked),
        break_even=break_evens(ranked),
        assumptions=(*assumed, *experience.notes),
        cautions=plan_cautions(experience.seen),
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
    workload = _known(workload)
    profile = profile or profile_for(workload.step)
    experience = experience_for(workload.step, profile)
    with _without_collecting():
        options = _options(workload, profile, offers, experience)
        return _plan(workload, profile, options, offers, today, experience)


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
    workload = _known(workload)
    profile = profile or profile_for(workload.step)
    experience = experience_for(workload.step, profile)
    planner = planner_of(workload, profile, experience)
    kept: list[Total] = []
    with _without_collecting():
        for chunk in _chunks(offers):
            kept = shortlist([*kept, *planner.totals(chunk)], keep)
        options = [planner.option(one.offer, one.tenancy) for one in kept]
    return _plan(workload, profile, options, [one.offer for one in kept], today, experience)


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


def _options(
    workload: Workload, profile: Profile, offers: Sequence[Offer], experience: Experience
) -> list[Option]:
    """Every offer in every tenancy that the workload allows."""
    planner = planner_of(workload, profile, experience)
    return [
        planner.option(offer, tenancy)
        for offer in offers
        if keeping(workload, offer) is not None
        for tenancy in planner.tenancies(offer)
    ]


def profile_for(step: Step, selected: float = SELECTED) -> Profile:
    """The profile a workload's step names, a measurement's, or a trace of its code.

    `selected` is the share of elements that a selection by unknown values keeps in a trace.
    """
    if step.target is not None:
        return profile_of(step.target, selected=selected)
    return named_profile(step.profile or "")
