"""Measure what each operation of the reference steps takes on the GPU at hand.

    python tools/measure_operations.py OUT_FOLDER [steps] [sweeps] [hosts] [only=TEXT] [from=FOLDER]

    steps    operations.json.gz: of every reference step, each operation with its tensors, its
             kernels and their time; steps.csv: the step's wall time, kernel time, kernels
    sweeps   sweeps.json.gz: the same of single operations over many shapes
    hosts    hosts.csv: what the host needs to issue each step, at a batch where nothing waits
             (`outlay host` says how fast the host is)

A step runs twice under the profiler: once with every operator marked, which says whose kernel is
whose, and once bare, which gives the kernels' times as they are in training. A kernel's time is
what it adds to the end of the one before: Hopper starts kernels before their forerunners end.
`from` names another folder of steps: every function of its modules, with batch sizes in sizes.json.
"""

from __future__ import annotations

import gzip
import importlib
import json
import multiprocessing
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from measure_memory import STEPS, WORKLOADS, Row, built, once, several, write
from measure_steps import timed

LOCK = multiprocessing.get_context("fork").Lock()
"""One measurement at a time on the GPU; reading the profiler's files goes on beside it."""

_MARK = "outlay#"
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LONG_LIST = 16


def described(values: object) -> list[Any]:
    """Shape, dtype and strides of the tensors among the values; long lists in one entry."""
    import torch
    from torch.utils._pytree import tree_iter

    tensors = [t for t in tree_iter(values) if isinstance(t, torch.Tensor)]
    if len(tensors) > _LONG_LIST:
        total = sum(t.numel() for t in tensors)
        dtypes = sorted({str(t.dtype).removeprefix("torch.") for t in tensors})
        return [["list", len(tensors), total, dtypes]]
    return [
        [list(t.shape), str(t.dtype).removeprefix("torch."), list(t.stride())]
        if t.layout == torch.strided
        else [list(t.shape), "sparse", []]
        for t in tensors
    ]


def marked(step: Callable[[], None]) -> tuple[list[Any], Path]:
    """One profiled step with every operator marked: the operators, and the profiler's file."""
    import torch
    from torch.profiler import ProfilerActivity, profile
    from torch.utils._python_dispatch import TorchDispatchMode

    operators: list[Any] = []

    class Mark(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: object, args: Any = (), kwargs: Any = None
        ) -> object:
            kwargs = kwargs or {}
            row = [str(func), described((args, kwargs)), []]
            rest = [a for a in args if isinstance(a, bool | int | float | list)]
            row.append(json.dumps(rest, default=lambda _: None)[:160])
            operators.append(row)
            with torch.profiler.record_function(f"{_MARK}{len(operators) - 1}"):
                out = func(*args, **kwargs)
            row[2] = described(out)
            return out

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        with Mark():
            step()
        torch.cuda.synchronize()
    return operators, exported(prof)


def bare(step: Callable[[], None], steps: int) -> Path:
    """The profiler's file of some steps in which only kernels are watched."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    return exported(prof)


def exported(prof: Any) -> Path:
    """The profiler's record in a file."""
    path = Path(tempfile.mkdtemp()) / "trace.json"
    prof.export_chrome_trace(str(path))
    return path


def events_of(path: Path) -> list[Any]:
    """What such a file holds; the file goes."""
    text = path.read_text(errors="replace")
    path.unlink()
    return [e for e in json.loads(text)["traceEvents"] if e.get("ph") == "X"]


def kernels_of(events: list[Any]) -> list[tuple[str, float, float, Any, Any]]:
    """Name, start, end (microseconds), correlation and details of what ran, in order."""
    found = [
        (e["name"], e["ts"], e["ts"] + e["dur"], e["args"].get("correlation"), e["args"])
        for e in events
        if e.get("cat") in _DEVICE
    ]
    return sorted(found, key=lambda kernel: kernel[1])


def added(kernels: list[Any]) -> list[tuple[float, float]]:
    """What each kernel adds to the end of those before it, and the pause before it."""
    result, end = [], kernels[0][1] if kernels else 0.0
    for kernel in kernels:
        pause = max(kernel[1] - end, 0.0)
        result.append((max(kernel[2] - max(end, kernel[1]), 0.0), pause))
        end = max(end, kernel[2])
    return result


def owners(events: list[Any]) -> dict[Any, int]:
    """The operator whose call launched each kernel, by correlation."""
    marks: dict[Any, list[tuple[float, float, int]]] = {}
    for e in events:
        if e["name"].startswith(_MARK) and e.get("cat") == "user_annotation":
            number = int(e["name"].removeprefix(_MARK))
            marks.setdefault(e["tid"], []).append((e["ts"], e["ts"] + e["dur"], number))
    starts = {}
    for tid, found in marks.items():
        found.sort()
        starts[tid] = [mark[0] for mark in found]
    result = {}
    for e in events:
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and e["tid"] in marks:
            at = bisect_right(starts[e["tid"]], e["ts"]) - 1
            if at >= 0 and e["ts"] <= marks[e["tid"]][at][1]:
                result[e["args"].get("correlation")] = marks[e["tid"]][at][2]
    return result


def short(name: str, args: Any) -> str:
    """A kernel's name with its grid and block."""
    grid, block = args.get("grid"), args.get("block")
    where = f" {grid}{block}".replace(" ", "") if grid else ""
    return name[:110] + where


