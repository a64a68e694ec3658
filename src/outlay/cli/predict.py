"""`outlay predict`: a step on GPUs, without any GPU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from outlay.cli.options import (
    batch_size_of,
    expandable_option,
    json_option,
    machines_asked,
    memory_cap_option,
    print_document,
    selected_option,
    tell,
)
from outlay.errors import InputError

if TYPE_CHECKING:
    from outlay.hardware.gpu_names import GpuMatch
    from outlay.hardware.gpus import Gpu
    from outlay.predict.evidence import Evidence, MeasuredStep
    from outlay.predict.step import Conditions, Placement, StepPrediction
    from outlay.predict.strategy import StrategyRequest
    from outlay.trace.profile import Profile
    from outlay.workload.workload import Step


@click.command("predict", no_args_is_help=True)
@click.argument("target")
@click.option(
    "--gpu",
    "gpu_names",
    multiple=True,
    required=True,
    metavar="NAME[:COUNT][,...]",
    help="GPUs to predict; A100:8 is eight in one machine, A + B two unlike ones.",
)
@click.option(
    "--batch-size",
    help="Per GPU, a number or max.  [default: max, or of a measurement its own]",
)
@click.option(
    "--gpus",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="GPUs in each machine.",
)
@click.option(
    "--nodes", type=click.IntRange(1, 4096), default=1, show_default=True, help="Machines."
)
@click.option(
    "--strategy",
    default="auto",
    show_default=True,
    help="ddp, zero1, zero2, fsdp, hybrid, with tensor=N, pipeline=N; auto takes the best.",
)
@click.option(
    "--global-batch", type=click.IntRange(1), help="Samples of one update over all GPUs, kept."
)
@click.option(
    "--link",
    type=click.Choice(["nvlink", "mesh", "bridge", "pcie", "host"]),
    help="What joins the GPUs of a machine; host: PCIe without peer-to-peer.",
)
@click.option(
    "--network",
    type=click.FloatRange(0, min_open=True),
    metavar="GBIT/S",
    help="Network of each machine; with --tcp, without RDMA.",
)
@click.option("--tcp", is_flag=True, help="The network has no RDMA (ordinary Ethernet).")
@click.option(
    "--power-limit",
    type=click.FloatRange(0, min_open=True),
    metavar="W",
    help="What each GPU is held to (nvidia-smi -pl).",
)
@memory_cap_option
@expandable_option
@selected_option
@click.option(
    "--measured",
    multiple=True,
    metavar="FILE|GPU[@BATCH]=SECONDS",
    help="A measurement (outlay probe) or a step time of one GPU: it corrects all and narrows the "
    "ranges. Any number of them.",
)
@click.option(
    "--host-speed",
    type=click.FloatRange(0, min_open=True),
    help="The host against the reference, as `outlay host` measures it there.",
)
@click.option(
    "--input-rate",
    type=click.FloatRange(0, min_open=True),
    help="Samples a second that the input pipeline delivers to a GPU.",
)
@click.option(
    "--node-input-rate",
    type=click.FloatRange(0, min_open=True),
    help="Samples a second that it delivers to all GPUs of a machine together.",
)
@json_option
def command(
    target: str,
    gpu_names: tuple[str, ...],
    batch_size: str | None,
    gpus: int,
    nodes: int,
    strategy: str,
    global_batch: int | None,
    link: str | None,
    network: float | None,
    tcp: bool,
    power_limit: float | None,
    memory_cap_mib: int | None,
    expandable_segments: bool,
    selected: float,
    measured: tuple[str, ...],
    host_speed: float | None,
    input_rate: float | None,
    node_input_rate: float | None,
    as_json: bool,
) -> int:
    """Predict step time and memory of a training step on GPUs.

    TARGET is a bundled profile, a saved one (.json), a measurement of `outlay probe` (.json), or
    path/to/file.py:function (needs torch).

    \b
    Example:
      outlay predict resnet50 --gpu "RTX 3090,A100-80GB" --batch-size 64
      outlay predict train.py:training_step --gpu T4 --batch-size max
      outlay predict bert-large --gpu "RTX 3090:8,H100 SXM:8" --batch-size 8
      outlay predict llama-1b --gpu "A100-80GB SXM" --gpus 8 --nodes 4 --network 1600
      outlay predict resnet50 --gpu "H100,L4" --batch-size 64 --measured "RTX 3090@64=0.101"
      outlay predict probe.json --gpu "H100 SXM,L4" --measured other.json

    A step is bound by the GPU's arithmetic or memory, by the host that issues its operations, by
    its input, or by the network. Exits with 3 when it fits on none of them.
    """
    from outlay.plan.from_measurement import as_measured
    from outlay.plan.pipeline import profile_for
    from outlay.predict.host import Host
    from outlay.predict.memory import search_note
    from outlay.predict.network import Wiring
    from outlay.predict.roofline import checked_power_limit_w
    from outlay.predict.step import Conditions, Placement
    from outlay.predict.strategy import parse_strategy
    from outlay.units import MIB
    from outlay.workload.workload import Step

    asked = machines_asked(gpu_names, gpus)
    wanted = parse_strategy(strategy)
    numbers = {
        "--host-speed": host_speed,
        "--input-rate": input_rate,
        "--node-input-rate": node_input_rate,
        "--network": network,
        "--power-limit": power_limit,
    }
    for option, number in numbers.items():
        if number is not None and not math.isfinite(number):
            raise InputError(f"{option} {number} is no number.", fix=f"Write {option} 1.4, say.")
    step = Step(target=target) if _is_code(target) else Step(profile=target, batch_as_measured=True)
    batch = as_measured(step).batch_size if batch_size is None else batch_size_of(batch_size)
    if step.target is not None:
        tell(f"Tracing {target} ...")
    profile = profile_for(step, selected)
    host = Host() if host_speed is None else Host(speed=host_speed, measured=True)
    evidence = _evidence(step, profile, measured, batch)
    conditions = Conditions(
        host=host,
        input_samples_per_s=input_rate,
        node_samples_per_s=node_input_rate,
        evidence=evidence,
    )
    cap_bytes = None if memory_cap_mib is None else float(memory_cap_mib * MIB)
    wiring = Wiring(
        gpu_link=link,  # type: ignore[arg-type]
        network_bytes_per_s=None if network is None else network * 1e9 / 8,
        network_kind="TCP" if tcp else "",
    )

    def placement(gpu: Gpu, count: int) -> Placement:
        return Placement(
            gpu=gpu,
            gpus=count,
            nodes=nodes,
            wiring=wiring,
            power_limit_w=checked_power_limit_w(power_limit, gpu),
            memory_cap_bytes=cap_bytes,
            expandable_segments=expandable_segments,
        )

    machines = [
        [[placement(gpu, count) for gpu in match.candidates] for match in matches]
        for matches, count in asked
    ]
    ask = _Asking(
        profile=profile,
        target=step.target,
        batch_size=batch,
        global_batch_size=global_batch,
        wanted=wanted,
        conditions=conditions,
        selected=selected,
    )
    largest = ask.largest([one for parts in machines for forms in parts for one in forms])
    predictions = []
    for (matches, _), parts in zip(asked, machines, strict=True):
        predicted, said = ask.predict(matches, parts, largest)
        notes = (
            *(match.note for match in matches if match.note),
            *_batch_note(predicted, global_batch),
            *_time_note(predicted),
            *search_note(predicted.max_batch_size),
            *said,
            *evidence.notes,
            *profile.notes,
        )
        spelling = " + ".join(match.spelling for match in matches)
        predictions.append((spelling, predicted, notes))
    status = 0 if any(predicted.fits for _, predicted, _ in predictions) else 3
    if as_json:
        from outlay.report.documents import predictions_document

        print_document(predictions_document(target, predictions))
        return status
    from outlay.report.console import Page, muted
    from outlay.report.tables import breakdown_table, predictions_table

    out = Page()
    steps = [predicted for _, predicted, _ in predictions]
    out.print(predictions_table(steps, out.width))
    out.print()
    out.print(breakdown_table(steps, out.width))
    for note in dict.fromkeys(note for _, _, notes in predictions for note in notes):
        out.print(muted(note))
    return status


def _batch_note(step: StepPrediction, kept: int | None) -> list[str]:
    """Whether the global batch stays or grows with the GPUs."""
    if step.placement.site.total == 1 or not step.batch_size:
        return []
    how = "as asked" if kept else "grows with the GPUs; --global-batch keeps it"
    return [f"{step.placement.site.total} GPUs: global batch {step.global_batch_size:,}, {how}."]


class _Asking:
    """One step asked about on several machines."""

    def __init__(
        self,
        *,
        profile: Profile,
        target: str | None,
        batch_size: int | None,
        global_batch_size: int | None,
        wanted: StrategyRequest,
        conditions: Conditions,
        selected: float,
    ) -> None:
        self._profile = profile
        self._target = target
        self._batch_size = batch_size
        self._global_batch_size = global_batch_size
        self._wanted = wanted
        self._conditions = conditions
        self._selected = selected

    def largest(self, placements: list[Placement]) -> dict[Placement, int]:
        """The largest batch on one GPU of each; of the user's own code, verified by a trace."""
        from functools import partial

        from outlay.fit.largest_batch import verified_batches
        from outlay.plan.placement import calibration
        from outlay.predict.memory import largest_batch
        from outlay.trace.tracing import histories_of

        alone = [one for one in placements if one.site.total == 1]
        profile, target = self._profile, self._target
        if alone and target is not None and (self._batch_size is None or profile.history is None):
            tell("Verifying the largest batch ...")
            tracer = partial(histories_of, target, selected=self._selected)
            return verified_batches(profile, alone, calibration(), tracer)
        return {one: largest_batch(profile, one.memory_budget, calibration()) for one in alone}

    def predict(
        self,
        matches: list[GpuMatch],
        parts: list[list[Placement]],
        largest: dict[Placement, int],
    ) -> tuple[StepPrediction, tuple[str, ...]]:
        """The step on one machine, whose GPUs may differ; and what to know about it."""
        from outlay.plan.placement import calibration
        from outlay.predict.parallel import StepRequest, best_step, mixed_gpus_note, mixed_gpus_step
        from outlay.predict.step import range_over_forms

        def question(placement: Placement, batch_size: int | None) -> StepRequest:
            return StepRequest(
                profile=self._profile,
                placement=placement,
                batch_size=batch_size,
                global_batch_size=self._global_batch_size,
                strategy=self._wanted,
                conditions=self._conditions,
            )

        def on(forms: list[Placement], batch_size: int | None) -> StepPrediction:
            return range_over_forms(
                [
                    best_step(question(one, batch_size), calibration(), largest=largest.get(one))
                    for one in forms
                ]
            )

        if len(parts) == 1:
            step = on(parts[0], self._batch_size)
            return step, step.notes
        found = mixed_gpus_step(
            lambda batch_size: [on(forms, batch_size) for forms in parts], self._batch_size
        )
        names = [match.gpu.name for match in matches]
        return found, (*found.notes, mixed_gpus_note(names, found.placement.gpu.name))


