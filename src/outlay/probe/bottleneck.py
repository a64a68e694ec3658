"""What holds a run back: where a step's time goes, what takes most of it, and what to do.

Observation  what is known of one step
Cures        what usually helps, made concrete by the settings
Bottleneck   the shares of a step's time, and the finding with its evidence
Precision    how a recorded step computes: precision, layout, optimizer; what cures would change
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from outlay.measurement.measurement import Finding, Holder, TimeShares
from outlay.trace.profile import Kind, Precision, Profile

# Observation

ProductShares = Mapping[tuple[Kind, Precision], float]
"""Shares of the FLOPs of products, by their kind and by how they are computed."""

DISK_BUSY = 0.7
"""Of the time: a disk with work for longer may hold the input back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSettings:
    """Settings of the DataLoader that gives the batches; None where they are not known."""

    num_workers: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherGpu:
    """A step as predicted on another GPU."""

    name: str
    step_s: float
    is_host_bound: bool = False
    """Whether launching its operations takes longer there than computing them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepObservation:
    """What is known of one step in the steady state; None where it is not."""

    step_s: float
    device: Literal["cuda", "rocm", "mps", "cpu"]
    busy_s: float | None = None
    """Kernels other than exchanges ran, by a profile."""
    exchange_s: float | None = None
    """Exchanges that no other kernel covers, by the same."""
    gpu_fraction: float | None = None
    """By the driver's samples, exchanges included; used where there is no profile."""
    wait_s: float | None = None
    """Waiting for DataLoaders; None where there are none."""
    cpus: float | None = None
    """CPU seconds of the process for each second."""
    queued_fraction: float = 0.0
    """Of the time, for which the thread that trains waited for a CPU that others used."""
    ranks: int = 1
    cpu_threads: int | None = None
    loader: LoaderSettings | None = None
    read_bytes_per_s: float | None = None
    disk_fraction: float | None = None
    machine_cpu_fraction: float | None = None
    """Of all threads of the machine, how many have work."""
    memory_fraction: float | None = None
    """Of the GPU's memory, the most that was reserved."""
    products: ProductShares | None = None
    """How its products are computed, with TF32 only where the GPU has it."""
    has_tf32: bool | None = None
    """Whether the GPU has TF32."""
    matmul_tf32: bool | None = None
    """Whether matrix products of fp32 may be computed in TF32, by the script's switches."""
    other_gpus: tuple[OtherGpu, ...] | None = None
    """The same step on others, the fastest first; None where it cannot be predicted."""
    one_thread_s: float | None = None
    """What the arithmetic and the memory traffic of a step take one thread of a CPU, about."""
    has_channels_first: bool | None = None
    """Whether it has convolutions of images, and most of them in the usual layout."""
    is_fused: bool | None = None
    """Whether its optimizers update all parameters in few kernels."""
    is_compiled: bool | None = None
    slowed_by: tuple[str, ...] = ()
    """Why the driver held the clock down for most of the time: `power`, `heat`, `hardware`."""

    @property
    def threads(self) -> int | None:
        """CPU threads of the machine for one process."""
        return None if self.cpu_threads is None else self.cpu_threads // max(self.ranks, 1)

    @property
    def is_disk_busy(self) -> bool:
        """Whether a disk is known to have work most of the time."""
        return (self.disk_fraction or 0.0) > DISK_BUSY


# Cures

WORKERS = 8
"""DataLoader workers to try first, where there are as many threads."""
HALF_EMPTY = 0.5
IDLE_CPUS = 0.7
"""Of a machine's threads with work: below, workers wait for something else than a thread."""


def cures_for(holder: Holder, step: StepObservation) -> tuple[str, ...]:
    """What to try, most promising first."""
    cures: dict[Holder, Callable[[StepObservation], list[str]]] = {
        "input": _input_cures,
        "host": _host_cures,
        "gpu": _gpu_cures,
        "network": lambda _: list(_NETWORK),
        "cpu": _cpu_cures,
        "unknown": lambda _: [_ASLEEP],
    }
    return tuple(cures[holder](step))


