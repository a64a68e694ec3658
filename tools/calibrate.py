"""Fit the kernels' numbers to measured operations, and say how well they do.

    python tools/calibrate.py [--data FILE ...] [--write]

Reads the operations that `measure_operations` took on an H200, fits the numbers of each family of
kernels (`data/kernel_passes.csv`, `data/kernel_products.csv`) by search along one at a time, and
prints the error of each family and of each measured step.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from measured import Measured, operations_of, steps_in
from outlay.facts import DATA, rows_of
from outlay.files import write_whole
from outlay.hardware.gpus import gpus
from outlay.plan.placement import calibration as bundled
from outlay.predict.calibration import Calibration, PassNumbers, ProductNumbers, calibration_of
from outlay.predict.kernel_time import (
    kernel_time_s,
    kernels_of,
    op_time_s,
    pass_time_s,
    product_family,
    product_time_s,
)
from outlay.predict.kernels import Kernel, Pass, Product
from outlay.predict.roofline import RooflineGpu, roofline_of

REFERENCE = "H200"
MEASURED_ON = "NVIDIA H200"
"""The reference GPU, as CUDA calls it."""
MEASUREMENTS = Path(__file__).parent.parent / "tests" / "reference" / "data"
FILES = (
    MEASUREMENTS / "h200_operations_2026-11-15.json.gz",
    MEASUREMENTS / "h200_sweeps_2026-11-15.json.gz",
)
MOST_ROWS = 700
"""Rows of a family that are looked at: the weightiest."""
FEW = 0.5
"""A family of n operations is known no better than this over the root of n."""
LEAST_RECURRENT = 0.3
"""Of a recurrent layer's time: what the products of the states, one after another, take at least.
"""
ATTENTION_PART = 0.88
"""Of the backward of attention: what its products take; the rest sums rows and joins parts."""
WIDTHS = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)
PULL = 0.002
"""How strongly a number is held to where the search began: keeps in place what no row speaks of."""

FIRST_PASS = PassNumbers(start_s=2e-6, share=0.7, cycles=0.3, unit_cycles=30.0, serial_cycles=1.0)
FIRST_PRODUCT = ProductNumbers(start_s=3e-6, share=0.6, narrow=5.0, lead=60.0, memory_share=0.7)
FIRST_SERIAL = {"upsample_linear": 400.0}
"""Where the search for a unit's own time begins: a thread goes through samples and channels."""
PASS_LIMITS = {"share": 1.6, "start_s": 3e-5, "cycles": 20.0, "unit_cycles": 8000.0}
PRODUCT_LIMITS = {"share": 1.1, "narrow": 60.0, "lead": 600.0, "memory_share": 1.0, "start_s": 2e-5}


@dataclass(frozen=True, slots=True)
class Sample:
    """A kernel with its measured time."""

    kernel: Kernel
    time_s: float
    weight: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """A family's numbers, and how well they give its times."""

    family: str
    numbers: PassNumbers | ProductNumbers
    operations: int
    total_s: float
    mean_error: float
    bias: float


# From operations to kernels with times of their own

_TURNS = ("nchwtonhwc", "nhwctonchw", "tensortransform")
_NOTHING = ("memset", "init_device")
_PRODUCTS = ("forward", "input", "weight", "product", "join")


def _class_of(name: str) -> str:
    """What part of a convolution a kernel is, by its name."""
    lower = name.lower()
    for part, words in {
        "turn": _TURNS,
        "none": _NOTHING,
        "element": ("elementwise_kernel",),
        "sum": ("reduce_kernel",),
        "weight": ("wgrad",),
        "input": ("dgrad",),
        "forward": ("fprop", "convolve"),
        "join": ("splitk", "reduce"),
    }.items():
        if any(word in lower for word in words):
            return part
    return "product"


def samples_of(measured: Iterable[Measured], machine: RooflineGpu) -> dict[str, list[Sample]]:
    """Kernels by family with their times: operators of one kernel, and parts of convolutions."""
    found: dict[str, list[Sample]] = {}

    def add(kernel: Kernel, time_s: float, one: Measured) -> None:
        if time_s <= 0:
            return
        family = kernel.family
        if isinstance(kernel, Product):
            family = product_family(kernel, machine.arithmetic(kernel.precision))
        ours = 0.4 if one.workload.startswith("sweeps") else 1.0
        weight = ours * math.sqrt(time_s * min(one.count, 20))
        found.setdefault(family, []).append(Sample(kernel, time_s, weight))

    for one in measured:
        kernels = kernels_of(one.op, tensor_cores=machine.arithmetic(one.op.precision) != "fp32")
        if len(kernels) == 1:
            add(kernels[0], one.time_s, one)
        elif one.op.kind == "rnn":
            states = next(kernel for kernel in kernels if kernel.family.startswith("recurrent"))
            rest = [kernel for kernel in kernels if kernel is not states]
            rest_s = sum(kernel_time_s(kernel, machine, bundled()) for kernel in rest)
            add(states, max(one.time_s - rest_s, LEAST_RECURRENT * one.time_s), one)
        elif one.op.kind == "attention":
            add(kernels[0], ATTENTION_PART * one.time_s, one)
        elif one.op.kind == "conv":
            for kernel, time_s in _parts(one, kernels):
                add(kernel, time_s, one)
    return found


