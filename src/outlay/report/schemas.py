"""The JSON schemas of the workload file and of every `--json` document."""

from __future__ import annotations

from typing import get_args

from outlay.plan.vary import PER_MILLION, WHOLE
from outlay.report.documents import SCHEMA
from outlay.report.schema_parts import (
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    TEXTS,
    Schema,
    list_of,
    or_null,
    record,
)
from outlay.trace.profile import Kind, Precision
from outlay.trace.step_report import CATEGORIES, PHASES
from outlay.workstation.machine import State
from outlay.workstation.parts import KINDS

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_COMMANDS = {"measurement": "probe", "batches": "probe --find-batch"}
"""The commands of documents that have another name."""
_ESTIMATE: Schema = {
    "type": "object",
    "description": "10th percentile, best single figure, 90th percentile.",
    "properties": {"low": NUMBER, "likely": NUMBER, "high": NUMBER},
    "required": ["low", "likely", "high"],
    "additionalProperties": False,
}


def schema(name: str) -> Schema:
    """One schema by name."""
    if name == "workload":
        from outlay.workload.schema import WorkloadFile

        return {"$schema": _DRAFT, **WorkloadFile.model_json_schema(mode="validation")}
    makers = {
        "plan": _plan,
        "vary": _vary,
        "diff": _diff,
        "advise": _advise,
        "offers": _offers,
        "gpus": _gpus,
        "predict": _predict,
        "calibrate": _calibrate,
        "fit": _fit,
        "build": _build,
        "host": _host,
        "trace": _trace,
        "profiles": _profiles,
        "measurement": _measurement,
        "batches": _batches,
    }
    command = _COMMANDS.get(name, name)
    return {"$schema": _DRAFT, "title": f"outlay {command} --json", **makers[name]()}


def _measurement() -> Schema:
    from outlay.report.measurement_schema import measurement_schema

    return measurement_schema()


def _batches() -> Schema:
    from outlay.report.measurement_schema import batches_schema

    return batches_schema(SCHEMA)


def _advise() -> Schema:
    from outlay.report.advise_schema import advise_schema

    return advise_schema(_plan()["properties"]["options"]["items"], _ESTIMATE)


def _document(**properties: Schema) -> Schema:
    return record(schema={"const": SCHEMA}, **properties)


def _spread() -> dict[str, Schema]:
    strategy = record(
        name=TEXT,
        data=COUNT,
        sharding={"enum": ["none", "zero1", "zero2", "zero3"]},
        within_node=FLAG,
        tensor=COUNT,
        pipeline=COUNT,
    )
    return {
        "gpus": COUNT,
        "nodes": COUNT,
        "strategy": strategy,
        "micro_batches": COUNT,
        "power_limit_w": or_null(NUMBER),
    }


def _plan() -> Schema:
    line = record(
        name=TEXT,
        usd=NUMBER,
        low=or_null(NUMBER),
        high=or_null(NUMBER),
        basis=TEXT,
        source=TEXT,
    )
    option = record(
        rank=COUNT,
        provider=TEXT,
        instance=TEXT,
        gpu=TEXT,
        **_spread(),
        tenancy={"enum": ["on-demand", "spot", "reserved", "owned"]},
        term=or_null(TEXT),
        keeping=or_null(TEXT),
        region=TEXT,
        price_usd_per_hour=or_null(NUMBER),
        price_as_of=or_null(TEXT),
        price_source=TEXT,
        doubts=TEXTS,
        cautions=TEXTS,
        batch_size=COUNT,
        global_batch_size=COUNT,
        max_batch_size=COUNT,
        step_time_s=_ESTIMATE,
        step_time_from=TEXT,
        samples=or_null(NUMBER),
        time_parts_s={"type": "object", "additionalProperties": NUMBER},
        sessions=or_null(NUMBER),
        interruptions=or_null(NUMBER),
        checkpoint_interval_s=or_null(NUMBER),
        run_time_s=or_null(_ESTIMATE),
        calendar_time_s=or_null(_ESTIMATE),
        cost_usd=or_null(_ESTIMATE),
        lines=list_of(line),
        not_priced=TEXTS,
        usd_per_million_samples=or_null(NUMBER),
        training_usd_per_million_samples=or_null(NUMBER),
        fits=FLAG,
        within_budget=FLAG,
        within_budget_chance=or_null(NUMBER),
        meets_deadline=FLAG,
        meets_deadline_chance=or_null(NUMBER),
        on_frontier=FLAG,
        why_not=or_null(TEXT),
        notes=TEXTS,
    )
    break_even = record(
        rent=TEXT,
        use_s=or_null(NUMBER),
        life_use_s=or_null(NUMBER),
        calendar_s=or_null(NUMBER),
        owned_usd_per_hour=NUMBER,
        rented_usd_per_hour=NUMBER,
        purchase_usd=NUMBER,
        resale_usd=NUMBER,
    )
    return _document(
        workload=TEXT,
        ranked_by={"enum": ["cost", "training cost per million samples"]},
        options=list_of(option),
        chosen=or_null(option),
        break_even={"type": "object", "additionalProperties": break_even},
        explained=or_null(
            record(
                rank=COUNT,
                why_not=or_null(TEXT),
                inputs=list_of(
                    record(
                        name=TEXT,
                        value=_ESTIMATE,
                        cost_usd=_ESTIMATE,
                        cheaper_then=or_null(COUNT),
                    )
                ),
            )
        ),
        trial=or_null(
            record(
                first=COUNT,
                second=COUNT,
                cost_usd=NUMBER,
                gain_usd=NUMBER,
                second_wins=NUMBER,
                worth_it=FLAG,
            )
        ),
        assumptions=TEXTS,
    )


