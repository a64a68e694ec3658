"""Small made-up values to test with: round figures, so that sums can be done in the head."""

from __future__ import annotations

from dataclasses import replace

from outlay.cost.bill import Bill
from outlay.cost.lines import Breakdown, Cost, Line, UnpricedItem
from outlay.facts import Fact
from outlay.hardware.gpus import Gpu, Libraries, Software
from outlay.offers.offer import Doubt, Offer
from outlay.offers.terms import Terms
from outlay.plan.option import Option
from outlay.plan.ranking import Plan, choose, rank_options
from outlay.predict.calibration import Calibration, PassNumbers, ProductNumbers
from outlay.predict.kernels import Pass, Product
from outlay.predict.memory import MemoryNeed
from outlay.predict.run_time import Run, SessionOverheads
from outlay.predict.step import Placement, StepPrediction
from outlay.predict.strategy import Strategy
from outlay.trace.profile import BlockGroup, Memory, Op, Profile, ProfileOp, Structure
from outlay.trace.store import find_profile
from outlay.uncertainty import Estimate
from outlay.units import GB, GIB, MIB
from outlay.workload.workload import Length, Limits, Step, Workload


def exactly(value):
    return Estimate.exactly(value)


def span(low, likely, high):
    return Estimate(low=low, likely=likely, high=high)


def a_fact(value=None, unit="", note="", source="made up"):
    text = None if value is None else str(value)
    return Fact(text=text, unit=unit, source=source, as_of="2026-01-01", note=note)


PEAKS_FLOPS_PER_S = {"fp32": 10e12, "fp16": 100e12}


def a_gpu(
    name="Card",
    *,
    architecture="Hopper",
    form="PCIe",
    memory_gib=10,
    bandwidth_gb_per_s=1000,
    peaks=PEAKS_FLOPS_PER_S,
    nvlink_gb_per_s=None,
    nvlink_reach="none",
    peer_to_peer=True,
    pcie=(4, 16),
    devices_per_board=1,
    board_tdp_w=300,
    sm_count=100,
    boost_hz=1e9,
    runs="yes",
    facts=None,
):
    """A GPU with 10 GiB, 1000 GB/s, 10 TFLOP/s in fp32 and 100 in fp16; no bf16, no TF32.

    It has 100 multiprocessors at 1 GHz, so each does 1000 FLOPs in a cycle in fp16, 100 in fp32.
    """
    generation, lanes = pcie
    return Gpu(
        name=name,
        vendor="NVIDIA",
        architecture=architecture,
        form=form,
        devices_per_board=devices_per_board,
        memory_bytes=memory_gib * GIB,
        usable_bytes=memory_gib * GIB,
        memory_bytes_per_s=bandwidth_gb_per_s * GB,
        sm_count=sm_count,
        boost_hz=boost_hz,
        peak_flops_per_s=dict(peaks),
        board_tdp_w=board_tdp_w,
        compute_capability="8.0",
        software=Software(runs=runs, source="made up", as_of="2026-01-01", note=""),
        libraries=Libraries(
            context_bytes=100_000_000,
            cublas_bytes=10 * MIB,
            attention_fp16="flash",
            attention_bf16="flash",
            threads_per_sm=2048,
        ),
        peer_to_peer=peer_to_peer,
        nvlink_reach=nvlink_reach,
        facts={
            "l2_size": a_fact(4),
            "memory_type": a_fact("HBM3"),
            "nvlink_bandwidth": a_fact(nvlink_gb_per_s),
            "pcie_generation": a_fact(generation),
            "pcie_lanes": a_fact(lanes),
        }
        | (facts or {}),
    )


