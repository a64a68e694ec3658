"""Results as JSON documents: the keys are fixed, `"schema": 1` says which set of them.

Times are in seconds, memory in bytes, money in US dollars. An estimate is
{"low": x, "likely": y, "high": z}. Unknown is null.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from outlay.advise.alternatives import Alternative
from outlay.advise.cards import CardForSale, DominatedCard
from outlay.advise.questions import Answer
from outlay.advise.recommendation import Recommendation, TurningPoint, UpgradePath
from outlay.facts import Fact
from outlay.fit.gpu_memory import REFERENCE_GPU, GpuMemory, reference_gpu
from outlay.hardware.gpus import Gpu
from outlay.offers.offer import Offer
from outlay.plan.option import Option
from outlay.plan.ranking import BreakEven, Plan
from outlay.plan.sensitivity import TrialValue, rivals_of, swings, trial_value
from outlay.predict.host import HostTest
from outlay.predict.run_time import Run
from outlay.predict.step import StepPrediction
from outlay.trace.profile import Profile
from outlay.trace.step_report import CATEGORIES, CallSite, HeavyOp, StepReport
from outlay.uncertainty import Estimate

SCHEMA = 1
Document = dict[str, Any]


def dumps(document: Document) -> str:
    """The document as text."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)


def estimate_document(estimate: Estimate | None) -> Document | None:
    """An estimate, or null where it is unknown."""
    if estimate is None:
        return None
    return {"low": estimate.low, "likely": estimate.likely, "high": estimate.high}


def plan_document(
    plan: Plan, name: str, most: int | None = None, *, explained: Option | None = None
) -> Document:
    """`outlay plan --json`: all options, or the best of them; the choice is always among them.

    `explained` is the option whose inputs are looked at one by one; without it the choice.
    """
    options = [option_document(option) for option in plan.options[:most]]
    chosen = None if plan.chosen is None else options[plan.chosen.rank - 1]
    asked = explained or plan.chosen
    return {
        "schema": SCHEMA,
        "workload": name,
        "ranked_by": plan.ranked_by,
        "options": options,
        "chosen": chosen,
        "break_even": {one.buy: _break_even_document(one) for one in plan.break_even},
        "explained": None if asked is None else _explained_document(plan, asked),
        "trial": _trial_document(trial_value(plan)),
        "assumptions": [*plan.cautions, *plan.assumptions],
    }


def _explained_document(plan: Plan, option: Option) -> Document:
    """What the cost of an option hangs on, the input that moves it most first."""
    rivals = rivals_of(plan) if option is plan.chosen else ()
    return {
        "rank": option.rank,
        "why_not": option.why_not,
        "inputs": [
            {
                "name": swing.name,
                "value": estimate_document(swing.value),
                "cost_usd": estimate_document(swing.usd),
                "cheaper_then": None if swing.winner is None else swing.winner.rank,
            }
            for swing in swings(option, rivals)
        ],
    }


def _trial_document(found: TrialValue | None) -> Document | None:
    if found is None:
        return None
    return {
        "first": found.first.rank,
        "second": found.second.rank,
        "cost_usd": found.cost_usd,
        "gain_usd": found.gain_usd,
        "second_wins": found.second_wins,
        "worth_it": found.is_worth_it,
    }


def option_document(option: Option) -> Document:
    """One option of a plan."""
    offer, step, run, cost = option.offer, option.step, option.run, option.cost
    lines = cost.breakdown.lines if cost else ()
    ranges = option.ranges
    return {
        "rank": option.rank,
        "provider": offer.provider,
        "instance": offer.instance,
        "gpu": offer.gpu,
        **_spread_document(step),
        "tenancy": option.tenancy,
        "term": None if offer.commitment is None else offer.commitment.name,
        "keeping": option.keeping or None,
        "region": offer.region,
        "price_usd_per_hour": offer.hourly_usd(option.tenancy),
        "price_as_of": offer.as_of or None,
        "price_source": offer.source,
        "doubts": [doubt.word for doubt in offer.doubts],
        "cautions": list(option.doubts),
        "batch_size": step.batch_size,
        "global_batch_size": step.global_batch_size,
        "max_batch_size": step.max_batch_size,
        "step_time_s": estimate_document(step.step_time_s),
        "step_time_from": step.time_from,
        "samples": option.samples,
        "time_parts_s": _time_parts(run),
        "sessions": None if run is None else float(run.sessions),
        "interruptions": None if run is None else float(run.interruptions),
        "checkpoint_interval_s": None if run is None else float(run.checkpoint_interval_s),
        "run_time_s": estimate_document(option.run_time_s),
        "calendar_time_s": estimate_document(option.calendar_s),
        "cost_usd": estimate_document(option.cost_usd),
        "lines": [
            {
                "name": line.name,
                "usd": float(line.usd),
                "low": None if spread is None else spread.low,
                "high": None if spread is None else spread.high,
                "basis": line.basis,
                "source": line.source,
            }
            for line, spread in zip_longest(lines, ranges.lines if ranges else ())
        ],
        "not_priced": list(cost.unknown) if cost else [],
        "usd_per_million_samples": option.usd_per_million_samples,
        "training_usd_per_million_samples": option.training_usd_per_million_samples,
        "fits": option.fits,
        "within_budget": option.within_budget,
        "within_budget_chance": ranges.within_budget if ranges else None,
        "meets_deadline": option.meets_deadline,
        "meets_deadline_chance": ranges.meets_deadline if ranges else None,
        "on_frontier": option.on_frontier,
        "why_not": option.why_not,
        "notes": list(option.notes),
    }