def _input_cures(step: StepObservation) -> list[str]:
    lines = [_DISK] if step.is_disk_busy else []
    loader = step.loader
    cheaper = _CHEAPER if step.device != "cpu" else _CHEAPER[:1]
    if step.wait_s is None:
        return [*lines, _NO_LOADER, _ASLEEP, *cheaper]
    if loader is None:
        return [*lines, *_workers(LoaderSettings(), step), *cheaper]
    lines += _workers(loader, step)
    if loader.pin_memory is False and step.device in ("cuda", "rocm"):
        lines.append(_PIN)
    if loader.persistent_workers is False and loader.num_workers:
        lines.append("persistent_workers=True keeps the workers from one epoch to the next.")
    return [*lines, *cheaper]


def _workers(loader: LoaderSettings, step: StepObservation) -> list[str]:
    threads, used = step.threads, step.machine_cpu_fraction
    has = f"this machine has {threads} threads for it" if threads else "as many as it has threads"
    if loader.num_workers == 0:
        return [f"num_workers is 0: try {max(1, min(WORKERS, threads or 4))} ({has})."]
    if loader.num_workers is None:
        return [f"Try more DataLoader workers ({has})."]
    if threads is None or 2 * loader.num_workers <= threads:
        return [f"num_workers is {loader.num_workers}: try {2 * loader.num_workers} ({has})."]
    if loader.num_workers < threads:
        return [f"num_workers is {loader.num_workers}: try {threads} ({has})."]
    if used is not None and used < IDLE_CPUS:
        has_work = f"only {used:.0%} of the machine's threads have work"
        waits = f"workers wait for a disk or a network. Try {2 * loader.num_workers}."
        return [f"num_workers is {loader.num_workers}, but {has_work}: {waits}"]
    return [
        (
            f"num_workers is {loader.num_workers} and {has}: more workers will not help,"
            " cheaper samples or a machine with more threads will."
        )
    ]


def _host_cures(step: StepObservation) -> list[str]:
    if step.device == "cpu":
        return [_ASLEEP]
    lines = []
    if step.memory_fraction is None or step.memory_fraction < HALF_EMPTY:
        lines.append(f"A larger batch gives each launch more work{_room(step)}.")
    if step.is_compiled is not True:
        lines.append(_GRAPHS)
    return [*lines, _NO_READING_BACK, *_fused(step)]


def _gpu_cures(step: StepObservation) -> list[str]:
    lines = [_HEAT] if "heat" in step.slowed_by else []
    lines += _precision_cures(step)
    if step.is_compiled is not True:
        lines.append("torch.compile fuses the small operations between the large ones.")
    if step.has_channels_first is not False:
        subject = "Its convolutions" if step.has_channels_first else "Convolutions, if it has any,"
        lines.append(f"{subject} are usually faster in memory_format=torch.channels_last.")
    if step.memory_fraction is not None and step.memory_fraction < HALF_EMPTY:
        lines.append(f"A larger batch uses the GPU better{_room(step)}.")
    return [*lines, *_fused(step), *_faster_gpu(step)]


def _precision_cures(step: StepObservation) -> list[str]:
    """What to make of the precision of its products: nothing where most are in 16 bits."""
    if step.products is None:
        return [] if step.has_tf32 is False else [_unrecorded_precision(step)]
    by_precision = arithmetic_by_precision(step.products) or {}
    tf32, fp32 = by_precision.get("tf32", 0.0), by_precision.get("fp32", 0.0)
    if tf32 + fp32 <= _MOSTLY:
        return []
    if step.has_tf32 is False:
        mixed = f"{_MIXED}." if step.device == "rocm" else _MIXED_FP16
        return [f"It computes in fp32, as this GPU has no TF32: {mixed}"]
    if fp32 <= SMALL * (tf32 + fp32):
        return [f"It computes in TF32 ({tf32:.0%} of the arithmetic of its products): {_FURTHER}"]
    switches = " and ".join(_tf32_switches(step.products))
    if tf32 <= SMALL * (tf32 + fp32):
        return [f"It computes in fp32: {_MIXED}, or at least TF32 ({switches})."]
    matrix = step.products.get(("gemm", "fp32"), 0.0) + step.products.get(("attention", "fp32"), 0)
    which = "matrix products" if matrix > fp32 / 2 else "convolutions"
    return [
        (
            f"Of the arithmetic of its products {tf32:.0%} is in TF32 and {fp32:.0%} in fp32,"
            f" mostly {which}: {switches} computes those in TF32, too; {_FURTHER}"
        )
    ]


