"""The JSON schema of a measurement file and of a search for the largest batch, key by key."""

from __future__ import annotations

from typing import get_args

from outlay.measurement.file import MARK, PASSES, POWER_LIMIT_W, SAMPLES, SCHEMA, STEP_S, Range
from outlay.measurement.measurement import Ending, Holder, PauseKind, StoppedFor, Verdict
from outlay.probe.trial import Outcome
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

_AMOUNT: Schema = {"type": "number", "minimum": 0}
_LATER = ("is_compiled", "stopped_for")
"""Keys that older measurements of the same schema do not have."""
_NUMBERS: Schema = {"type": "object", "additionalProperties": TEXT}


def told(inner: Schema, words: str) -> Schema:
    """A part with what it means and its unit."""
    return {**inner, "description": words}


def number(words: str) -> Schema:
    """A number that is always there."""
    return told(NUMBER, words)


def maybe(words: str, inner: Schema = NUMBER) -> Schema:
    """A value, or null where it was not seen."""
    return told(or_null(inner), words)


def one_of(literal: object, words: str) -> Schema:
    """One of some words."""
    return told({"enum": list(get_args(literal))}, words)


def within(allowed: Range) -> Schema:
    """A number in a range outside of which files are refused."""
    ends = {"minimum": allowed.low, "exclusiveMinimum": allowed.above, "maximum": allowed.high}
    return {**NUMBER, **{name: end for name, end in ends.items() if end is not None}}


def measurement_schema() -> Schema:
    """`outlay probe --json`, the file that predict and plan take."""
    whole = record(**_head(), **_steps(), **_seen(), **_worked_out())
    return {**whole, "required": [key for key in whole["required"] if key not in _LATER]}


def _head() -> dict[str, Schema]:
    devices = {"enum": ["cuda", "rocm", "mps", "cpu"]}
    return {
        "schema": told({"const": SCHEMA}, "Which set of keys this is."),
        "kind": told({"const": MARK}, "What the file is."),
        "outlay": told(TEXT, "The version of outlay that wrote it."),
        "command": told(TEXTS, "What was run, word by word."),
        "measured_on": told(TEXT, "The day, YYYY-MM-DD."),
        "ending": one_of(Ending, "How the command ended; `stopped` is by outlay."),
        "status": told({"type": "integer"}, "The command's exit status; a signal is negative."),
        "machine": told(_machine(), "The machine it ran on."),
        "device": maybe("What the steps computed on; null where no step was seen.", devices),
        "versions": told(_NUMBERS, "Versions of python, torch, cuda and libraries, by name."),
        "stopped_for": maybe(
            "The limit at which outlay stopped it; null (or no such key) where it ended otherwise.",
            {"enum": list(get_args(StoppedFor))},
        ),
        "is_compiled": maybe(
            "Whether torch.compile compiled any function; null (or no such key) where not told.",
            FLAG,
        ),
        "ranks": told(COUNT, "Processes that trained on this machine."),
        "world_size": told(COUNT, "Processes that trained on all machines."),
    }


def _machine() -> Schema:
    gpu = record(
        name=told(TEXT, "As the driver has it."),
        memory_bytes=maybe("Its memory, in bytes.", _AMOUNT),
        driver=maybe("Version of the driver.", TEXT),
        power_limit_w=maybe("What it may draw, in watts.", within(POWER_LIMIT_W)),
        uuid=maybe("The driver's own identifier.", TEXT),
    )
    return record(
        system=told(TEXT, "The operating system."),
        cpu=maybe("Name of the CPU.", TEXT),
        cpu_threads=maybe("Threads of all CPUs.", COUNT),
        ram_bytes=maybe("Memory of the machine, in bytes.", _AMOUNT),
        gpus=told(list_of(gpu), "GPUs used, one for each process; empty for a run on the CPU."),
    )