def _vary() -> Schema:
    point = record(
        value={},
        chosen=or_null(TEXT),
        cost_usd=or_null(NUMBER),
        costs_usd={"type": "object", "additionalProperties": or_null(NUMBER)},
    )
    return _document(
        workload=TEXT,
        vary=TEXT,
        unit={"enum": [WHOLE, PER_MILLION]},
        points=list_of(point),
        turns=list_of(record(before=TEXT, after=TEXT, at=or_null(NUMBER), unit=TEXT)),
    )


def _diff() -> Schema:
    line = record(
        mark={"enum": ["+", "-", "~", "="]}, name=TEXT, before_usd=NUMBER, after_usd=NUMBER
    )
    option = or_null({"type": "object"})
    return _document(
        files=TEXTS,
        inputs=list_of(record(key=TEXT, before={}, after={})),
        before=option,
        after=option,
        change_usd=or_null(NUMBER),
        lines=list_of(line),
    )


def _offers() -> Schema:
    offer = record(
        provider=TEXT,
        instance=TEXT,
        gpu=TEXT,
        gpus=COUNT,
        gpu_share=NUMBER,
        gpu_memory_bytes=or_null(NUMBER),
        vcpus=or_null(NUMBER),
        ram_bytes=or_null(NUMBER),
        local_disk_bytes=or_null(NUMBER),
        region=TEXT,
        zones=COUNT,
        price_usd_per_hour=or_null(NUMBER),
        spot_usd_per_hour=or_null(NUMBER),
        spot_high_usd_per_hour=or_null(NUMBER),
        as_of=TEXT,
        source=TEXT,
        doubts=TEXTS,
    )
    return _document(offers=list_of(offer))


def _gpus() -> Schema:
    gpu = record(
        gpu=TEXT,
        vendor=TEXT,
        architecture=TEXT,
        form=TEXT,
        memory_bytes=NUMBER,
        usable_bytes=NUMBER,
        memory_bytes_per_s=NUMBER,
        sm_count=COUNT,
        boost_hz=NUMBER,
        peak_flops_per_s={"type": "object", "additionalProperties": NUMBER},
        tdp_w=NUMBER,
        compute_capability=TEXT,
        pytorch_runs={"enum": ["yes", "old builds", "special build", "no", "unknown"]},
        facts={"type": "object", "additionalProperties": _fact()},
    )
    return _document(gpus=list_of(gpu))


def _predict() -> Schema:
    prediction = record(
        gpu=TEXT,
        asked=TEXT,
        **_spread(),
        batch_size=COUNT,
        global_batch_size=COUNT,
        step_time_s=_ESTIMATE,
        step_time_from=TEXT,
        host_time_s=NUMBER,
        device_time_s=NUMBER,
        device_time_by_kind_s={"type": "object", "additionalProperties": NUMBER},
        input_time_s=NUMBER,
        exchange_time_s=_ESTIMATE,
        waiting_time_s=NUMBER,
        samples_per_s=or_null(NUMBER),
        bound={"enum": ["arithmetic", "memory", "host", "input", "network"]},
        mfu=NUMBER,
        flops_per_step=NUMBER,
        parameters=COUNT,
        peak_allocated_bytes=_ESTIMATE,
        peak_reserved_bytes=_ESTIMATE,
        context_bytes=NUMBER,
        available_bytes=NUMBER,
        fits=FLAG,
        max_batch_size=COUNT,
        notes=TEXTS,
    )
    return _document(target=TEXT, predictions=list_of(prediction))