def assigned(operators: list[Any], first: list[Any], second: list[Any], steps: int) -> list[Row]:
    """Each operation with its kernels, and what they take in the bare steps where these line up."""
    kernels = kernels_of(first)
    owner = owners(first)
    bare_kernels = kernels_of(second)
    names = [kernel[0] for kernel in kernels]
    lined_up = [kernel[0] for kernel in bare_kernels] == names * steps
    added_us = [one[0] for one in added(kernels)]
    marked_us = list(added_us)
    if lined_up:
        of_each = [one[0] for one in added(bare_kernels)]
        added_us = [sum(of_each[i :: len(names)]) / steps for i in range(len(names))]
    rows: dict[str, Row] = {}
    of_operator: dict[int, list[int]] = {}
    for i, kernel in enumerate(kernels):
        of_operator.setdefault(owner.get(kernel[3], -1), []).append(i)
    for number, indices in of_operator.items():
        operator = operators[number] if number >= 0 else ["none", [], [], "[]"]
        key = json.dumps(operator)
        own_us = sum(added_us[i] for i in indices)
        row = rows.setdefault(
            key,
            {
                "op": operator,
                "count": 0,
                "us": 0.0,
                "marked_us": 0.0,
                "kernels": [[short(kernels[i][0], kernels[i][4]), 0.0] for i in indices],
            },
        )
        row["count"] += 1
        row["us"] += own_us
        row["marked_us"] += sum(marked_us[i] for i in indices)
        for place, i in zip(row["kernels"], indices, strict=False):
            place[1] += added_us[i]
    for row in rows.values():
        for kernel in row["kernels"]:
            kernel[1] = round(kernel[1] / row["count"], 2)
        row["us"] = round(row["us"] / row["count"], 3)
        row["marked_us"] = round(row["marked_us"] / row["count"], 3)
    return [{"lined_up": lined_up}, *rows.values()]


def measured(workload: str, batch_size: int, *, wall: bool = True) -> Row:
    """The operations of one step, and the step's times."""
    import torch

    steps = 2
    with LOCK:
        step = built(workload, batch_size)
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        times = timed(step, about_s=0.3) if wall else {}
        second = bare(step, steps)
        operators, first = marked(step)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    del step
    first_events, second_events = events_of(first), events_of(second)
    head, *rows = assigned(operators, first_events, second_events, steps)
    kernels = kernels_of(second_events)
    busy = added(kernels)
    return {
        "workload": workload,
        "batch_size": batch_size,
        **times,
        **head,
        "kernels": len(kernels) / steps,
        "kernel_ms": round(sum(k[2] - k[1] for k in kernels) / steps / 1e3, 3),
        "busy_ms": round(sum(one[0] for one in busy) / steps / 1e3, 3),
        "pause_ms": round(sum(one[1] for one in busy) / steps / 1e3, 3),
        "pauses_us": [round(one[1], 1) for one in busy][: len(kernels) // steps][:400],
        "operators": len(operators),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "rows": rows,
    }


def issued(workload: str, batch_size: int) -> Row:
    """What the host needs to issue a step from an empty queue: the median of nine."""
    import torch

    with LOCK:
        step = built(workload, batch_size)
        for _ in range(3):
            step()
        taken = []
        for _ in range(9):
            torch.cuda.synchronize()
            started = time.perf_counter()
            step()
            taken.append(time.perf_counter() - started)
        torch.cuda.synchronize()
    taken.sort()
    return {
        "workload": workload,
        "batch_size": batch_size,
        "issue_ms": round(taken[4] * 1e3, 3),
        "issue_min_ms": round(taken[0] * 1e3, 3),
    }


def dump(path: Path, jobs: list[Any], workers: int) -> None:
    """The rows of some measurements, written as they come."""
    count = 0
    with gzip.open(path, "wt") as file:
        for row in several(jobs, workers):
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
            file.flush()
            count += 1
            brief = {k: v for k, v in row.items() if k not in ("rows", "pauses_us", "gpu", "torch")}
            print(brief, flush=True)
    print(f"{path.name}: {count} steps", flush=True)


def main(arguments: list[str]) -> None:
    """Take the measurements asked for."""
    folder, wanted = Path(arguments[0]), arguments[1:]
    chosen = {key: value for key, _, value in (text.partition("=") for text in wanted) if value}
    steps = {name: batches for name, (batches, _) in STEPS.items()}
    source = WORKLOADS
    if "from" in chosen:
        source = Path(chosen["from"])
        steps = {k: tuple(v) for k, v in json.loads((source / "sizes.json").read_text()).items()}
    sys.path.insert(0, str(source))
    if wanted != ["sweeps"]:
        for module in sorted({name.split(":")[0] for name in steps}):
            importlib.import_module(module)
    steps = {k: v for k, v in steps.items() if chosen.get("only", "") in k}
    if "hosts" in wanted:
        small = [once(issued, name, max(min(batches) // 8, 1)) for name, batches in steps.items()]
        write(folder / "hosts.csv", several(small, 1))
    if "steps" in wanted:
        sizes = [(name, size) for name, batches in steps.items() for size in batches]
        if "largest" in wanted:
            sizes = [(name, max(batches)) for name, batches in steps.items()]
        dump(folder / "operations.json.gz", [once(measured, *size) for size in sizes], 4)
    if "sweeps" in wanted:
        from sweeps import SWEEPS

        names = [f"sweeps:{name}" for name in SWEEPS if chosen.get("only", "") in name]
        jobs = [once(partial(measured, wall=False), name, 1) for name in names]
        dump(folder / "sweeps.json.gz", jobs, 6)


if __name__ == "__main__":
    main(sys.argv[1:])
