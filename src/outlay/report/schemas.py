"""The JSON schemas of the workload file and of every `--json` document."""

from __future__ import annotations

from typing import Any, get_args

from outlay.report.json import SCHEMA
from outlay.trace.step_report import CATEGORIES, PHASES
from outlay.trace.trace import Kind, Precision
from outlay.vary import PER_MILLION, WHOLE
from outlay.workstation.parts import KINDS
from outlay.workstation.verdict import State

Schema = dict[str, Any]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_NUMBER: Schema = {"type": "number"}
_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_ESTIMATE: Schema = {
    "type": "object",
    "description": "10th percentile, best single figure, 90th percentile.",
    "properties": {"low": _NUMBER, "likely": _NUMBER, "high": _NUMBER},
    "required": ["low", "likely", "high"],
    "additionalProperties": False,
}


def schema(name: str) -> Schema:
    """One schema by name."""
    if name == "workload":
        from outlay.workload_schema import WorkloadFile

        return {"$schema": _DRAFT, **WorkloadFile.model_json_schema(mode="validation")}
    makers = {
        "plan": _plan,
        "vary": _vary,
        "diff": _diff,
        "advise": _advise,
        "offers": _offers,
        "gpus": _gpus,
        "predict": _predict,
        "fit": _fit,
        "build": _build,
        "host": _host,
        "trace": _trace,
        "profiles": _profiles,
    }
    return {"$schema": _DRAFT, "title": f"outlay {name} --json", **makers[name]()}


def _advise() -> Schema:
    from outlay.report.advise_schema import advise_schema

    return advise_schema(_plan()["properties"]["options"]["items"], _ESTIMATE)


def _or_null(inner: Schema) -> Schema:
    return {"anyOf": [inner, {"type": "null"}]}