def _calibrate() -> Schema:
    factor = record(
        name={**TEXT, "description": "The GPU; of a host, its CPU."},
        measurements=COUNT,
        mean_ratio={**NUMBER, "description": "Measured over predicted, a mean over steps."},
        factor={**NUMBER, "description": "That drawn towards 1: what predictions are times."},
        error_before=NUMBER,
        error=NUMBER,
        steps={**COUNT, "description": "Distinct steps among them; each has one vote."},
        is_bounded={**FLAG, "description": "Whether it is held at 3 times the error before."},
    )
    kept = record(
        name={**TEXT, "description": "What `--forget` takes."},
        measured_on={**TEXT, "description": "The day, YYYY-MM-DD."},
        command=TEXTS,
        gpu=or_null(TEXT),
        cpu=or_null(TEXT),
        batch_size={**or_null(COUNT), "description": "Samples of a step on one GPU."},
        step_s={**or_null(NUMBER), "description": "Mean step time, in seconds."},
        gpu_ratio={**or_null(NUMBER), "description": "Time of its kernels over predicted."},
        host_ratio={**or_null(NUMBER), "description": "A step that waits for its host, likewise."},
        used_for=list_of({"enum": ["gpu", "host"]}),
        step={**or_null(COUNT), "description": "Measurements of one step have the same number."},
        left_out={**or_null(TEXT), "description": "Why it says nothing, or not of its GPU."},
    )
    return _document(
        folder=TEXT,
        measurements=COUNT,
        removed={**COUNT, "description": "Measurements that `--forget` removed."},
        gpus=list_of(factor),
        host={**or_null(factor), "description": "What predictions use: the mean over `hosts`."},
        hosts={**list_of(factor), "description": "By CPU."},
        kept=list_of(kept),
        notes=TEXTS,
    )


def _fit() -> Schema:
    offer = record(
        provider=TEXT,
        instance=TEXT,
        region=TEXT,
        price_usd_per_hour=or_null(NUMBER),
        as_of=TEXT,
        source=TEXT,
    )
    changes = record(
        arithmetic=or_null({"enum": ["bf16 autocast", "fp16 autocast", "bf16"]}),
        recompute=or_null({"enum": ["blocks", "selective"]}),
        update=or_null({"enum": ["fused", "8-bit", "offloaded"]}),
        lora_rank=COUNT,
        accumulate=COUNT,
    )
    way = record(
        name=TEXT,
        changes=changes,
        kinds=TEXTS,
        gpu=TEXT,
        gpus=COUNT,
        strategy=TEXT,
        fits=FLAG,
        batch_size=COUNT,
        micro_batches=COUNT,
        global_batch_size=COUNT,
        max_batch_size=COUNT,
        step_time_s=_ESTIMATE,
        peak_allocated_bytes=_ESTIMATE,
        peak_reserved_bytes=_ESTIMATE,
        available_bytes=NUMBER,
        saved_bytes=or_null(NUMBER),
        time_ratio=or_null(NUMBER),
        usd_per_hour=NUMBER,
        usd_per_million_samples=or_null(NUMBER),
        offer=or_null(offer),
        lines=TEXTS,
    )
    return _document(
        target=TEXT,
        gpu=TEXT,
        batch_size=or_null(COUNT),
        answer=TEXTS,
        unchanged=way,
        ways=list_of(way),
        left_out={"type": "object", "additionalProperties": TEXT},
        bigger_gpu=or_null(way),
    )