def _steps() -> dict[str, Schema]:
    return {
        "step": maybe("Step time in the steady state, on the slowest process.", _step_time()),
        "steps_seen": told(COUNT, "Training steps in all, warm-up included."),
        "ran_out_of_memory": told(FLAG, "Whether torch could not get GPU memory once or more."),
        "samples_per_step": maybe(
            "Samples of one process in the usual training step.", within(SAMPLES)
        ),
        "mean_samples_per_step": maybe(
            "The mean of all steps that count, those cut short at an epoch's end included.",
            within(SAMPLES),
        ),
        "passes_per_step": maybe("Batches that an optimizer step is made of.", within(PASSES)),
        "optimizers": told(list_of(_optimizer()), "The script's optimizers, as first seen."),
        "start_up_s": maybe("From the start to the end of the first step, in seconds."),
        "warm_up_s": maybe("From there to the steady state, in seconds."),
        "elapsed_s": number("How long the command ran, in seconds."),
        "step_times": told(
            list_of(_pair(NUMBER, NUMBER)),
            "[when a step ended, in seconds after the start; its length in seconds], thinned.",
        ),
        "pauses": told(list_of(_pause()), "Time between steps that is no step, by kind."),
        "steps_per_epoch": maybe("Training steps between two starts of the DataLoader."),
        "total_steps": maybe("Training steps of the whole run, where the script tells.", COUNT),
    }


def _step_time() -> Schema:
    return record(
        mean_s=told(within(STEP_S), "Mean, in seconds."),
        low_s=told(_AMOUNT, "Lower end of the mean's 95 % confidence interval, in seconds."),
        high_s=told(_AMOUNT, "Upper end of it, in seconds."),
        median_s=told(within(STEP_S), "Half the steps were faster, in seconds."),
        p10_s=told(_AMOUNT, "A tenth was faster, in seconds."),
        p90_s=told(_AMOUNT, "A tenth was slower, in seconds."),
        steps=told({**COUNT, "minimum": 1}, "Steps counted for the mean."),
        warm_up_steps=told(COUNT, "Steps left out at the beginning."),
        is_steady=told(FLAG, "Whether a steady state was seen."),
        precision=number("Half the confidence interval over the mean, as a fraction."),
    )


def _optimizer() -> Schema:
    return record(
        name=told(TEXT, "Its class."),
        parameters=told(COUNT, "Parameters it updates."),
        per_step=number("How often it steps in a training step."),
        skipped=told(COUNT, "Steps that a gradient scaler left out."),
    )


def _pause() -> Schema:
    return record(
        kind=one_of(PauseKind, "What it was."),
        times=told(COUNT, "How often."),
        total_s=number("All of them together, in seconds."),
        spans=told(
            list_of(_pair(NUMBER, NUMBER)),
            "[when one began, in seconds after the start; its length in seconds], some of them.",
        ),
        every_steps=maybe(
            "Steps from one to the next, on average; null where fewer than two regular ones came."
        ),
    )


def _seen() -> dict[str, Schema]:
    return {
        "memory": told(_memory(), "Memory of the fullest GPU, and of the host."),
        "power": maybe("The GPUs together, in the steady state.", _power()),
        "gpu_fraction": maybe("Time in the steady state in which some kernel ran, 0 to 1."),
        "busy_s": maybe(
            "Kernels other than exchanges in a step, by a profile, in seconds.",
            {**NUMBER, "exclusiveMinimum": 0},
        ),
        "shares": told(_shares(), "Where the time of a step goes, as fractions that sum to 1."),
        "finding": maybe("What holds it back.", _finding()),
        "checks": told(list_of(_check()), "Is it training properly? One line a question."),
        "samples": told(list_of(_sample()), "What was read while it ran."),
        "losses": told(
            list_of(_pair(COUNT, or_null(NUMBER))),
            "[optimizer step, loss], some of them, of one backward pass as it was given (before a "
            "gradient scaler); null where that was no finite number.",
        ),
        "price_usd_per_hour": maybe("The price given for the machine, in US dollars an hour."),
        "profile": maybe("The operations of one step, as `outlay trace --save` writes.", _PROFILE),
        "notes": told(TEXTS, "What was not seen and why, and what was taken for granted."),
    }


_PROFILE: Schema = {"type": "object", "properties": {"kind": TEXT}, "required": ["schema", "kind"]}


def _memory() -> Schema:
    return record(
        allocated_bytes=maybe("The most that tensors took at once, in bytes.", _AMOUNT),
        reserved_bytes=maybe("The most that torch's allocator reserved, in bytes.", _AMOUNT),
        used_bytes=maybe("The most in use by the driver's count, in bytes.", _AMOUNT),
        limit_bytes=maybe("What the allocator may take, where it is limited, in bytes.", _AMOUNT),
        available_bytes=maybe("What the allocator could have taken in all, in bytes.", _AMOUNT),
        parameters_bytes=maybe("Parameters, in bytes.", _AMOUNT),
        gradients_bytes=maybe("Gradients, in bytes.", _AMOUNT),
        optimizer_bytes=maybe("State of the optimizers, in bytes.", _AMOUNT),
        frozen_bytes=maybe(
            "Parameters and buffers of modules that no optimizer updates, in bytes.", _AMOUNT
        ),
        host_bytes=maybe("Resident memory of the command and all it started, in bytes.", _AMOUNT),
    )