def _document(**properties: Schema) -> Schema:
    return _object(schema={"const": SCHEMA}, **properties)


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list_of(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _spread() -> dict[str, Schema]:
    strategy = _object(
        name=_TEXT,
        data=_COUNT,
        sharding={"enum": ["none", "zero1", "zero2", "zero3"]},
        within_node=_FLAG,
        tensor=_COUNT,
        pipeline=_COUNT,
    )
    return {
        "gpus": _COUNT,
        "nodes": _COUNT,
        "strategy": strategy,
        "micro_batches": _COUNT,
        "power_limit_w": _or_null(_NUMBER),
    }


def _plan() -> Schema:
    line = _object(
        name=_TEXT,
        usd=_NUMBER,
        low=_or_null(_NUMBER),
        high=_or_null(_NUMBER),
        basis=_TEXT,
        source=_TEXT,
    )
    option = _object(
        rank=_COUNT,
        provider=_TEXT,
        instance=_TEXT,
        gpu=_TEXT,
        **_spread(),
        tenancy={"enum": ["on-demand", "spot", "reserved", "owned"]},
        term=_or_null(_TEXT),
        keeping=_or_null(_TEXT),
        region=_TEXT,
        price_usd_per_hour=_or_null(_NUMBER),
        price_as_of=_or_null(_TEXT),
        price_source=_TEXT,
        doubts=_TEXTS,
        cautions=_TEXTS,
        batch_size=_COUNT,
        global_batch_size=_COUNT,
        max_batch_size=_COUNT,
        step_time_s=_ESTIMATE,
        samples=_or_null(_NUMBER),
        time_parts_s={"type": "object", "additionalProperties": _NUMBER},
        sessions=_or_null(_NUMBER),
        interruptions=_or_null(_NUMBER),
        checkpoint_interval_s=_or_null(_NUMBER),
        run_time_s=_or_null(_ESTIMATE),
        calendar_time_s=_or_null(_ESTIMATE),
        cost_usd=_or_null(_ESTIMATE),
        lines=_list_of(line),
        not_priced=_TEXTS,
        usd_per_million_samples=_or_null(_NUMBER),
        training_usd_per_million_samples=_or_null(_NUMBER),
        fits=_FLAG,
        within_budget=_FLAG,
        within_budget_chance=_or_null(_NUMBER),
        meets_deadline=_FLAG,
        meets_deadline_chance=_or_null(_NUMBER),
        on_frontier=_FLAG,
        why_not=_or_null(_TEXT),
        notes=_TEXTS,
    )
    break_even = _object(
        rent=_TEXT,
        use_s=_or_null(_NUMBER),
        life_use_s=_or_null(_NUMBER),
        calendar_s=_or_null(_NUMBER),
        owned_usd_per_hour=_NUMBER,
        rented_usd_per_hour=_NUMBER,
        purchase_usd=_NUMBER,
        resale_usd=_NUMBER,
    )
    return _document(
        workload=_TEXT,
        ranked_by={"enum": ["cost", "training cost per million samples"]},
        options=_list_of(option),
        chosen=_or_null(option),
        break_even={"type": "object", "additionalProperties": break_even},
        explained=_or_null(
            _object(
                rank=_COUNT,
                why_not=_or_null(_TEXT),
                inputs=_list_of(
                    _object(
                        name=_TEXT,
                        value=_ESTIMATE,
                        cost_usd=_ESTIMATE,
                        cheaper_then=_or_null(_COUNT),
                    )
                ),
            )
        ),
        trial=_or_null(
            _object(
                first=_COUNT,
                second=_COUNT,
                cost_usd=_NUMBER,
                gain_usd=_NUMBER,
                second_wins=_NUMBER,
                worth_it=_FLAG,
            )
        ),
        assumptions=_TEXTS,
    )


def _vary() -> Schema:
    point = _object(
        value={},
        chosen=_or_null(_TEXT),
        cost_usd=_or_null(_NUMBER),
        costs_usd={"type": "object", "additionalProperties": _or_null(_NUMBER)},
    )
    return _document(
        workload=_TEXT,
        vary=_TEXT,
        unit={"enum": [WHOLE, PER_MILLION]},
        points=_list_of(point),
        turns=_list_of(_object(before=_TEXT, after=_TEXT, at=_or_null(_NUMBER), unit=_TEXT)),
    )


def _diff() -> Schema:
    line = _object(
        mark={"enum": ["+", "-", "~", "="]}, name=_TEXT, before_usd=_NUMBER, after_usd=_NUMBER
    )
    option = _or_null({"type": "object"})
    return _document(
        files=_TEXTS,
        inputs=_list_of(_object(key=_TEXT, before={}, after={})),
        before=option,
        after=option,
        change_usd=_or_null(_NUMBER),
        lines=_list_of(line),
    )


def _offers() -> Schema:
    offer = _object(
        provider=_TEXT,
        instance=_TEXT,
        gpu=_TEXT,
        gpus=_COUNT,
        gpu_share=_NUMBER,
        gpu_memory_bytes=_or_null(_NUMBER),
        vcpus=_or_null(_NUMBER),
        ram_bytes=_or_null(_NUMBER),
        local_disk_bytes=_or_null(_NUMBER),
        region=_TEXT,
        zones=_COUNT,
        price_usd_per_hour=_or_null(_NUMBER),
        spot_usd_per_hour=_or_null(_NUMBER),
        spot_high_usd_per_hour=_or_null(_NUMBER),
        as_of=_TEXT,
        source=_TEXT,
        doubts=_TEXTS,
    )
    return _document(offers=_list_of(offer))


def _gpus() -> Schema:
    gpu = _object(
        gpu=_TEXT,
        vendor=_TEXT,
        architecture=_TEXT,
        form=_TEXT,
        memory_bytes=_NUMBER,
        usable_bytes=_NUMBER,
        memory_bytes_per_s=_NUMBER,
        sm_count=_COUNT,
        boost_hz=_NUMBER,
        peak_flops_per_s={"type": "object", "additionalProperties": _NUMBER},
        tdp_w=_NUMBER,
        compute_capability=_TEXT,
        pytorch_runs={"enum": ["yes", "old builds", "special build", "no", "unknown"]},
        facts={"type": "object", "additionalProperties": _fact()},
    )
    return _document(gpus=_list_of(gpu))


def _predict() -> Schema:
    prediction = _object(
        gpu=_TEXT,
        asked=_TEXT,
        **_spread(),
        batch_size=_COUNT,
        global_batch_size=_COUNT,
        step_time_s=_ESTIMATE,
        host_time_s=_NUMBER,
        device_time_s=_NUMBER,
        device_time_by_kind_s={"type": "object", "additionalProperties": _NUMBER},
        input_time_s=_NUMBER,
        exchange_time_s=_ESTIMATE,
        waiting_time_s=_NUMBER,
        samples_per_s=_or_null(_NUMBER),
        bound={"enum": ["arithmetic", "memory", "host", "input", "network"]},
        mfu=_NUMBER,
        flops_per_step=_NUMBER,
        parameters=_COUNT,
        peak_allocated_bytes=_ESTIMATE,
        peak_reserved_bytes=_ESTIMATE,
        context_bytes=_NUMBER,
        available_bytes=_NUMBER,
        fits=_FLAG,
        max_batch_size=_COUNT,
        notes=_TEXTS,
    )
    return _document(target=_TEXT, predictions=_list_of(prediction))


def _fit() -> Schema:
    offer = _object(
        provider=_TEXT,
        instance=_TEXT,
        region=_TEXT,
        price_usd_per_hour=_or_null(_NUMBER),
        as_of=_TEXT,
        source=_TEXT,
    )
    changes = _object(
        arithmetic=_or_null({"enum": ["bf16 autocast", "fp16 autocast", "bf16"]}),
        recompute=_or_null({"enum": ["blocks", "selective"]}),
        update=_or_null({"enum": ["fused", "8-bit", "offloaded"]}),
        lora_rank=_COUNT,
        accumulate=_COUNT,
    )
    way = _object(
        name=_TEXT,
        changes=changes,
        kinds=_TEXTS,
        gpu=_TEXT,
        gpus=_COUNT,
        strategy=_TEXT,
        fits=_FLAG,
        batch_size=_COUNT,
        micro_batches=_COUNT,
        global_batch_size=_COUNT,
        max_batch_size=_COUNT,
        step_time_s=_ESTIMATE,
        peak_allocated_bytes=_ESTIMATE,
        peak_reserved_bytes=_ESTIMATE,
        available_bytes=_NUMBER,
        saved_bytes=_or_null(_NUMBER),
        time_ratio=_or_null(_NUMBER),
        usd_per_hour=_NUMBER,
        usd_per_million_samples=_or_null(_NUMBER),
        offer=_or_null(offer),
        lines=_TEXTS,
    )
    return _document(
        target=_TEXT,
        gpu=_TEXT,
        batch_size=_or_null(_COUNT),
        answer=_TEXTS,
        unchanged=way,
        ways=_list_of(way),
        left_out={"type": "object", "additionalProperties": _TEXT},
        bigger_gpu=_or_null(way),
    )


def _build() -> Schema:
    price = {
        "part": _TEXT,
        "price_usd": _or_null(_NUMBER),
        "price_source": _or_null(_TEXT),
        "price_as_of": _or_null(_TEXT),
        "price_note": _TEXT,
    }
    kind = {"enum": list(KINDS)}
    rule = _object(
        rule=_TEXT,
        verdict={"enum": list(get_args(State))},
        guessed=_FLAG,
        needed=_TEXT,
        have=_or_null(_TEXT),
        why_not_checked=_or_null(_TEXT),
        fix=_TEXT,
        fix_part=_or_null(_object(**price)),
        fix_pieces=_COUNT,
        source=_or_null(_TEXT),
        as_of=_or_null(_TEXT),
        note=_TEXT,
    )
    change = _object(
        kind=kind,
        replaces=_TEXT,
        **price,
        pieces=_COUNT,
        usd=_or_null(_NUMBER),
        why=_TEXT,
        instead=_TEXT,
        samples_per_s_before=_or_null(_ESTIMATE),
        samples_per_s_after=_or_null(_ESTIMATE),
    )
    machine = _document(
        machine=_TEXT,
        answer=_TEXTS,
        works=_FLAG,
        currency=_TEXT,
        usd_per_unit=_NUMBER,
        parts=_list_of(_object(kind=kind, pieces=_COUNT, **price)),
        total_usd=_NUMBER,
        not_priced=_TEXTS,
        old_prices_usd=_NUMBER,
        budget_usd=_or_null(_NUMBER),
        paid_usd=_or_null(_NUMBER),
        power_limit_w=_or_null(_NUMBER),
        rules=_list_of(rule),
        changes=_list_of(change),
        samples_per_s=_or_null(_ESTIMATE),
        notes=_TEXTS,
    )
    facts = {"type": "object", "additionalProperties": _fact()}
    listed = _document(known_parts=_list_of(_object(kind=kind, **price, facts=facts)))
    return {"type": "object", "anyOf": [machine, listed]}


def _fact() -> Schema:
    return _object(value=_or_null(_TEXT), unit=_TEXT, source=_TEXT, as_of=_TEXT, note=_TEXT)


def _host() -> Schema:
    return _document(speed=_NUMBER, step_s=_NUMBER, spread=_NUMBER, samples=_COUNT)


def _trace() -> Schema:
    phase = {"enum": list(PHASES)}
    site = _or_null(_object(file=_TEXT, line=_COUNT, function=_TEXT, code=_TEXT))
    total = _object(
        phase=phase, operations=_NUMBER, kernels=_NUMBER, flops=_NUMBER, moved_bytes=_NUMBER
    )
    op = _object(
        operator=_TEXT,
        kind={"enum": list(get_args(Kind))},
        phase=phase,
        precision={"enum": list(get_args(Precision))},
        count=_NUMBER,
        flops=_NUMBER,
        moved_bytes=_NUMBER,
        shapes=_list_of(_list_of(_COUNT)),
        call_site=site,
    )
    peak = _object(
        bytes=_NUMBER,
        categories_bytes=_object(**dict.fromkeys(CATEGORIES, _NUMBER)),
        context_bytes=_NUMBER,
        workspace_gpu=_TEXT,
        operation=_COUNT,
        operations=_COUNT,
        operator=_TEXT,
        phase=phase,
        call_site=site,
    )
    on_gpu = _object(
        gpu=_TEXT,
        asked=_TEXT,
        **_spread(),
        batch_size=_COUNT,
        global_batch_size=_COUNT,
        peak_allocated_bytes=_ESTIMATE,
        peak_reserved_bytes=_ESTIMATE,
        context_bytes=_NUMBER,
        available_bytes=_NUMBER,
        fits=_FLAG,
        max_batch_size=_COUNT,
        verified=_FLAG,
        notes=_TEXTS,
    )
    return _document(
        name=_TEXT,
        target=_TEXT,
        batch_size=_COUNT,
        period=_COUNT,
        parameters=_COUNT,
        trainable_parameters=_COUNT,
        flops_per_step=_NUMBER,
        moved_bytes_per_step=_NUMBER,
        phases=_list_of(total),
        peak=peak,
        heaviest_by_flops=_list_of(op),
        heaviest_by_bytes=_list_of(op),
        unknown_ops={"type": "object", "additionalProperties": _NUMBER},
        unknown_moved_fraction=_NUMBER,
        notes=_TEXTS,
        versions={"type": "object", "additionalProperties": _TEXT},
        gpus=_list_of(on_gpu),
        profile=_or_null(_profile()),
    )


def _profiles() -> Schema:
    return _document(profiles=_list_of(_profile()))


def _profile() -> Schema:
    return _object(
        name=_TEXT,
        description=_TEXT,
        sample=_TEXT,
        parameters=_COUNT,
        trainable_parameters=_COUNT,
        flops_per_sample=_NUMBER,
        traced_batch_sizes=_list_of(_COUNT),
        traced_on=_TEXT,
        versions={"type": "object", "additionalProperties": _TEXT},
        unknown_ops={"type": "object", "additionalProperties": _NUMBER},
        notes=_TEXTS,
    )