def _build() -> Schema:
    price = {
        "part": TEXT,
        "price_usd": or_null(NUMBER),
        "price_source": or_null(TEXT),
        "price_as_of": or_null(TEXT),
        "price_note": TEXT,
    }
    kind = {"enum": list(KINDS)}
    rule = record(
        rule=TEXT,
        verdict={"enum": list(get_args(State))},
        guessed=FLAG,
        needed=TEXT,
        have=or_null(TEXT),
        why_not_checked=or_null(TEXT),
        fix=TEXT,
        fix_part=or_null(record(**price)),
        fix_pieces=COUNT,
        source=or_null(TEXT),
        as_of=or_null(TEXT),
        note=TEXT,
    )
    change = record(
        kind=kind,
        replaces=TEXT,
        **price,
        pieces=COUNT,
        usd=or_null(NUMBER),
        why=TEXT,
        instead=TEXT,
        samples_per_s_before=or_null(_ESTIMATE),
        samples_per_s_after=or_null(_ESTIMATE),
    )
    machine = _document(
        machine=TEXT,
        answer=TEXTS,
        works=FLAG,
        currency=TEXT,
        usd_per_unit=NUMBER,
        parts=list_of(record(kind=kind, pieces=COUNT, **price)),
        total_usd=NUMBER,
        not_priced=TEXTS,
        old_prices_usd=NUMBER,
        budget_usd=or_null(NUMBER),
        paid_usd=or_null(NUMBER),
        power_limit_w=or_null(NUMBER),
        rules=list_of(rule),
        changes=list_of(change),
        samples_per_s=or_null(_ESTIMATE),
        notes=TEXTS,
    )
    facts = {"type": "object", "additionalProperties": _fact()}
    listed = _document(known_parts=list_of(record(kind=kind, **price, facts=facts)))
    return {"type": "object", "anyOf": [machine, listed]}


def _fact() -> Schema:
    return record(value=or_null(TEXT), unit=TEXT, source=TEXT, as_of=TEXT, note=TEXT)


def _host() -> Schema:
    return _document(speed=NUMBER, step_s=NUMBER, spread=NUMBER, samples=COUNT)


def _trace() -> Schema:
    phase = {"enum": list(PHASES)}
    site = or_null(record(file=TEXT, line=COUNT, function=TEXT, code=TEXT))
    total = record(phase=phase, operations=NUMBER, kernels=NUMBER, flops=NUMBER, moved_bytes=NUMBER)
    op = record(
        operator=TEXT,
        kind={"enum": list(get_args(Kind))},
        phase=phase,
        precision={"enum": list(get_args(Precision))},
        count=NUMBER,
        flops=NUMBER,
        moved_bytes=NUMBER,
        shapes=list_of(list_of(COUNT)),
        call_site=site,
    )
    peak = record(
        bytes=NUMBER,
        categories_bytes=record(**dict.fromkeys(CATEGORIES, NUMBER)),
        context_bytes=NUMBER,
        workspace_gpu=TEXT,
        operation=COUNT,
        operations=COUNT,
        operator=TEXT,
        phase=phase,
        call_site=site,
    )
    on_gpu = record(
        gpu=TEXT,
        asked=TEXT,
        **_spread(),
        batch_size=COUNT,
        global_batch_size=COUNT,
        peak_allocated_bytes=_ESTIMATE,
        peak_reserved_bytes=_ESTIMATE,
        context_bytes=NUMBER,
        available_bytes=NUMBER,
        fits=FLAG,
        max_batch_size=COUNT,
        verified=FLAG,
        notes=TEXTS,
    )
    return _document(
        name=TEXT,
        target=TEXT,
        batch_size=COUNT,
        period=COUNT,
        parameters=COUNT,
        trainable_parameters=COUNT,
        flops_per_step=NUMBER,
        moved_bytes_per_step=NUMBER,
        phases=list_of(total),
        peak=peak,
        heaviest_by_flops=list_of(op),
        heaviest_by_bytes=list_of(op),
        unknown_ops={"type": "object", "additionalProperties": NUMBER},
        unknown_moved_fraction=NUMBER,
        notes=TEXTS,
        versions={"type": "object", "additionalProperties": TEXT},
        gpus=list_of(on_gpu),
        profile=or_null(_profile()),
    )


def _profiles() -> Schema:
    return _document(profiles=list_of(_profile()))


def _profile() -> Schema:
    return record(
        name=TEXT,
        description=TEXT,
        sample=TEXT,
        parameters=COUNT,
        trainable_parameters=COUNT,
        flops_per_sample=NUMBER,
        traced_batch_sizes=list_of(COUNT),
        traced_on=TEXT,
        versions={"type": "object", "additionalProperties": TEXT},
        unknown_ops={"type": "object", "additionalProperties": NUMBER},
        notes=TEXTS,
    )