CALIBRATION = {
    "memory_margin_fraction": 0.1,
    "allocated_over_traced": (0.9, 1, 1.1),
    "reserved_over_allocated": (1, 1.1, 1.25),
    "reserved_over_simulated": (0.9, 1, 1.2),
    "link_nvlink": (0.4, 0.5, 0.8),
    "link_mesh": (0.1, 0.4, 0.8),
    "link_bridge": (0.2, 0.3, 0.8),
    "link_pcie": (0.2, 0.25, 0.5),
    "link_pcie_falloff": 0,
    "link_host": (0.05, 0.1, 0.2),
    "link_host_falloff": 0.5,
    "link_spread": 0,
    "pcie_unknown_bytes_per_s": 8e9,
    **{f"link_start_{kind}_s": 0 for kind in ("nvlink", "mesh", "bridge", "pcie", "host")},
    **{f"link_half_{kind}_bytes": 0 for kind in ("nvlink", "mesh", "bridge", "pcie", "host")},
    **{f"overlap_{kind}": 1 for kind in ("nvlink", "mesh", "bridge", "pcie", "host")},
    "network_rdma": (0.5, 0.8, 1),
    "network_tcp": (0.2, 0.4, 0.8),
    "network_unknown_bytes_per_s": (1e8, 1e9, 1e10),
    "network_start_s": 0,
    "straggling": 0,
    "sharded_work": 1,
    "host_shard_s": 0,
    "host_threads": 2,
    "host_optimizer_s": 3e-9,
    "host_copy_fraction": 0.5,
    "host_selective": 2,
    "power_loss": 2,
    "power_loss_bend": 2,
    "power_loss_error": 0.5,
    "kernel_pause_s": 0,
    "cache_fill": 0.5,
    "cache_gain": 2,
    "reference_fp64": 50,
    "reference_fp32": 100,
    "reference_tf32": 500,
    "reference_fp16": 1000,
    "reference_bf16": 1000,
    "reference_bytes": 10,
    "lightness_memory": 0,
    "share_direct_before_volta": 0,
    "share_transformed_before_ampere": 0,
    "memory_share_old": 0.5,
    "memory_share_gddr": 0.8,
    "clock_geforce": 1.25,
    "power_at_rest": 0,
    "power_fp32": 1e13,
    "power_tensor": 1e13,
    "lightness_gemm": 0,
    "lightness_conv": 0,
    "lightness_fp32": 0,
    "lightness_direct": 0,
    "host_view_s": 1e-5,
    "host_forward_s": 1e-5,
    "host_backward_s": 1e-5,
    "host_update_s": 1e-5,
    "host_conv_s": 1e-5,
    "host_conv_backward_s": 1e-5,
    "host_norm_s": 1e-5,
    "host_rnn_s": 1e-5,
    "host_test_step_s": 1e-3,
    "kernel_error_stated": 0.0,
    "unknown_op_slowdown": (1.0, 1.0, 10.0),
    "kernel_error_unknown": 0.6,
    "kernel_error_between_gpus": 0.5,
    "step_error_between_batches": 0.0,
    "gpu_error_correlation": 0.875,
    "transfer_gain": 1.0,
    "gpu_error_correlation_within_architecture": 0.875,
    "error_base": 0.3,
    "error_on_others": 0.4,
    "error_of_repeats": 0.1,
    "host_range": (0.5, 1, 2),
    "host_range_measured": (0.8, 1, 1.25),
}


def pass_numbers(*, start_s=0.0, share=0.8, cycles=0.0, unit_cycles=0.0, serial_cycles=0.0):
    """A pass that reaches 0.8 of the bandwidth and whose instructions cost nothing."""
    return PassNumbers(
        start_s=start_s,
        share=share,
        cycles=cycles,
        unit_cycles=unit_cycles,
        serial_cycles=serial_cycles,
    )


def product_numbers(*, start_s=0.0, share=0.5, narrow=0.0, lead=0.0, memory_share=1.0):
    """A product that reaches half of the peak, or the whole bandwidth, whatever its tiles."""
    return ProductNumbers(
        start_s=start_s, share=share, narrow=narrow, lead=lead, memory_share=memory_share
    )


def a_calibration(*, passes=None, products=None, kernel_errors=None, **changes):
    """The figures above, with some of them changed or added; no error of plain products."""
    rows = CALIBRATION | changes
    families = ("gemm_16", "gemm_tf32", "gemm_fp32")
    return Calibration(
        values={
            name: span(*value) if isinstance(value, tuple) else exactly(value)
            for name, value in rows.items()
        },
        sources=dict.fromkeys(rows, "made up"),
        passes={"other": pass_numbers()} | (passes or {}),
        products=dict.fromkeys(families, product_numbers()) | (products or {}),
        kernel_errors=dict.fromkeys(families, 0.0) | (kernel_errors or {}),
    )


def an_op(kind="gemm", **changes):
    said = {
        "name": "op",
        "phase": "forward",
        "precision": "fp16",
        "count": 1,
        "flops": 0.0,
        "moved_bytes": 0.0,
    }
    return Op(kind=kind, **(said | changes))


def a_product(m=1280, n=1280, k=1000, **changes):
    """An fp16 product whose 100 tiles of 128 x 128 make one full wave on a GPU of `a_gpu`."""
    said = {"family": "gemm", "batch": 1, "precision": "fp16", "moved_bytes": 0.0}
    return Product(m=m, n=n, k=k, **(said | changes))