def _unrecorded_precision(step: StepObservation) -> str:
    """What is known by the switches alone."""
    if step.matmul_tf32:
        return f"TF32 is allowed already; if it does not compute in 16 bits yet, {_FURTHER}"
    return f"If it computes in fp32: {_MIXED}, or at least TF32 ({_MATMUL_SWITCH})."


def _tf32_switches(products: ProductShares) -> list[str]:
    """What lets its products of fp32 be computed in TF32."""
    kinds = {kind for (kind, precision), share in products.items() if precision == "fp32" and share}
    matmul = [_MATMUL_SWITCH] if kinds & {"gemm", "attention"} else []
    return [*matmul, *([_CUDNN_SWITCH] if kinds & {"conv", "rnn"} else [])]


def _faster_gpu(step: StepObservation) -> list[str]:
    """A GPU on which the step is predicted to be much faster, if there is one."""
    best = step.other_gpus[0] if step.other_gpus else None
    if best is None or step.step_s < LEAST_GAIN * best.step_s:
        return []
    return [
        (
            f"Beyond that, a faster GPU: on {_article(best.name)} a step is predicted to take"
            f" {_time(best.step_s)}; `outlay plan` with this measurement shows what it costs."
        )
    ]


def _cpu_cures(step: StepObservation) -> list[str]:
    """Whether a GPU would help, by what is predicted for one; then what helps on the CPU."""
    if step.other_gpus is None:
        return [_UNPREDICTED, _THREADS]
    if not step.other_gpus:
        return [_THREADS]
    best, least = step.other_gpus[0], step.other_gpus[-1]
    if _is_too_small(step, best):
        where = "there" if best.is_host_bound else f"even on {_article(best.name)}"
        why = ", mostly for launching them" if best.is_host_bound else ""
        return [
            (
                f"It is too small to gain from a GPU: {where} its operations are predicted to take"
                f" {_time(best.step_s)} a step{why}."
            ),
            _MORE_AT_ONCE,
            _ONE_THREAD,
        ]
    is_slower = least.step_s > LEAST_GAIN * best.step_s
    on_least = f", on {_article(least.name)} {_time(least.step_s)}" if is_slower else ""
    return [
        (
            f"It trains on the CPU: on {_article(best.name)} the operations of a step are predicted"
            f" to take {_time(best.step_s)}{on_least}, instead of {_time(step.step_s)}. What the"
            " script does beside them stays; `outlay plan` shows prices."
        ),
        _OWN_GPU,
        _THREADS,
    ]


def _is_too_small(step: StepObservation, best: OtherGpu) -> bool:
    """Whether a GPU would not be faster: it computes no sooner than a thread, or than the CPU did.

    What a step waits for CPUs that others use it would wait for with a GPU, too.
    """
    if step.one_thread_s is not None and step.one_thread_s < best.step_s:
        return True
    alone_s = step.step_s * (1 - step.queued_fraction)
    least = LEAST_GAIN_OF_LAUNCHES if best.is_host_bound else LEAST_GAIN
    return alone_s < least * best.step_s


def _article(name: str) -> str:
    """The name with `a` or `an`, as it is spoken: an H100, a T4."""
    return f"an {name}" if name[:1] in "AEFHILMNORSX8" else f"a {name}"


def _fused(step: StepObservation) -> tuple[str, ...]:
    if step.is_fused:
        return ()
    unless = ", unless it is compiled" if step.is_compiled else ""
    return (f"A fused optimizer (fused=True) updates all parameters in few kernels{unless}.",)


def _room(step: StepObservation) -> str:
    share = step.memory_fraction
    return "" if share is None else f" ({share:.0%} of its memory is in use)"


