"""Measure the reference steps on the GPU at hand: memory, allocations, largest batches, times.

    python tools/measure_memory.py OUT_FOLDER [peaks] [largest] [times] [events] [layers]

Every figure is taken in a process of its own, forked after the imports. The steps are those in
tests/reference/workloads, or some of them with `only=TEXT`. torch, torchvision and transformers
must be installed.

    peaks     h200_memory.csv: peak allocated and reserved after five steps
    largest   h200_largest_batches.csv: the largest batch that trains three steps under a cap
    times     h200_times.csv: wall time of a step, steps issued back to back
    events    events.json.gz: what the allocator did in three steps, and each operator's own takings
    layers    h200_layers.csv: what single convolutions and recurrent layers take for themselves
"""

from __future__ import annotations

import csv
import gzip
import importlib
import json
import multiprocessing
import multiprocessing.connection
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from measure_steps import timed

WORKLOADS = Path(__file__).parent.parent / "tests" / "reference" / "workloads"
MIB = 2**20

STEPS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    # the workload: batch sizes, and caps in MiB for its largest batch
    "vision:resnet18_bf16_amp_nhwc": ((64, 512), (8000,)),
    "vision:resnet101_fp16_amp": ((32, 160), (11000,)),
    "vision:wide_resnet50_tf32_nhwc": ((48,), (15000,)),
    "vision:resnet34_accumulate4_bf16_amp": ((64,), ()),
    "vision:resnet50_cifar_fp32": ((256, 1024), (7000,)),
    "vision:resnext50_bf16_amp": ((32, 128), (11000,)),
    "vision:mobilenet_v3_large_bf16_amp": ((64, 384), (7500,)),
    "vision:mobilenet_v2_fp16_amp_nhwc": ((128,), (10000,)),
    "vision:mnasnet_fp32": ((96,), ()),
    "vision:shufflenet_v2_tf32": ((256,), (6000,)),
    "vision:densenet121_bf16_amp": ((16, 96), (10000,)),
    "vision:densenet121_tf32": ((48,), ()),
    "vision:efficientnet_b0_bf16": ((64, 256), (14000,)),
    "vision:efficientnet_b3_fp16_amp": ((32,), ()),
    "vision:regnet_y_8gf_bf16_amp": ((64,), ()),
    "vision:convnext_tiny_bf16_amp": ((32, 128), (15000,)),
    "vision:convnext_small_tf32_nhwc": ((32,), ()),
    "vision:swin_t_bf16_amp": ((32, 128), (15000,)),
    "vision:swin_v2_t_fp32": ((32,), ()),
    "vision:vit_l16_bf16_amp": ((16, 64), (23000,)),
    "vision:vit_b32_fp32": ((64,), ()),
    "vision:maxvit_t_bf16_amp": ((24,), ()),
    "vision:vgg16_bf16_amp": ((32, 128), (11000,)),
    "vision:vgg19_bn_fp32": ((32,), (15000,)),
    "vision:vgg11_fp16_amp_nhwc": ((96,), ()),
    "vision:alexnet_tf32": ((256,), (5500,)),
    "vision:squeezenet_bf16_amp": ((256,), ()),
    "vision:googlenet_bf16_amp": ((128,), ()),
    "vision:inception_v3_tf32": ((48,), (11000,)),
    "vision:r3d_18_bf16_amp": ((8, 32), (15000,)),
    "vision:r2plus1d_18_tf32": ((8,), ()),
    "vision:mvit_v2_s_bf16_amp": ((4,), ()),
    "vision:deeplab_v3_resnet50_bf16_amp": ((8, 24), (15000,)),
    "vision:fcn_resnet50_tf32": ((8,), ()),
    "language:gpt2_small_checkpointed_bf16_amp": ((4, 24), (15000,)),
    "language:gpt2_small_tf32": ((8,), (11000,)),
    "language:gpt2_small_eager_attention_fp16_amp": ((4,), (23000,)),
    "language:pythia_410m_bf16": ((2, 8), (23000,)),
    "language:llama_300m_bf16_amp": ((4,), (15000,)),
    "language:llama_300m_accumulate4_bf16": ((8,), ()),
    "language:llama_3b_checkpointed_adafactor_bf16": ((2,), (23000,)),
    "language:llama_300m_long_tf32": ((2,), ()),
    "language:mixtral_small_bf16": ((4,), ()),
    "language:opt_350m_fp16_amp": ((4,), ()),
    "language:bert_base_tf32": ((16, 64), (7500,)),
    "language:distilbert_bf16_amp": ((64,), ()),
    "language:roberta_large_frozen_below_bf16_amp": ((32,), (7500,)),
    "language:t5_base_bf16_amp": ((8,), (15000,)),
    "language:bart_base_fp32": ((8,), ()),
    "language:whisper_small_bf16_amp": ((8,), (15000,)),
    "language:wav2vec2_features_tf32": ((8,), ()),
    "language:clip_vit_b32_bf16_amp": ((128,), ()),
    "language:segformer_b1_bf16_amp": ((8,), (11000,)),
    "plain:lstm_language_model_fp32": ((64, 256), (7500,)),
    "plain:gru_language_model_bf16_amp": ((64,), ()),
    "plain:bilstm_tagger_tf32": ((64,), ()),
    "plain:transformer_translation_fp16_amp": ((32,), (15000,)),
    "plain:decoder_grouped_bf16": ((4, 16), (23000,)),
    "plain:decoder_checkpointed_bf16_amp": ((4,), (23000,)),
    "plain:decoder_fp32": ((8,), ()),
    "plain:unet_2d_fp16_amp": ((8, 48), (7500,)),
    "plain:unet_2d_fp32": ((16,), (5500,)),
    "plain:unet_3d_bf16_amp": ((2, 8), (15000,)),
    "plain:unet_3d_tf32": ((8,), ()),
    "plain:gan_gradient_penalty_tf32": ((32, 128), (7500,)),
    "plain:style_generator_fp16_amp": ((16,), (5500,)),
    "plain:vae_256_fp32": ((64,), (5500,)),
    "plain:diffusion_ema_fp32": ((32,), (15000,)),
    "plain:diffusion_bf16_amp_nhwc": ((64,), ()),
    "plain:diffusion_transformer_bf16_amp": ((32, 128), (11000,)),
    "plain:recommender_embedding_bags_fp32": ((4096,), ()),
    "plain:graph_convolution_fp32": ((128,), ()),
    "plain:radiance_field_fp16_amp": ((2048,), (7500,)),
    "plain:point_net_tf32": ((128,), ()),
    "plain:speech_convolutions_bf16_amp": ((8,), (7500,)),
    "plain:mlp_mixer_bf16": ((128,), ()),
    "plain:super_resolution_bf16_amp": ((16, 64), (7500,)),
    "plain:contrastive_momentum_encoder_fp16_amp": ((256,), (5500,)),
}