def a_pass(**changes):
    return Pass(**({"family": "other", "moved_bytes": 0.0, "elements": 0.0} | changes))


def a_step_memory(*, parameters=0.0, activations=0.0):
    return Memory(
        parameters=parameters,
        gradients=0.0,
        optimizer_state=0.0,
        inputs=0.0,
        activations=activations,
        temporaries=0.0,
    )


def a_profile(
    *,
    fixed_bytes=0.5e9,
    bytes_per_sample=0.5e9,
    flops_per_sample=1e12,
    ops=None,
    issued_ops=1000,
    trainable_parameters=100_000_000,
    allocator_use=None,
    history=None,
    structure=None,
):
    """A step of one fp16 matrix product: 1 TFLOP and 0.5 GB a sample, and 0.5 GB besides.

    Every sample is a full wave of the product's tiles on `a_gpu`; the other operations are views.
    """
    rows, columns = (0.0, 1280.0), (1280.0,)
    summed = (flops_per_sample / (2 * 1280 * 1280),)
    product = ProfileOp(
        name="aten.mm",
        kind="gemm",
        phase="forward",
        precision="fp16",
        count=1,
        flops=(0.0, flops_per_sample),
        moved_bytes=(0.0,),
        shapes=((rows, summed), (summed, columns), (rows, columns)),
    )
    views = ProfileOp(
        name="aten.view",
        kind="other",
        phase="forward",
        precision="fp16",
        count=issued_ops - 1,
        flops=(0.0,),
        moved_bytes=(0.0,),
        launches=0,
    )
    return Profile(
        name="made up",
        description="",
        sample="sample",
        parameters=trainable_parameters,
        trainable_parameters=trainable_parameters,
        ops=(product, views) if ops is None else ops,
        memory={
            size: a_step_memory(parameters=fixed_bytes, activations=size * bytes_per_sample)
            for size in (1, 2)
        },
        issued_ops=issued_ops,
        allocator_use=allocator_use or {},
        history=history,
        structure=structure,
    )


def a_transformer(*, blocks=4, parameters=25_000_000, rest=100_000_000, heads=8):
    """A step in phases: blocks of equal size and a rest, Adam, a tenth of a GB a sample.

    Forward takes 1 TFLOP a sample, backward two; parameters and gradients are in fp32.
    """
    product = a_profile().ops[0]
    attention = ProfileOp(
        name="aten._scaled_dot_product_flash_attention",
        kind="attention",
        phase="forward",
        precision="fp16",
        count=blocks,
        flops=(0.0, 1e6),
        moved_bytes=(0.0, 1e3),
        shapes=tuple(((0.0, 1.0), (float(heads),), (64.0,), (64.0,)) for _ in range(4)),
    )
    total = blocks * parameters + rest
    return Profile(
        name="made up",
        description="",
        sample="sequence",
        parameters=total,
        trainable_parameters=total,
        ops=(product, attention, *(replace(product, phase="backward") for _ in range(2))),
        memory={
            size: Memory(
                parameters=4.0 * total,
                gradients=0.0,
                optimizer_state=8.0 * total,
                inputs=0.0,
                activations=1e8 * size,
                temporaries=0.0,
            )
            for size in (1, 64)
        },
        issued_ops=100,
        structure=Structure(
            blocks=(
                BlockGroup(
                    name="Block",
                    count=blocks,
                    parameters=parameters,
                    output_bytes=(0.0, 1e6),
                    width=1280,
                ),
            ),
            gradient_bytes=4.0 * total,
            ready=tuple((i + 1) / 16 for i in range(16)),
        ),
    )


def a_step(*, step_time_s=1.0, batch_size=10, gpus=1, nodes=1, fits=True, gpu=None):
    """A step that takes a second for 10 samples on each GPU."""
    need = exactly(1 * GIB)
    return StepPrediction(
        placement=Placement(gpu=gpu or a_gpu(), gpus=gpus, nodes=nodes),
        strategy=Strategy(data=gpus * nodes),
        batch_size=batch_size,
        max_batch_size=batch_size,
        step_time_s=step_time_s if isinstance(step_time_s, Estimate) else exactly(step_time_s),
        device_time_s=0.5,
        host_time_s=0.1,
        by_kind_s={"gemm": 0.4, "copy": 0.1},
        input_s=0.0,
        exchange_s=exactly(0.0),
        bound="arithmetic",
        flops=1e12,
        ideal_s=0.25,
        parameters=1000,
        gradient_bytes=4000,
        memory=MemoryNeed(
            allocated_bytes=need,
            reserved_bytes=need,
            available_bytes=2 * GIB if fits else 0.5 * GIB,
            context_bytes=0.1 * GIB,
            fits=fits,
        ),
    )


