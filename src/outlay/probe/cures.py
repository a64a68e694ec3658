"""What usually helps, made concrete by the settings that were seen."""

from __future__ import annotations

from collections.abc import Callable

from outlay.measurement import Holder
from outlay.probe.observed import LoaderSeen, Observed

WORKERS = 8
"""DataLoader workers to try first, where there are as many threads."""
HALF_EMPTY = 0.5
IDLE_CPUS = 0.7
"""Of a machine's threads with work: below, workers wait for something else than a thread."""


def cures_for(holder: Holder, seen: Observed) -> tuple[str, ...]:
    """What to try, most promising first."""
    of: dict[Holder, Callable[[Observed], list[str]]] = {
        "input": _input,
        "host": _host,
        "gpu": _gpu,
        "network": lambda _: list(_NETWORK),
        "cpu": lambda _: list(_CPU),
    }
    return tuple(of[holder](seen))


def _input(seen: Observed) -> list[str]:
    lines = [_DISK] if seen.is_disk_busy else []
    loader = seen.loader
    if seen.wait_s is None:
        return [*lines, _NO_LOADER, *_CHEAPER]
    if loader is None:
        return [*lines, *_workers(LoaderSeen(), seen), *_CHEAPER]
    lines += _workers(loader, seen)
    if loader.pin_memory is False and seen.device in ("cuda", "rocm"):
        lines.append(_PIN)
    if loader.persistent_workers is False and loader.num_workers:
        lines.append("persistent_workers=True keeps the workers from one epoch to the next.")
    return [*lines, *_CHEAPER]


def _workers(loader: LoaderSeen, seen: Observed) -> list[str]:
    threads, used = seen.threads, seen.machine_cpu_fraction
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


def _host(seen: Observed) -> list[str]:
    if seen.device == "cpu":
        return [_ASLEEP]
    lines = []
    if seen.memory_fraction is None or seen.memory_fraction < HALF_EMPTY:
        lines.append(f"A larger batch gives each launch more work{_room(seen)}.")
    if seen.is_compiled is not True:
        lines.append(_GRAPHS)
    return [*lines, _NO_READING_BACK, *_fused(seen)]


def _gpu(seen: Observed) -> list[str]:
    lines = [_HEAT] if "heat" in seen.slowed_by else []
    if seen.is_full_precision is not False:
        known = "It computes in fp32" if seen.is_full_precision else "If it computes in fp32"
        lines.append(f"{known}: {_MIXED}")
    if seen.is_compiled is not True:
        lines.append("torch.compile fuses the small operations between the large ones.")
    if seen.has_channels_first is not False:
        known = "Its convolutions" if seen.has_channels_first else "Convolutions, if it has any,"
        lines.append(f"{known} are usually faster in memory_format=torch.channels_last.")
    if seen.memory_fraction is not None and seen.memory_fraction < HALF_EMPTY:
        lines.append(f"A larger batch uses the GPU better{_room(seen)}.")
    return [*lines, *_fused(seen), _FASTER]


def _fused(seen: Observed) -> tuple[str, ...]:
    if seen.is_fused:
        return ()
    unless = ", unless it is compiled" if seen.is_compiled else ""
    return (f"A fused optimizer (fused=True) updates all parameters in few kernels{unless}.",)


def _room(seen: Observed) -> str:
    share = seen.memory_fraction
    return "" if share is None else f" ({share:.0%} of its memory is in use)"


_NO_LOADER = (
    "No DataLoader was seen: let one with workers load, so that the next batch is ready when a"
    " step ends."
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
_MIXED = (
    "mixed precision (torch.autocast with bfloat16), or at least"
    ' torch.set_float32_matmul_precision("high").'
)
_FASTER = (
    "Beyond that, a faster GPU: `outlay plan` with this measurement shows what one would cost."
)
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
_CPU = (
    "It trains on the CPU: a GPU is usually ten times as fast or more; `outlay plan` shows prices.",
    "If this machine has a GPU, install a build of torch for it and move model and batches there.",
    "torch.set_num_threads to the number of cores, and bfloat16 by torch.autocast on new CPUs.",
)