Row = dict[str, Any]
_FIRST_STEPS = 5
_FIRST_STEPS_FP16 = 30
"""A gradient scaler begins too high and skips updates until it has come down, so that an optimizer
may make its state late."""


def built(workload: str, batch_size: int) -> Callable[[], None]:
    """The step, made on the GPU."""
    import torch

    module, function = workload.split(":")
    with torch.device("cuda"):
        step: Callable[[], None] = getattr(importlib.import_module(module), function)(batch_size)
    return step


def peaks(workload: str, batch_size: int) -> Row:
    """Memory after five steps."""
    import torch

    torch.zeros(1, device="cuda")
    step = built(workload, batch_size)
    built_bytes = torch.cuda.memory_allocated()
    first: list[int] = []
    for _ in range(_FIRST_STEPS_FP16 if "fp16" in workload else _FIRST_STEPS):
        step()
        first.append(torch.cuda.max_memory_reserved())
    torch.cuda.synchronize()
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    return {
        "workload": workload,
        "batch_size": batch_size,
        "built_mib": round(built_bytes / MIB, 3),
        "peak_allocated_mib": round(torch.cuda.max_memory_allocated() / MIB, 3),
        "peak_reserved_mib": round(torch.cuda.max_memory_reserved() / MIB, 3),
        "first_step_reserved_mib": round(first[0] / MIB, 3),
        "steps": len(first),
        "beside_mib": round((total_bytes - free_bytes - torch.cuda.memory_reserved()) / MIB, 3),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def trains(workload: str, batch_size: int, cap_mib: int) -> bool:
    """Whether three steps run under a cap on what the allocator reserves."""
    import torch

    total_bytes = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(cap_mib * MIB / total_bytes)
    try:
        step = built(workload, batch_size)
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError:
        return False
    return True


def times(workload: str, batch_size: int) -> Row:
    """Wall time of a step: the median of three series."""
    import torch

    return {
        "workload": workload,
        "batch_size": batch_size,
        **timed(built(workload, batch_size), about_s=0.6),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def events(workload: str, batch_size: int) -> Row:
    """The allocator's own record of three steps, and what each operator of a fourth takes."""
    import torch

    torch.cuda.memory._record_memory_history(
        enabled="all", context=None, stacks="python", max_entries=500_000
    )
    step = built(workload, batch_size)
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    kept = ("alloc", "free_completed", "segment_alloc", "segment_free")
    record = [(kept.index(e["action"]), e["size"], e["addr"]) for e in trace if e["action"] in kept]
    addresses: dict[int, int] = {}
    compact = [(a, s, addresses.setdefault(p, len(addresses))) for a, s, p in record]
    return {
        "workload": workload,
        "batch_size": batch_size,
        "reserved_mib": torch.cuda.max_memory_reserved() / MIB,
        "allocated_mib": torch.cuda.max_memory_allocated() / MIB,
        "events": compact,
        "operators": _operators(step),
    }


def _operators(step: Callable[[], None]) -> list[Any]:
    """Each operator of one step: name, tensors, what it keeps and what it takes meanwhile."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_iter

    rows: list[Any] = []

    def described(values: object) -> list[Any]:
        return [
            [list(t.shape), str(t.dtype).removeprefix("torch."), list(t.stride())]
            if t.layout == torch.strided
            else [list(t.shape), "sparse", []]
            for t in tree_iter(values)
            if isinstance(t, torch.Tensor) and t.is_cuda
        ]

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: object, args: Any = (), kwargs: Any = None
        ) -> object:
            kwargs = kwargs or {}
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            out = func(*args, **kwargs)
            peak, after = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()
            if func.is_view and after == before:
                return out
            tensors = described((args, kwargs))
            if len(tensors) > 24:
                tensors = [len(tensors)]
            made = described(out)
            if len(made) > 24:
                made = [len(made)]
            rest = [a for a in args if isinstance(a, bool | int | float | list)]
            plain = json.dumps(rest, default=lambda _: None)[:200]
            rows.append([str(func), tensors, made, plain, after - before, peak - after])
            return out

    with Watch():
        step()
    return rows


def layers(kind: str, cases: list[dict[str, Any]]) -> list[Row]:
    """What each of some layers takes for itself, forward and backward."""
    import torch

    torch.backends.cudnn.allow_tf32 = kind == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(kind, torch.float32)
    rows = []
    for case in cases:
        try:
            taken = _recurrent(dtype, **case) if "mode" in case else _convolution(dtype, **case)
        except RuntimeError as error:
            print("FAILED", kind, case, str(error)[:80], flush=True)
            continue
        rows.append({"kind": kind, "case": json.dumps(case), **taken})
    return rows


def _taken(function: Callable[[], object]) -> tuple[float, float]:
    """MiB that are allocated on top while a function runs, and what it keeps."""
    import torch

    function()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kept = function()
    after, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    del kept
    return round((peak - after) / MIB, 3), round((after - before) / MIB, 3)


def _convolution(
    dtype: Any, n: int, c: int, k: int, h: int, size: int, stride: int = 1, last: bool = False
) -> Row:
    import torch

    form = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(n, c, h, h, device="cuda", dtype=dtype).to(memory_format=form)
    w = torch.randn(k, c, size, size, device="cuda", dtype=dtype).to(memory_format=form)
    run = torch.ops.aten.convolution.default
    rest = ([stride] * 2, [size // 2] * 2, [1, 1], False, [0, 0], 1)
    y = run(x, w, None, *rest)
    back = torch.ops.aten.convolution_backward.default
    masks = {"input": [True, False, False], "weight": [False, True, False]}
    taken = {
        name: _taken(partial(back, y, x, w, None, *rest, mask))[0] for name, mask in masks.items()
    }
    return {
        "forward_mib": _taken(lambda: run(x, w, None, *rest))[0],
        "input_mib": taken["input"],
        "weight_mib": taken["weight"],
        "kept_mib": "",
    }


def _recurrent(
    dtype: Any, mode: str, n: int, length: int, width: int, hidden: int, depth: int, both: bool
) -> Row:
    import torch

    classes = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}
    layer = classes[mode](width, hidden, depth, bidirectional=both, device="cuda", dtype=dtype)
    x = torch.randn(length, n, width, device="cuda", dtype=dtype, requires_grad=True)
    forward = _taken(lambda: layer(x))
    out = layer(x)[0]
    total = out.float().sum()
    backward = _taken(lambda: torch.autograd.grad(total, [x], retain_graph=True))
    return {
        "forward_mib": forward[0],
        "input_mib": backward[0],
        "weight_mib": "",
        "kept_mib": forward[1],
    }


def layer_cases() -> list[tuple[str, list[dict[str, Any]]]]:
    """Layers of many sizes, by precision."""
    plain = [
        {"n": n, "c": c, "k": k, "h": h, "size": 3}
        for n in (4, 16, 64, 256)
        for c, k in ((16, 16), (32, 64), (64, 64), (64, 128), (128, 128), (256, 128), (256, 256),
                     (256, 512), (512, 512), (3, 64), (64, 3))
        for h in (4, 8, 14, 16, 28, 32, 56, 64, 112, 128, 224)
        if n * max(c, k) * h * h <= 2**29
    ]  # fmt: skip
    other = [
        {"n": n, "c": c, "k": k, "h": h, "size": size, "stride": stride, "last": last}
        for n in (16, 128)
        for c, k in ((16, 64), (64, 64), (64, 256), (256, 64), (256, 512), (512, 512), (3, 64))
        for h in (7, 14, 28, 56, 112, 224)
        for size, stride in ((1, 1), (1, 2), (3, 1), (3, 2), (4, 2), (5, 1), (7, 2))
        for last in (False, True)
        if n * max(c, k) * h * h <= 2**29
    ]
    recurrent = [
        {"mode": mode, "n": n, "length": length, "width": width, "hidden": hidden,
         "depth": depth, "both": both}
        for mode in ("lstm", "gru", "rnn")
        for n, length in ((16, 50), (64, 128), (256, 64))
        for width, hidden in ((128, 128), (300, 512), (1024, 1024))
        for depth in (1, 2, 4)
        for both in (False, True)
    ]  # fmt: skip
    return [
        ("fp32", [*plain, *(case for case in other if case["size"] != 3), *recurrent]),
        ("tf32", [*other, *recurrent]),
        ("bf16", other),
        ("fp16", [*other, *recurrent]),
    ]


# Running each measurement in a process of its own


def _in_child(sender: Any, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    try:
        sender.send(("done", function(*arguments)))
    except BaseException as error:
        text = traceback.format_exception_only(error)[-1].strip()
        sender.send(("failed", f"{text[:300]}"))


Job = Generator[tuple[Any, ...], Any, Row | None]
"""A measurement: it yields a function with arguments, to run in a fork, and gets the result."""


def once(*call: Any) -> Job:
    """A measurement that takes one process."""
    row: Row | None = yield call
    return row


def largest(workload: str, cap_mib: int) -> Job:
    """The largest batch under a cap, by bisection to within 1/64."""
    low, high = 0, 2
    while (yield trains, workload, high, cap_mib):
        low, high = high, high * 4
    while high - low > max(low // 64, 1):
        middle = (low + high) // 2
        if (yield trains, workload, middle, cap_mib):
            low = middle
        else:
            high = middle
    return {"workload": workload, "cap_mib": cap_mib, "max_batch": low, "fails_at": high}


def several(jobs: Iterable[Job], workers: int) -> Iterator[Row]:
    """Results of jobs as they come, some at a time, each call in a fresh fork of this process."""
    waiting = list(jobs)
    running: dict[Any, tuple[Job, Any, tuple[Any, ...]]] = {}

    def start(job: Job, call: tuple[Any, ...]) -> None:
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_in_child, args=(sender, call[0], call[1:]))
        child.start()
        sender.close()
        running[receiver] = job, child, call

    while waiting or running:
        while waiting and len(running) < workers:
            job = waiting.pop(0)
            start(job, next(job))
        ready: list[Any] = list(multiprocessing.connection.wait(list(running)))
        for receiver in ready:
            job, child, call = running.pop(receiver)
            try:
                status, value = receiver.recv()
            except EOFError:
                status, value = "failed", "the process died"
            child.join()
            if status == "failed":
                print("FAILED", *call, value, flush=True)
                value = None
            try:
                start(job, job.send(value))
            except StopIteration as end:
                if end.value is not None:
                    yield end.value


def write(path: Path, rows: Iterable[Row]) -> None:
    """A table of the rows, written as they come."""
    count = 0
    with path.open("w", newline="") as file:
        for count, row in enumerate(rows, start=1):
            writer = csv.DictWriter(file, fieldnames=list(row), lineterminator="\n")
            if count == 1:
                writer.writeheader()
            writer.writerow(row)
            file.flush()
    print(f"{path.name}: {count} rows", flush=True)


def main(arguments: list[str]) -> None:
    """Take the measurements asked for."""
    folder, wanted = Path(arguments[0]), arguments[1:] or ["peaks"]
    only = [text.removeprefix("only=") for text in wanted if text.startswith("only=")]
    sys.path.insert(0, str(WORKLOADS))
    for module in ("vision", "language", "plain"):
        importlib.import_module(module)
    steps = {
        name: step for name, step in STEPS.items() if not only or any(text in name for text in only)
    }
    sizes = [(name, size) for name, (batches, _) in steps.items() for size in batches]
    if "peaks" in wanted:
        jobs = [once(peaks, *size) for size in sizes]
        write(folder / "h200_memory.csv", several(jobs, 1))
    if "events" in wanted:
        jobs = [once(events, name, batches[0]) for name, (batches, _) in steps.items()]
        found = list(several(jobs, 8))
        with gzip.open(folder / "events.json.gz", "wt") as file:
            json.dump(found, file, separators=(",", ":"))
        print(f"events: {len(found)} steps", flush=True)
    if "largest" in wanted:
        caps = [largest(name, cap) for name, (_, caps) in steps.items() for cap in caps]
        write(folder / "h200_largest_batches.csv", several(caps, 5))
    if "layers" in wanted:
        found_layers: Iterator[Any] = several([once(layers, *case) for case in layer_cases()], 4)
        write(folder / "h200_layers.csv", [row for rows in found_layers for row in rows])
    if "times" in wanted:
        write(folder / "h200_times.csv", several([once(times, *size) for size in sizes], 1))


if __name__ == "__main__":
    main(sys.argv[1:])