def _time_note(step: StepPrediction) -> list[str]:
    """Where a step's time comes from, if not from a prediction alone."""
    from outlay.predict.evidence import PREDICTED

    if step.time_from == PREDICTED:
        return []
    gpus = step.placement.site.total
    several = f"{gpus}x " if gpus > 1 else ""
    return [f"{several}{step.placement.gpu.name}: step time {step.time_from}."]


def _evidence(
    step: Step, profile: Profile, measured: tuple[str, ...], batch: int | None
) -> Evidence:
    """What was measured: files, times given by hand, and what was learned from earlier ones."""
    from outlay.cli.options import own_calibration
    from outlay.plan.from_measurement import evidence_for

    files = [text for text in measured if text.endswith(".json")]
    given = [(text, _measurement(text, batch)) for text in measured if text not in files]
    return evidence_for(step, profile, own_calibration(), files, given)


def _measurement(text: str, batch: int | None) -> MeasuredStep:
    """The measured step of `RTX 3090@64=0.101`."""
    from outlay.hardware.gpu_names import find_gpu
    from outlay.measurement.file import SAMPLES, STEP_S
    from outlay.predict.evidence import MeasuredStep

    where, _, seconds = text.rpartition("=")
    name, _, size = where.partition("@")
    at = int(size) if size.isdecimal() else 0 if size else batch
    try:
        measured_s = float(seconds)
    except ValueError:
        measured_s = 0.0
    if not name or at == 0 or not measured_s > 0:
        raise InputError(
            f"--measured {text!r} is not a measured step.",
            why="It takes a file of `outlay probe` (.json), or a GPU, perhaps a batch size per "
            "GPU, and the seconds of one step.",
            fix='Write for example --measured "RTX 3090@64=0.101".',
        )
    if not at:
        raise InputError(
            f"--measured {text!r} does not say at which batch size.",
            fix=f'Write for example --measured "{name}@64={seconds}".',
        )
    if not STEP_S.holds(measured_s) or not SAMPLES.holds(at):
        raise InputError(
            f"--measured {text!r} is not plausible.",
            why=f"A step takes {STEP_S.words}; its samples are {SAMPLES.words}.",
            fix='Write for example --measured "RTX 3090@64=0.101".',
        )
    return MeasuredStep(gpu=find_gpu(name).gpu, batch_size=at, step_s=measured_s)


def _is_code(target: str) -> bool:
    path, colon, _ = target.rpartition(":")
    return bool(colon) and path.endswith(".py")
