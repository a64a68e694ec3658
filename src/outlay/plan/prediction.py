"""A training step on the GPUs that were named, without any GPU: `outlay predict`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

from outlay.errors import InputError
from outlay.hardware.gpu_names import MachineGpus, find_gpu, machine_gpus
from outlay.hardware.gpus import Gpu
from outlay.measurement.file import SAMPLES, STEP_S
from outlay.models.recipe import AS_IT_IS, RecipeSettings, named_target
from outlay.plan.from_measurement import at_measured_batch, evidence_for, profile_for
from outlay.plan.model_step import bundled_step
from outlay.plan.placement import calibration
from outlay.predict.evidence import (
    NOTHING_LEARNED,
    PREDICTED,
    Evidence,
    LearnedCalibration,
    MeasuredStep,
)
from outlay.predict.host_time import Host, HostTest, host_test_of
from outlay.predict.largest_batch import verified_batches
from outlay.predict.memory import largest_batch, search_note
from outlay.predict.network import Wiring
from outlay.predict.parallel import StepRequest, best_step, mixed_gpus_note, mixed_gpus_step
from outlay.predict.roofline import checked_power_limit_w
from outlay.predict.step import Conditions, Placement, StepPrediction, range_over_forms
from outlay.predict.strategy import parse_strategy
from outlay.progress import Progress, silent
from outlay.trace.profile import CompileMode, Profile
from outlay.trace.target import SELECTED
from outlay.trace.trace_cache import TraceCache
from outlay.trace.tracing import histories_of
from outlay.workload.workload import Step

USUAL_WIRING = Wiring()
"""What the GPUs usually come with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRequest:
    """A step, the machines to predict it on, and what is known of them."""

    target: str
    """A bundled profile, a saved one, a measurement (.json), `path/to/file.py:function`, or a
    model's name."""
    machines: tuple[str, ...]
    """GPUs by name: `A100`, `A100:8` in one machine, `RTX 3090 + RTX 2080 Ti` unlike ones."""
    batch_size: int | Literal["max"] | None = None
    """Per GPU; None is the largest that fits, or of a measurement its own."""
    global_batch_size: int | None = None
    """Samples of one update over all GPUs, where that is kept."""
    gpus: int = 1
    """GPUs in each machine whose name does not say."""
    nodes: int = 1
    strategy: str = "auto"
    wiring: Wiring = USUAL_WIRING
    power_limit_w: float | None = None
    memory_cap_bytes: float | None = None
    expandable_segments: bool = False
    compiled: CompileMode | Literal["eager"] | None = None
    """The mode of torch.compile it runs in; None: as its code says, or its measurement."""
    measured: tuple[str, ...] = ()
    """Files of `outlay probe`, and step times by hand: `RTX 3090@64=0.101`."""
    host_speed: float | None = None
    """As `outlay host` measures it."""
    input_samples_per_s: float | None = None
    """That the input pipeline delivers to a GPU."""
    node_samples_per_s: float | None = None
    """That it delivers to all GPUs of a machine together."""
    selected: float = SELECTED
    """Share of elements that a selection by unknown values keeps in a trace."""
    cache: TraceCache | bool = True
    """Where traces are kept; True is the user's own place, False nowhere."""
    method: str | None = None
    """Of a model's name, the recipe; None is its usual one."""
    settings: RecipeSettings = AS_IT_IS
    """Of that recipe."""
    trust_remote_code: bool = False
    """Whether a model of the hub may run its repository's own code here."""

    @property
    def step(self) -> Step:
        """What is predicted; of a model whose step is not bundled, the file written for it."""
        model = bundled_step(self.target, self.method, self.settings)
        if model is not None:
            return replace(model, compiled=self.compiled)
        target = named_target(
            self.target, self.method, self.settings, trust_remote_code=self.trust_remote_code
        )
        if is_code(target):
            return Step(target=target, compiled=self.compiled)
        return Step(profile=target, compiled=self.compiled, batch_left_open=True)

    def placement(self, gpu: Gpu, gpus: int) -> Placement:
        """So many of a GPU in each machine."""
        return Placement(
            gpu=gpu,
            gpus=gpus,
            nodes=self.nodes,
            wiring=self.wiring,
            power_limit_w=checked_power_limit_w(self.power_limit_w, gpu),
            memory_cap_bytes=self.memory_cap_bytes,
            expandable_segments=self.expandable_segments,
        )


class GpuPrediction(NamedTuple):
    """A step on one machine."""

    spelling: str
    """The machine as it was named."""
    step: StepPrediction
    notes: tuple[str, ...]
    """What to know about the figures."""


def is_code(target: str) -> bool:
    """Whether a target is to be traced: `path/to/file.py:function`, `path/to/train.py -- ARGS`."""
    script, dashes, _ = target.partition(" --")
    path, colon, _ = target.rpartition(":")
    return (bool(dashes) and script.endswith(".py")) or (bool(colon) and path.endswith(".py"))


def predict_on_gpus(
    request: PredictionRequest,
    *,
    learned: LearnedCalibration = NOTHING_LEARNED,
    progress: Progress = silent,
) -> tuple[GpuPrediction, ...]:
    """Step time, memory and largest batch of a training step on each machine."""
    machines = [machine_gpus(name, request.gpus) for name in request.machines]
    parse_strategy(request.strategy)  # a typo is an error before anything is traced
    step = request.step
    if request.batch_size is None:
        batch_size = at_measured_batch(step).batch_size
    else:
        batch_size = None if request.batch_size == "max" else request.batch_size
    if step.target is not None:
        progress(f"Tracing {step.target} ...")
    profile = profile_for(
        step,
        request.selected,
        measured=[text for text in request.measured if text.endswith(".json")],
        cache=request.cache,
        progress=progress,
    )
    evidence = _evidence(request, step, profile, batch_size, learned)
    placements = [
        [[request.placement(gpu, machine.gpus) for gpu in match.candidates] for match in matches]
        for machine in machines
        for matches in (machine.matches,)
    ]
    predictor = _Predictor(
        request=request,
        profile=profile,
        batch_size=batch_size,
        conditions=_conditions(request, evidence),
        largest=_largest(request, step, profile, batch_size, placements, progress),
    )
    return tuple(
        _prediction(predictor, machine, parts)
        for machine, parts in zip(machines, placements, strict=True)
    )