def _time_parts(run: Run | None) -> Document:
    """How long the machine is held for what, by the name of the line it is billed in."""
    if run is None:
        return {}
    return {name: float(time_s) for name, time_s in run.time_parts_s}


def _break_even_document(one: BreakEven) -> Document:
    return {
        "rent": one.rent,
        "use_s": one.use_s,
        "life_use_s": one.life_use_s,
        "calendar_s": one.calendar_s,
        "owned_usd_per_hour": one.owned_usd_per_hour,
        "rented_usd_per_hour": one.rented_usd_per_hour,
        "purchase_usd": one.purchase_usd,
        "resale_usd": one.resale_usd,
    }


def offers_document(offers: list[Offer]) -> Document:
    """`outlay offers --json`."""
    return {"schema": SCHEMA, "offers": [offer_document(offer) for offer in offers]}


def offer_document(offer: Offer) -> Document:
    """One offer."""
    return {
        "provider": offer.provider,
        "instance": offer.instance,
        "gpu": offer.gpu,
        "gpus": offer.gpus,
        "gpu_share": offer.gpu_share,
        "gpu_memory_bytes": offer.gpu_memory_bytes,
        "vcpus": offer.vcpus,
        "ram_bytes": offer.ram_bytes,
        "local_disk_bytes": offer.local_disk_bytes,
        "region": offer.region,
        "zones": offer.zones,
        "price_usd_per_hour": offer.price_usd_per_hour,
        "spot_usd_per_hour": offer.spot_usd_per_hour,
        "spot_high_usd_per_hour": offer.spot_high_usd_per_hour,
        "as_of": offer.as_of,
        "source": offer.source,
        "doubts": [doubt.word for doubt in offer.doubts],
    }


def gpus_document(gpus: list[Gpu]) -> Document:
    """`outlay gpus --json`: every fact with its unit, source and date."""
    return {"schema": SCHEMA, "gpus": [gpu_document(gpu) for gpu in gpus]}


def gpu_document(gpu: Gpu) -> Document:
    """One GPU in outlay's units, and the rows behind it as they stand in the table."""
    return {
        "gpu": gpu.name,
        "vendor": gpu.vendor,
        "architecture": gpu.architecture,
        "form": gpu.form,
        "memory_bytes": gpu.memory_bytes,
        "usable_bytes": gpu.usable_bytes,
        "memory_bytes_per_s": gpu.memory_bytes_per_s,
        "sm_count": gpu.sm_count,
        "boost_hz": gpu.boost_hz,
        "peak_flops_per_s": dict(gpu.peak_flops_per_s),
        "tdp_w": gpu.tdp_w,
        "compute_capability": gpu.compute_capability,
        "pytorch_runs": gpu.software.runs,
        "facts": {name: _fact_document(fact) for name, fact in gpu.facts.items()},
    }


def _fact_document(fact: Fact) -> Document:
    return {
        "value": fact.text,
        "unit": fact.unit,
        "source": fact.source,
        "as_of": fact.as_of,
        "note": fact.note,
    }


def predictions_document(
    target: str, predictions: Sequence[tuple[str, StepPrediction, tuple[str, ...]]]
) -> Document:
    """`outlay predict --json`."""
    return {
        "schema": SCHEMA,
        "target": target,
        "predictions": [_prediction_document(*one) for one in predictions],
    }