def _power() -> Schema:
    return record(
        mean_w=number("Mean, in watts."),
        max_w=number("Highest, in watts."),
        energy_per_step_j=number("Energy of a step, in joules."),
    )


def _shares() -> Schema:
    return record(
        compute=maybe("Computing, as a fraction.", _AMOUNT),
        network=maybe("Exchange between GPUs that nothing hides, as a fraction.", _AMOUNT),
        input=maybe("Waiting for the next batch, as a fraction.", _AMOUNT),
        host=maybe("The GPU waits for Python; on a CPU, asleep. As a fraction.", _AMOUNT),
    )


def _finding() -> Schema:
    return record(
        holder=one_of(Holder, "What a step waits for most."),
        evidence=told(TEXTS, "Why we think so."),
        cures=told(TEXTS, "What usually helps."),
    )


def _check() -> Schema:
    return record(
        name=told(TEXT, "What is asked."),
        verdict=one_of(Verdict, "The answer."),
        why=told(TEXT, "By what."),
    )


def _sample() -> Schema:
    return record(
        time_s=number("Seconds after the start."),
        gpu_fraction=maybe("Time in which some kernel ran, 0 to 1, a mean over the GPUs."),
        gpu_memory_bytes=maybe("In use on the fullest GPU, in bytes."),
        power_w=maybe("Of all GPUs together, in watts."),
        clock_fraction=maybe("The slowest GPU's clock over its maximum."),
        temperature_c=maybe("Of the hottest GPU, in degrees Celsius."),
        slowed_by=told(TEXTS, "Why the driver holds a clock down: power, heat, hardware."),
        cpu_fraction=maybe("Busy CPU threads of the machine, 0 to 1."),
        process_cpus=maybe("CPU threads that the command and all it started kept busy."),
        process_bytes=maybe("Resident memory of those, in bytes."),
        swapped_bytes_per_s=maybe("Swapped in and out, in bytes a second."),
        disk_fraction=maybe("Time in which the busiest disk had work, 0 to 1."),
        read_bytes_per_s=maybe("Read from disks by the machine, in bytes a second."),
    )


def _worked_out() -> dict[str, Schema]:
    return {
        "batch_size": maybe("Samples of one pass on a GPU; worked out.", COUNT),
        "samples_per_s": maybe("Of all processes together, pauses apart; worked out."),
        "usd": maybe("What the probe cost, in US dollars; worked out."),
    }


def _pair(first: Schema, second: Schema) -> Schema:
    return {"type": "array", "prefixItems": [first, second], "items": False, "minItems": 2}


def batches_schema(schema: int) -> Schema:
    """`outlay probe --find-batch --json`."""
    return record(
        schema=told({"const": schema}, "Which set of keys this is."),
        trials=told(list_of(_trial()), "In the order they were run."),
        largest=maybe("The largest batch that ran.", COUNT),
        recommended=maybe("What to train with, a margin below it.", COUNT),
        margin_fraction=number("Of the limit, kept free at that size."),
        fails_at=maybe("The smallest batch that ran out of memory.", COUNT),
        limit_bytes=maybe("What the allocator could take, in bytes."),
        is_interrupted=told(FLAG, "Whether the user ended it before its answer."),
        notes=told(TEXTS, "What to know."),
        knee=maybe("The smallest batch with 95 % or more of the best samples/s.", COUNT),
        elapsed_s=number("All trials together, in seconds."),
        answer=told(TEXTS, "The same in sentences."),
    )


def _trial() -> Schema:
    return record(
        batch_size=told(COUNT, "What was tried."),
        outcome=one_of(Outcome, "What came of it."),
        why=told(TEXT, "What the script said where it did not run, what is odd where it did."),
        peak_allocated_bytes=maybe("The most that tensors took, on the fullest GPU, in bytes."),
        peak_reserved_bytes=maybe("The most that torch's allocator reserved there, in bytes."),
        step_mean_s=maybe("Mean step time, in seconds."),
        samples_per_s=maybe("Of all processes together."),
        elapsed_s=number("What the trial took, in seconds, start-up included."),
    )