_NO_LOADER = (
    "No DataLoader was seen: if it loads data, let one with workers do that, so that the next batch"
    " is ready when a step ends."
)
_PIN = (
    "pin_memory is off: with pin_memory=True and .to(device, non_blocking=True) copies to the GPU"
    " run beside its work."
)
_DISK = (
    "The disk is at its limit: keep the data on a local NVMe drive or in RAM, or in fewer and"
    " larger files (WebDataset, tar, Parquet)."
)
_CHEAPER = (
    "Do once beforehand what is the same in every epoch: resize, decode, tokenize.",
    "Move decoding and augmentation to the GPU (torchvision.transforms.v2, nvJPEG, DALI).",
)
_ASLEEP = (
    "Look for what each step waits for: a sleep, a lock, an environment, a request to a server,"
    " another process."
)
_GRAPHS = (
    'torch.compile(model, mode="reduce-overhead") launches whole CUDA graphs instead of single'
    " operations."
)
_NO_READING_BACK = (
    "No .item(), .cpu(), print of a tensor or `if tensor:` in every step: each waits for the GPU."
    " Log every 50 steps instead."
)
_HEAT = "It is too hot: clean it, open the case, lower its power limit a little."
_MIXED = "mixed precision (torch.autocast with bfloat16)"
_MIXED_FP16 = "mixed precision in float16 (torch.autocast with float16, and a GradScaler)."
_FURTHER = "mixed precision (torch.autocast with bfloat16) is a further step."
_MATMUL_SWITCH = 'torch.set_float32_matmul_precision("high")'
_CUDNN_SWITCH = "torch.backends.cudnn.allow_tf32 = True"
LEAST_GAIN = 1.2
"""Times as fast: below, another GPU is not worth a word."""
LEAST_GAIN_OF_LAUNCHES = 2.0
"""The same where launches take the time on a GPU: those this machine's own CPU would make."""
_NETWORK = (
    "Exchange less often: accumulate gradients over several passes, with no_sync() between.",
    "A larger batch on each GPU makes more work for the same exchange.",
    "Exchange less: gradients in bf16 (a DDP communication hook), no unused parameters.",
    (
        "Let more of it run beside the backward pass: a larger or smaller bucket_cap_mb,"
        " gradient_as_bucket_view=True, static_graph=True."
    ),
    "GPUs joined by NVLink exchange many times faster than over PCIe or a network.",
)
_UNPREDICTED = (
    "It trains on the CPU; whether a GPU would be faster is not known, as no operations of a step"
    " were recorded."
)
_OWN_GPU = (
    "If this machine has a GPU, install a build of torch for it and move model and batches there."
)
_THREADS = (
    "torch.set_num_threads to the number of cores, and bfloat16 by torch.autocast on new CPUs."
)
_MORE_AT_ONCE = "More at once is what gains: a larger batch, or several environments side by side."
_ONE_THREAD = "Tensors this small are often faster on one thread: torch.set_num_threads(1)."


# Bottleneck

BUSY = 0.8
"""A GPU that works for so much of a step or more holds it back itself; below, what it waits for."""
_MOSTLY = 0.5
ASLEEP = 0.5
"""CPU seconds for each second of waiting, below which the process slept for most of it."""
CROWDED = 0.2
"""Of the time, waiting for a CPU, from where that is worth a line."""
_EXCHANGED = "in exchanges that nothing hides"
HEAVY_READING_BYTES_PER_S = 50e6
# Assumes: what logging, checkpoints and other programs read stays below 50 MB/s.


def time_shares(step: StepObservation) -> TimeShares:
    """Where the time of a step goes.

    Time in which the GPU does not work is idle: waiting for a batch up to the time that the loader
    was waited for, and the rest for the host. Where the process slept in that rest, it did not
    launch anything either: it is input where it reads a disk or has no DataLoader.
    """
    if step.device == "cpu":
        return _cpu_time_shares(step)
    busy_s = _busy_s(step)
    if busy_s is None:
        return TimeShares()
    exchange_s = min(step.exchange_s or 0.0, step.step_s - busy_s)
    idle_s = step.step_s - busy_s - exchange_s
    input_s = min(step.wait_s or 0.0, idle_s)
    if _slept_through(step, idle_s - input_s) and _may_read_data(step):
        input_s = idle_s
    is_network_known = step.exchange_s is not None or step.ranks == 1
    return TimeShares(
        compute=busy_s / step.step_s,
        network=exchange_s / step.step_s if is_network_known else None,
        input=input_s / step.step_s,
        host=(idle_s - input_s) / step.step_s,
    )


def _cpu_time_shares(step: StepObservation) -> TimeShares:
    """The same of a step on the CPU."""
    waited = asleep = 0.0
    if step.wait_s is not None:
        waited = min(step.wait_s / step.step_s, 1.0)
        if _is_mostly_asleep(step):
            asleep = max(1 - waited - _wanted_cpus(step), 0.0)
    elif _is_mostly_asleep(step):
        waited = 1 - _wanted_cpus(step)  # a process cannot compute while it sleeps
    if step.ranks == 1:
        return TimeShares(compute=1 - waited - asleep, input=waited, host=asleep or None)
    # Ranks that neither compute nor load sleep until the others have come as far.
    return TimeShares(compute=1 - waited - asleep, input=waited, network=asleep)