Parts = Sequence[Sequence[Placement]]
"""The unlike GPUs of one machine; of each, the forms that its name leaves open."""


def _conditions(request: PredictionRequest, evidence: Evidence) -> Conditions:
    speed = request.host_speed
    return Conditions(
        host=Host() if speed is None else Host(speed=speed, measured=True),
        input_samples_per_s=request.input_samples_per_s,
        node_samples_per_s=request.node_samples_per_s,
        evidence=evidence,
    )


def _largest(
    request: PredictionRequest,
    step: Step,
    profile: Profile,
    batch_size: int | None,
    machines: Sequence[Parts],
    progress: Progress,
) -> dict[Placement, int]:
    """The largest batch on one GPU of each; of the user's own code, verified by a trace."""
    alone = [
        placement
        for parts in machines
        for forms in parts
        for placement in forms
        if placement.site.total == 1
    ]
    target = step.target
    if alone and target is not None and (batch_size is None or profile.history is None):
        progress("Verifying the largest batch ...")
        tracer = partial(
            histories_of,
            target,
            selected=request.selected,
            cache=request.cache,
            progress=progress,
        )
        return verified_batches(profile, alone, calibration(), tracer)
    return {
        placement: largest_batch(profile, placement.memory_budget, calibration())
        for placement in alone
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Predictor:
    """One step, on any machine."""

    request: PredictionRequest
    profile: Profile
    batch_size: int | None
    conditions: Conditions
    largest: dict[Placement, int]

    def on_forms(self, forms: Sequence[Placement], batch_size: int | None) -> StepPrediction:
        """On a GPU whose name leaves its form open: the slower one, with a range over all."""
        return range_over_forms(
            [
                best_step(
                    self._question(placement, batch_size),
                    calibration(),
                    largest=self.largest.get(placement),
                )
                for placement in forms
            ]
        )

    def _question(self, placement: Placement, batch_size: int | None) -> StepRequest:
        return StepRequest(
            profile=self.profile,
            placement=placement,
            batch_size=batch_size,
            global_batch_size=self.request.global_batch_size,
            strategy=parse_strategy(self.request.strategy),
            conditions=self.conditions,
        )

    def on_machine(self, parts: Parts) -> StepPrediction:
        """On a machine whose GPUs may differ: each waits for the slowest."""
        if len(parts) == 1:
            return self.on_forms(parts[0], self.batch_size)
        return mixed_gpus_step(
            lambda batch_size: [self.on_forms(forms, batch_size) for forms in parts],
            self.batch_size,
        )


def _prediction(predictor: _Predictor, machine: MachineGpus, parts: Parts) -> GpuPrediction:
    step = predictor.on_machine(parts)
    names = [match.gpu.name for match in machine.matches]
    unlike = (mixed_gpus_note(names, step.placement.gpu.name),) if len(parts) > 1 else ()
    notes = (
        *(match.note for match in machine.matches if match.note),
        *_batch_note(step, predictor.request.global_batch_size),
        *_time_note(step),
        *search_note(step.max_batch_size),
        *step.notes,
        *unlike,
        *predictor.conditions.evidence.notes,
        *predictor.profile.notes,
    )
    return GpuPrediction(machine.spelling, step, notes)


def _batch_note(step: StepPrediction, kept: int | None) -> list[str]:
    """Whether the global batch stays or grows with the GPUs."""
    if step.placement.site.total == 1 or not step.batch_size:
        return []
    how = "as asked" if kept else "grows with the GPUs; --global-batch keeps it"
    return [f"{step.placement.site.total} GPUs: global batch {step.global_batch_size:,}, {how}."]


def _time_note(step: StepPrediction) -> list[str]:
    """Where a step's time comes from, if not from a prediction alone."""
    if step.time_from == PREDICTED:
        return []
    gpus = step.placement.site.total
    several = f"{gpus}x " if gpus > 1 else ""
    return [f"{several}{step.placement.gpu.name}: step time {step.time_from}."]


def _evidence(
    request: PredictionRequest,
    step: Step,
    profile: Profile,
    batch_size: int | None,
    learned: LearnedCalibration,
) -> Evidence:
    """What was measured: files, times given by hand, and what was learned from earlier ones."""
    files = [text for text in request.measured if text.endswith(".json")]
    times = [
        (text, measured_time(text, batch_size)) for text in request.measured if text not in files
    ]
    return evidence_for(step, profile, learned, files, times)


def measured_time(text: str, batch_size: int | None) -> MeasuredStep:
    """The measured step of `RTX 3090@64=0.101`; at `batch_size` where it does not say."""
    where, _, seconds = text.rpartition("=")
    name, _, size = where.partition("@")
    at = int(size) if size.isdecimal() else 0 if size else batch_size
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


# The host


def measure_host(seconds: float = 10.0) -> HostTest:
    """How fast this machine issues operations to a GPU; needs torch, but no GPU."""
    from outlay.trace.capture.self_test import step_times_s

    return host_test_of(step_times_s(seconds), calibration())