def _prediction_document(spelling: str, step: StepPrediction, notes: tuple[str, ...]) -> Document:
    return {
        "gpu": step.placement.gpu.name,
        "asked": spelling,
        **_spread_document(step),
        "batch_size": step.batch_size,
        "global_batch_size": step.global_batch_size,
        "step_time_s": estimate_document(step.step_time_s),
        "step_time_from": step.time_from,
        "host_time_s": step.host_time_s,
        "device_time_s": step.device_time_s,
        "device_time_by_kind_s": dict(step.by_kind_s),
        "input_time_s": step.input_s,
        "exchange_time_s": estimate_document(step.exchange_s),
        "waiting_time_s": step.waiting_s,
        "samples_per_s": step.samples_per_s if step.batch_size else None,
        "bound": step.bound,
        "mfu": step.mfu,
        "flops_per_step": step.flops,
        "parameters": step.parameters,
        "peak_allocated_bytes": estimate_document(step.memory.allocated_bytes),
        "peak_reserved_bytes": estimate_document(step.memory.reserved_bytes),
        "context_bytes": step.memory.context_bytes,
        "available_bytes": step.memory.available_bytes,
        "fits": step.fits,
        "max_batch_size": step.max_batch_size,
        "notes": list(notes),
    }


def _spread_document(step: StepPrediction) -> Document:
    """How a step is spread over GPUs."""
    strategy, placement = step.strategy, step.placement
    return {
        "gpus": placement.gpus,
        "nodes": placement.nodes,
        "strategy": {
            "name": strategy.name,
            "data": strategy.data,
            "sharding": strategy.sharding,
            "within_node": strategy.within_node,
            "tensor": strategy.tensor,
            "pipeline": strategy.pipeline,
        },
        "micro_batches": step.micro_batches,
        "power_limit_w": placement.power_limit_w,
    }


def host_document(found: HostTest) -> Document:
    """`outlay host --json`."""
    return {
        "schema": SCHEMA,
        "speed": found.speed,
        "step_s": found.step_s,
        "spread": found.spread,
        "samples": found.samples,
    }


def profiles_document(profiles: list[Profile]) -> Document:
    """`outlay profiles --json`."""
    return {"schema": SCHEMA, "profiles": [profile_document(profile) for profile in profiles]}


def profile_document(profile: Profile) -> Document:
    """A profile's head: what it is and where it came from."""
    return {
        "name": profile.name,
        "description": profile.description,
        "sample": profile.sample,
        "parameters": profile.parameters,
        "trainable_parameters": profile.trainable_parameters,
        "flops_per_sample": profile.at(16).flops / 16,
        "traced_batch_sizes": sorted(profile.memory),
        "traced_on": profile.traced_on,
        "versions": dict(profile.versions),
        "unknown_ops": dict(profile.unknown_ops),
        "notes": list(profile.notes),
    }


def trace_document(
    report: StepReport, profile: Profile | None = None, on_gpus: Sequence[GpuMemory] = ()
) -> Document:
    """`outlay trace --json`: the step at one batch size, GPUs, and the profile if one was saved."""
    peak = report.peak
    amounts = {category: getattr(peak.memory, category) for category in CATEGORIES}
    return {
        "schema": SCHEMA,
        "name": report.name,
        "target": report.target,
        "batch_size": report.batch_size,
        "period": report.period,
        "parameters": report.parameters,
        "trainable_parameters": report.trainable_parameters,
        "flops_per_step": report.flops,
        "moved_bytes_per_step": report.moved_bytes,
        "phases": [
            {
                "phase": total.phase,
                "operations": total.operations,
                "kernels": total.launches,
                "flops": total.flops,
                "moved_bytes": total.moved_bytes,
            }
            for total in report.phases
        ],
        "peak": {
            "bytes": peak.memory.peak_bytes,
            "categories_bytes": amounts,
            "context_bytes": reference_gpu().libraries.context_bytes,
            "workspace_gpu": REFERENCE_GPU,
            "operation": peak.operation,
            "operations": report.timeline.operations,
            "operator": peak.name,
            "phase": peak.phase,
            "call_site": _site_document(peak.site),
        },
        "heaviest_by_flops": [_op_document(op) for op in report.heaviest_by_flops()],
        "heaviest_by_bytes": [_op_document(op) for op in report.heaviest_by_bytes()],
        "unknown_ops": dict(report.unknown_ops),
        "unknown_moved_fraction": report.unknown_moved_fraction,
        "notes": list(report.notes),
        "versions": dict(report.versions),
        "gpus": [_gpu_memory_document(one) for one in on_gpus],
        "profile": None if profile is None else profile_document(profile),
    }


def _gpu_memory_document(one: GpuMemory) -> Document:
    return {
        "gpu": one.gpu.name,
        "asked": one.asked,
        "batch_size": one.batch_size,
        "peak_allocated_bytes": estimate_document(one.memory.allocated_bytes),
        "peak_reserved_bytes": estimate_document(one.memory.reserved_bytes),
        "context_bytes": one.memory.context_bytes,
        "available_bytes": one.memory.available_bytes,
        "fits": one.fits,
        "max_batch_size": one.max_batch_size,
        "verified": one.is_verified,
        "notes": list(one.notes),
    }