def _parts(one: Measured, kernels: Sequence[Kernel]) -> list[tuple[Kernel, float]]:
    """The parts of a convolution whose kernels' names say which they are."""
    times: dict[str, float] = {}
    for name, us in one.kernels:
        part = _class_of(name)
        times[part] = times.get(part, 0.0) + us / 1e6
    result: list[tuple[Kernel, float]] = []
    turns = [kernel for kernel in kernels if kernel.family == "turn"]
    if turns and "turn" in times:
        together = Pass(
            family="turn",
            moved_bytes=sum(kernel.moved_bytes for kernel in turns),
            elements=sum(kernel.elements for kernel in turns if isinstance(kernel, Pass)),
            launches=len(turns),
        )
        result.append((together, times["turn"]))
    products = [kernel for kernel in kernels if isinstance(kernel, Product)]
    if len(products) == 1:
        colours = products[0].family.endswith("_colours")
        names = (*_PRODUCTS, "turn") if colours else _PRODUCTS
        result.append((products[0], sum(times.get(name, 0.0) for name in names)))
    elif len(products) == 2 and products[0].family.startswith("direct"):
        half = sum(times.get(name, 0.0) for name in (*_PRODUCTS, "turn")) / 2
        result += [(products[0], half), (products[1], half)]
    elif len(products) == 2 and "product" not in times:
        first, second = products
        name = "forward" if first.family.startswith("forward") else "input"
        result.append((first, times.get(name, 0.0)))
        result.append((second, times.get("weight", 0.0) + times.get("join", 0.0)))
    depthwise = [kernel for kernel in kernels if kernel.family.startswith("depthwise")]
    if len(depthwise) == 2:
        result += _depthwise(one, depthwise)
    elif depthwise:
        rest = ("element", "sum", "none")
        own = sum(us for name, us in one.kernels if _class_of(name) not in rest) / 1e6
        result.append((depthwise[0], own))
    return result


def _depthwise(one: Measured, kernels: Sequence[Kernel]) -> list[tuple[Kernel, float]]:
    weight = sum(us for name, us in one.kernels if "weight" in name or "wgrad" in name) / 1e6
    rest = ("reduce_kernel", "elementwise", "Memset", "weight", "wgrad")
    other = sum(us for name, us in one.kernels if not any(word in name for word in rest)) / 1e6
    return [(kernels[0], other), (kernels[1], weight)]


# The search


def fit(
    family: str, samples: list[Sample], time_of: Callable[[Kernel, object], float], first: object
) -> Fitted:
    """The numbers with the least weighted mean absolute log error."""
    rows = sorted(samples, key=lambda sample: -sample.weight)[:MOST_ROWS]
    weights = sum(sample.weight for sample in rows)
    limits = PASS_LIMITS if isinstance(first, PassNumbers) else PRODUCT_LIMITS
    names = [one.name for one in fields(first)]  # type: ignore[arg-type]

    def loss(numbers: object) -> float:
        error = sum(
            sample.weight * abs(math.log(time_of(sample.kernel, numbers) / sample.time_s))
            for sample in rows
        )
        pulls = (math.log(getattr(numbers, name) / getattr(first, name)) ** 2 for name in names)
        return error / weights + PULL * sum(pulls)

    numbers, best = first, loss(first)
    for width in WIDTHS:
        improved = True
        while improved:
            improved = False
            for name in names:
                for factor in (1 + width, 1 / (1 + width)):
                    value = min(getattr(numbers, name) * factor, limits.get(name, math.inf))
                    tried = replace(numbers, **{name: value})  # type: ignore[type-var]
                    error = loss(tried)
                    if error < best - 1e-5:
                        numbers, best, improved = tried, error, True
    predicted = [time_of(sample.kernel, numbers) for sample in rows]
    measured = [sample.time_s for sample in rows]
    errors = [
        sample.weight * min(abs(guess / sample.time_s - 1), 1.0)
        for guess, sample in zip(predicted, rows, strict=True)
    ]
    return Fitted(
        family=family,
        numbers=numbers,  # type: ignore[arg-type]
        operations=len(samples),
        total_s=sum(measured),
        mean_error=max(sum(errors) / weights, FEW / math.sqrt(len(samples))),
        bias=sum(predicted) / sum(measured),
    )