def _busy_s(step: StepObservation) -> float | None:
    if step.busy_s is not None:
        return min(step.busy_s, step.step_s)
    return None if step.gpu_fraction is None else min(step.gpu_fraction, 1.0) * step.step_s


def _slept_through(step: StepObservation, rest_s: float) -> bool:
    """Whether even all CPU time of a step would fill less than half of what is left of it."""
    return step.cpus is not None and _wanted_cpus(step) * step.step_s < ASLEEP * rest_s


def _is_mostly_asleep(step: StepObservation) -> bool:
    return step.cpus is not None and _wanted_cpus(step) < ASLEEP


def _wanted_cpus(step: StepObservation) -> float:
    """CPU seconds a second that the process used, or would have if others had left it a CPU."""
    return (step.cpus or 0.0) + step.queued_fraction


def _may_read_data(step: StepObservation) -> bool:
    """Whether the process may be reading data other than through a DataLoader."""
    is_reading = (step.read_bytes_per_s or 0.0) > HEAVY_READING_BYTES_PER_S
    return step.wait_s is None or is_reading or step.is_disk_busy


def bottleneck_finding(step: StepObservation) -> Finding | None:
    """What holds the run back, with evidence and cures; None where nothing is known of it."""
    shares = time_shares(step)
    holder = limiting_part(step, shares)
    if holder is None:
        return None
    return Finding(
        holder=holder,
        evidence=(*_evidence(step, shares), *_gain(holder, step, shares)),
        cures=cures_for(holder, step),
    )


def limiting_part(step: StepObservation, shares: TimeShares) -> Holder | None:
    """The GPU where it works nearly all the time of a step, else what it waits for most.

    A GPU that idles for a third of a step holds nothing back in that third, whatever its share is.
    A CPU computes, loads and waits by itself: there the largest share counts.
    """
    if shares.compute is None:
        return None
    waits: dict[Holder, float | None] = {
        "input": shares.input,
        "host": shares.host,
        "network": shares.network,
    }
    if step.device == "cpu":
        waits = {"cpu": shares.compute, **waits}
    elif shares.compute >= BUSY:
        return "gpu"
    holder = max(waits, key=lambda holder: waits[holder] or 0.0)
    if holder == "host" and step.device != "cpu" and _slept_elsewhere(step, shares):
        return "unknown"
    return holder


def _slept_elsewhere(step: StepObservation, shares: TimeShares) -> bool:
    """Whether the process slept while the GPU waited for it: then it launched nothing."""
    return _slept_through(step, (shares.host or 0.0) * step.step_s)


def _evidence(step: StepObservation, shares: TimeShares) -> list[str]:
    lines = [_compute_line(step, shares)]
    if shares.network:
        how = "asleep until the other ranks had come as far" if step.device == "cpu" else _EXCHANGED
        lines.append(f"{_part(shares.network, step)} went by {how}.")
    if shares.input:
        lines.append(f"{_part(shares.input, step)} went by {_input_wait(step)}.")
    if shares.host:
        how = "went by asleep" if step.device == "cpu" else "the GPU waited for the host"
        if step.device != "cpu" and _slept_elsewhere(step, shares):
            how = "the GPU waited, for what is not known"
        lines.append(f"{_part(shares.host, step)} {how}.")
    return [*lines, *_sleep_lines(step, shares), *_queue_lines(step), *_clock_lines(step)]


def _input_wait(step: StepObservation) -> str:
    """What is known of a wait for input: without a DataLoader, only that the process slept."""
    if step.wait_s is None:
        return "asleep, most likely waiting for data"
    return "waiting for the next batch"


def _compute_line(step: StepObservation, shares: TimeShares) -> str:
    if step.device == "cpu" and step.queued_fraction >= CROWDED:
        part = _part(shares.compute or 0.0, step)
        return f"It computed, or waited for a CPU to compute on, {part}."
    what = "The CPU" if step.device == "cpu" else "The GPU"
    is_coarse = step.busy_s is None and step.device != "cpu"
    by = ", by the driver's samples, which count any kernel however small" if is_coarse else ""
    return f"{what} worked {_part(shares.compute or 0.0, step)}{by}."