def _op_document(op: HeavyOp) -> Document:
    return {
        "operator": op.name,
        "kind": op.kind,
        "phase": op.phase,
        "precision": op.precision,
        "count": op.count,
        "flops": op.flops,
        "moved_bytes": op.moved_bytes,
        "shapes": [list(shape) for shape in op.shapes],
        "call_site": _site_document(op.site),
    }


def _site_document(site: CallSite | None) -> Document | None:
    if site is None:
        return None
    return {"file": site.file, "line": site.line, "function": site.function, "code": site.code}


# `outlay advise --json`: advice and answers as documents.


def advice_document(advice: Recommendation) -> Document:
    """`outlay advise --json`."""
    return {"schema": SCHEMA, "advice": _advice(advice), "answer": None}


def answer_document(answer: Answer) -> Document:
    """`outlay advise --ask TOPIC --json`."""
    return {"schema": SCHEMA, "advice": None, "answer": _answer(answer)}


def _advice(advice: Recommendation) -> Document:
    """Everything `print_advice` says, in plain figures."""
    asked, use, chosen = advice.request, advice.request.use, advice.chosen
    return {
        "purpose": asked.purpose.name if asked.purpose else None,
        "profile": asked.profile.name,
        "usage": {
            "said": use.text,
            "assumed": use.assumed,
            "hours_per_month": use.hours_per_month,
            "sessions_per_month": use.sessions_per_month,
            "busy_fraction": use.busy_fraction,
            "counted_on": advice.reference.gpu,
            "samples_per_month": advice.reference.samples_per_month,
        },
        "gpus": asked.gpus,
        "months": asked.months,
        "budget_usd": asked.budget_usd,
        "chosen": None if chosen is None else _way(chosen),
        "ways": [_way(way) for way in advice.alternatives],
        "cards": [_way(way) for way in advice.cards],
        "break_even": [_turning_point(one) for one in advice.turning_points],
        "rules": [
            {"rule": one.rule, "says": one.says, "holds": one.holds, "because": one.because}
            for one in advice.rules
        ],
        "caveats": list(advice.caveats),
        "avoid": [_beaten(one) for one in advice.dominated],
        "upgrade": None if advice.upgrade is None else _upgrade(advice.upgrade),
    }


def _way(way: Alternative) -> Document:
    return {
        "kind": way.kind,
        "usd_per_month": estimate_document(way.usd_per_month),
        "upfront_usd": way.upfront_usd,
        "busy_hours_per_month": way.busy_hours,
        "why_not": way.why_not,
        "card": None if way.card is None else _card(way.card),
        "option": option_document(way.option),
    }


def _card(card: CardForSale) -> Document:
    return {
        "gpu": card.gpu.name,
        "condition": card.condition,
        "price_usd": card.listed_usd,
        "as_of": card.as_of,
        "source": card.source,
    }


def _turning_point(point: TurningPoint) -> Document:
    return {
        "buy": point.buy.option.offer.instance,
        "against": point.rent.kind,
        "rent": f"{point.rent.option.offer.provider} {point.rent.option.offer.instance}",
        "purchase_usd": point.even.purchase_usd,
        "resale_usd": point.even.resale_usd,
        "owned_usd_per_hour": point.even.owned_usd_per_hour,
        "rented_usd_per_hour": point.even.rented_usd_per_hour,
        "hours": point.hours,
        "months": point.months,
        "hours_per_day": point.hours_per_day,
        "buying_is_cheaper": point.buying_is_cheaper,
        "buying_wins_chance": point.buying_wins,
    }


def _beaten(one: DominatedCard) -> Document:
    return {"card": _card(one.card), "by": _card(one.better), "times_as_fast": one.times_as_fast}


def _upgrade(path: UpgradePath) -> Document:
    return {
        "small": _card(path.small),
        "big": _card(path.big),
        "after_months": path.after_months,
        "at_once_usd": path.at_once_usd,
        "in_steps_usd": path.in_steps_usd,
        "speed_ratio": path.speed_ratio,
    }


def _answer(answer: Answer) -> Document:
    figures = answer.figures
    return {
        "topic": answer.topic,
        "question": answer.question,
        "answer": list(answer.words),
        "figures": []
        if figures is None
        else [dict(zip(figures.heads, row, strict=True)) for row in figures.rows],
        "sources": list(answer.sources),
    }