HABITS = SessionOverheads(
    provisioning_s=100.0,
    environment_s=200.0,
    warmup_s=50.0,
    download_bytes_per_s=1e8,
    upload_bytes_per_s=1e7,
    checkpoint_bytes_per_s=1e8,
    checkpoint_interval_s=1800.0,
    requeue_s=30.0,
)
"""350 s from asking for a machine to the first step of usual speed."""


def a_run(training_s=3600.0, *, sessions=1.0, calendar_s=None, storage_s=None, **parts):
    """A run that trains for an hour in one go; data is kept as long as it takes."""
    run = Run(training_s=training_s, sessions=sessions, **parts)
    calendar_s = run.busy_s if calendar_s is None else calendar_s
    return replace(
        run, calendar_s=calendar_s, storage_s=calendar_s if storage_s is None else storage_s
    )


def a_doubt(word="looks odd", *, kind="caution", about="offer"):
    return Doubt(word=word, kind=kind, about=about)


def an_offer(
    provider="acme",
    instance="box",
    *,
    gpu="T4",
    gpus=1,
    region="any",
    usd=1.0,
    spot_usd=None,
    **more,
):
    return Offer(
        provider=provider,
        instance=instance,
        gpu=gpu,
        gpus=gpus,
        region=region,
        price_usd_per_hour=usd,
        spot_usd_per_hour=spot_usd,
        **({"as_of": "2026-01-01", "source": "made up"} | more),
    )


def some_terms(provider="acme", name=None, **said):
    return Terms(provider=provider, name=name or provider.capitalize(), **said)


DEPOT = some_terms(
    "depot",
    storage_usd_per_byte_month={"volume": 0.2 / GB, "registry": 0.1 / GB, "object": 0.05 / GB},
    egress_usd_per_byte=0.09 / GB,
)
"""A place where things lie: by GB and month $0.20, $0.10 and $0.05, and $0.09 a GB out of it."""


def a_bill(run, *, usd=2.0, terms=(), owned=None, gpu_w=300.0, **more):
    """A bill of acme at $2 an hour, or of one's own machine; nobody else's terms are known."""
    known = {one.provider: one for one in (DEPOT, *terms)}
    said = {
        "offer": an_offer(usd=None if owned else 2.0, owned=owned),
        "tenancy": "owned" if owned else "on-demand",
    }
    return Bill(
        run=run,
        price_usd_per_hour=usd,
        terms=lambda name: known.get(name, some_terms(name, name)),
        gpu_w=gpu_w,
        **(said | more),
    )


def a_cost(usd, *, name="compute", unknown=()):
    unpriced = tuple(UnpricedItem(what=what) for what in unknown)
    return Cost(breakdown=Breakdown(lines=(Line(name=name, usd=usd),)), unpriced=unpriced)


def an_option(
    usd=10.0,
    time_s=3600.0,
    *,
    samples=1000.0,
    fits=True,
    tenancy="on-demand",
    limits=None,
    instance="box",
    doubts=(),
    offer=None,
    cost=None,
    run=None,
    gpu=None,
    **more,
):
    """An option that costs 10 dollars and takes an hour; `usd` None has no price."""
    if cost is None and usd is not None and fits:
        cost = a_cost(usd)
    if run is None and fits:
        run = a_run(time_s)
    return Option(
        offer=offer or an_offer(instance=instance, usd=usd, doubts=tuple(doubts)),
        tenancy=tenancy,
        step=a_step(fits=fits, gpu=gpu),
        samples=samples if fits else None,
        work=samples if fits else None,
        run=run,
        cost=cost,
        limits=limits or Limits(),
        **more,
    )


def a_plan(*options, **more):
    """A plan with these options, ranked, and the best of them chosen."""
    ranked = rank_options(options)
    return Plan(options=ranked, chosen=choose(ranked), **more)


def a_workload(**changes):
    """A thousand samples with nothing else said."""
    said = {"name": "test", "step": Step(profile="made up"), "length": Length(samples=1000)}
    return Workload(**(said | changes))


def a_method_step(step, selected=0.5, **_):
    """The profile of a model's step without tracing one: bundled ones stand in for its methods."""
    stand_ins = {"full": "llama-1b", "lora": "gpt2-medium", "qlora": "bert-large"}
    return find_profile(stand_ins[step.method or "full"])