def _sleep_lines(step: StepObservation, shares: TimeShares) -> list[str]:
    """A line where the process slept, as only that tells a slow host from a wait."""
    idle = (shares.input or 0.0) + (shares.host or 0.0)
    waited = 0.0 if step.wait_s is None else min(step.wait_s / step.step_s, idle)
    if step.cpus is None or not _slept_through(step, (idle - waited) * step.step_s):
        return []
    text = f"The process slept: it used {step.cpus:.2g} CPU threads"
    if _may_read_data(step):
        reading = step.read_bytes_per_s or 0.0
        read = f" while {reading / 1e6:.0f} MB/s were read from disk" if reading > 1e6 else ""
        return [f"{text}{read}, and no DataLoader accounts for that time."]
    return [
        f"{text}. It waits for something that is neither input nor work: another process, a lock?"
    ]


def _queue_lines(step: StepObservation) -> list[str]:
    if step.queued_fraction < CROWDED:
        return []
    text = f"{step.queued_fraction:.0%} of the time it waited for a CPU that other programs used"
    return [f"{text}: it would be faster alone."]


def _clock_lines(step: StepObservation) -> list[str]:
    named = {"heat": "heat", "hardware": "a fault or the power supply", "power": "its power limit"}
    return [f"The GPU's clock is held down by {named.get(why, why)}." for why in step.slowed_by]


def _gain(holder: Holder, step: StepObservation, shares: TimeShares) -> list[str]:
    """What there is to gain where all of the holder's share went away."""
    share = {"input": shares.input, "host": shares.host, "network": shares.network}.get(holder)
    if not share or share >= 1:
        return []
    what = "sleeping" if (holder, step.device) == ("host", "cpu") else _WAITING[holder]
    return [f"Without {what} it would be at best {1 / (1 - share):.1f} times as fast."]


_WAITING: dict[Holder, str] = {
    "input": "waiting for data",
    "host": "waiting for the host",
    "network": "waiting for the others",
}


def _part(share: float, step: StepObservation) -> str:
    return f"{share:.0%} of a step ({_time(share * step.step_s)} of {_time(step.step_s)})"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


# Precision, layout and optimizer of a recorded step

PRODUCTS = ("gemm", "conv", "attention", "rnn")
SMALL = 0.1
"""Of a step's arithmetic: convolutions of less, as those that cut images up, matter to nobody."""
ROW_RANK = 3
"""Dimensions of a batch of rows with channels, as sound has; images have more."""


def product_shares(
    profile: Profile | None, *, has_tf32: bool | None = None
) -> ProductShares | None:
    """How the products of a step are computed; None where none were recorded.

    A GPU without TF32 computes in fp32 what may be computed in it.
    """
    if profile is None:
        return None
    flops: dict[tuple[Kind, Precision], float] = {}
    for op in profile.at(min(profile.memory), shapes=False).ops:
        if op.kind in PRODUCTS:
            is_plain = op.precision == "tf32" and has_tf32 is False
            key = op.kind, "fp32" if is_plain else op.precision
            flops[key] = flops.get(key, 0.0) + op.flops * op.count
    total = sum(flops.values())
    return {key: part / total for key, part in flops.items() if part} if total else None


def arithmetic_by_precision(products: ProductShares | None) -> dict[str, float] | None:
    """The same by precision alone, the largest share first."""
    if products is None:
        return None
    shares: dict[str, float] = {}
    for (_, precision), share in products.items():
        shares[precision] = shares.get(precision, 0.0) + share
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def has_channels_first(profile: Profile | None) -> bool | None:
    """Whether convolutions of images are much of its arithmetic, mostly in the usual layout."""
    if profile is None:
        return None
    flops = {"first": 0.0, "last": 0.0, "other": 0.0}
    for op in profile.at(min(profile.memory)).ops:
        if op.kind not in PRODUCTS:
            continue
        if op.kind == "conv" and op.shapes and len(op.shapes[0]) > ROW_RANK:
            layout = "last" if op.layout == "channels_last" else "first"
        else:
            layout = "other"
        flops[layout] += op.flops * op.count
    return flops["first"] > max(flops["last"], SMALL * sum(flops.values()))


def is_fused(profile: Profile | None) -> bool | None:
    """Whether an optimizer updates all its parameters in few kernels (`fused=True`)."""
    if profile is None:
        return None
    return any("_fused_" in op.name for op in profile.ops if op.phase == "optimizer")