def fit_all(measured: Iterable[Measured], base: Calibration) -> tuple[list[Fitted], list[Fitted]]:
    """Every family of passes and of products."""
    machine = roofline_of(gpus()[REFERENCE], base)
    passes, products = [], []
    for family, samples in sorted(samples_of(measured, machine).items()):
        if isinstance(samples[0].kernel, Pass):

            def pass_time(kernel: Kernel, numbers: object, family: str = family) -> float:
                one = replace(base, passes={family: numbers})  # type: ignore[dict-item]
                return pass_time_s(kernel, machine, one)  # type: ignore[arg-type]

            first = replace(FIRST_PASS, serial_cycles=FIRST_SERIAL.get(family, 1.0))
            passes.append(fit(family, samples, pass_time, first))
        else:

            def product_time(kernel: Kernel, numbers: object, family: str = family) -> float:
                one = replace(base, products={family: numbers})  # type: ignore[dict-item]
                return product_time_s(kernel, machine, one)  # type: ignore[arg-type]

            products.append(fit(family, samples, product_time, FIRST_PRODUCT))
    return passes, products


def with_fitted(base: Calibration, passes: list[Fitted], products: list[Fitted]) -> Calibration:
    """The calibration with these numbers in the place of those it has of the same families."""
    of_passes = {one.family: one.numbers for one in passes if isinstance(one.numbers, PassNumbers)}
    return replace(
        base,
        passes={**base.passes, **of_passes},
        products={
            **base.products,
            **{o.family: o.numbers for o in products if isinstance(o.numbers, ProductNumbers)},
        },
        kernel_errors={
            **base.kernel_errors,
            **{one.family: one.mean_error for one in passes + products},
        },
    )


def others(passes: list[Fitted], base: Calibration) -> Fitted:
    """What nobody measured: taken as elements one by one, and doubted."""
    unlike = next(one for one in passes if one.family == "unlike")
    return replace(unlike, family="other", mean_error=base.number("kernel_error_unknown"))


def base_calibration() -> Calibration:
    """The single numbers."""
    return calibration_of(rows_of("calibration.csv"))


def main() -> None:
    """Fit, print, and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="*", default=FILES, help="measured operations")
    parser.add_argument("--write", action="store_true", help="replace the tables")
    arguments = parser.parse_args()
    base = base_calibration()
    for path in arguments.data:
        if not path.is_file():
            parser.error(f"there is no file {path}")
    try:
        steps = [step for path in arguments.data for step in steps_in(path)]
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"these are not measured operations (.json.gz): {error}")
    if not steps:
        parser.error("no measured step is in these files: tools/measure_operations.py writes them")
    if {step["gpu"] for step in steps} != {MEASURED_ON}:
        parser.error(f"the numbers are those of an {MEASURED_ON}; measure there")
    measured = {id(step): operations_of(step) for step in steps}
    passes, products = fit_all([one for ops in measured.values() for one in ops], base)
    if any(one.family == "unlike" for one in passes):
        passes.append(others(passes, base))
    for one in passes + products:
        numbers = {
            f.name: float(f"{getattr(one.numbers, f.name):.4g}") for f in fields(one.numbers)
        }
        print(
            f"{one.family:34} {one.operations:5} operations {one.total_s * 1e3:8.1f} ms, "
            f"error {one.mean_error:6.1%}, predicted/measured {one.bias:.2f}  {numbers}"
        )
    calibration = with_fitted(bundled(), passes, products)
    machine = roofline_of(gpus()[REFERENCE], calibration)
    for step in steps:
        ops = measured[id(step)]
        taken = sum(one.count * one.time_s for one in ops)
        guessed = sum(one.count * op_time_s(one.op, machine, calibration) for one in ops) - step[
            "kernels"
        ] * base.number("kernel_pause_s")
        print(
            f"{step['workload']:50} {step['batch_size']:5} {taken * 1e3:8.1f} ms "
            f"{guessed / taken - 1:+6.1%}"
        )
    if arguments.write:
        write("kernel_passes.csv", passes, arguments.data)
        write("kernel_products.csv", products, arguments.data)


def _date_in(name: str) -> str:
    """The day in a file's name, or today."""
    found = re.search(r"\d{4}-\d\d-\d\d", name)
    return found.group() if found else datetime.now(UTC).date().isoformat()


def write(name: str, fitted: list[Fitted], sources: Sequence[Path]) -> None:
    """Replace a table of fitted numbers; with other data, only the families it speaks of."""
    source = " and ".join(path.name for path in sources)
    rows = [
        {
            "family": one.family,
            **{f.name: f"{getattr(one.numbers, f.name):.4g}" for f in fields(one.numbers)},
            "operations": str(one.operations),
            "measured_s": f"{one.total_s:.4g}",
            "mean_error": f"{one.mean_error:.3f}",
            "source": source,
            "as_of": _date_in(sources[0].name),
        }
        for one in fitted
    ]
    whole = tuple(sources) == FILES
    kept = {} if whole else {row["family"]: row for row in rows_of(name)}
    kept |= {row["family"]: row for row in rows}
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(next(iter(kept.values()))), lineterminator="\n")
    writer.writeheader()
    writer.writerows(kept[family] for family in sorted(kept))
    write_whole(DATA / name, text.getvalue().encode())


if __name__ == "__main__":
    main()
