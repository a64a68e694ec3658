"""A script in the tracing process: run at one batch size after another, each in a fork of its own.

A script is run from its first line each time, and a process runs it once: what it leaves in Python
and torch is gone with the fork. The first run finds out what makes a training step and what the
batch size is; the others are told.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import sys
import tempfile
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay.errors import InputError, OutlayError, TraceFailed
from outlay.trace.allocator import peak_use_and_need
from outlay.trace.batch_scaling import history_of_capture, profile_of_captures
from outlay.trace.dependencies import WATCH
from outlay.trace.from_recording import RecordedStep, profile_of_step
from outlay.trace.target import (
    BATCH_MARK,
    BATCH_SIZE,
    Target,
    marked_batch_size,
    with_batch_mark,
)

if TYPE_CHECKING:
    from outlay.trace.capture import Capture
    from outlay.trace.capture.script import ScriptCapture, ScriptRun
    from outlay.trace.profile import Profile

_LONGEST_MESSAGE = 4096
_LAST_LINES = 3

Guard = Callable[[str], contextlib.AbstractContextManager[None]]
"""Turns failures of the user's code into errors that name their line; `when` is told."""


class ScriptTracer:
    """Runs one script at any batch size."""

    def __init__(
        self, target: Target, *, selected: float, guard: Guard, folder: str | None = None
    ) -> None:
        self._target = with_batch_mark(target)
        self._own_size = marked_batch_size(target)
        self._is_marked = any(BATCH_MARK in argument for argument in self._target.arguments)
        self._selected = selected
        self._guard = guard
        self._folder = folder
        """Where its files go, which is deleted even where this process is killed."""
        self._first: ScriptCapture | None = None
        self._needs: dict[str, Any] = {}
        """What the script turned out to need: fields of `ScriptRun`."""

    def first(self, batch_size: int | None = None) -> ScriptCapture:
        """The script at a batch size; at its own, without one."""
        if self._first is None:
            own = self._own_size or (BATCH_SIZE if self._is_marked else None)
            run = self._run(own)
            self._first = self._captured(run, "")
        size = self._first.batch_size if batch_size is None else batch_size
        return self._first if size == self._first.batch_size else self.at(size)

    def at(self, batch_size: int) -> ScriptCapture:
        """The script at another batch size than the first."""
        first = self.first()
        if not self.can_resize:
            raise InputError(
                f"{self._target.path.name} cannot be traced at a batch size of {batch_size}.",
                why=f"It runs at {first.batch_size}, by no option that is known, and no loader.",
                fix=f"Mark it in the script's arguments: --batch-size {BATCH_MARK}.",
            )
        run = replace(
            self._run(batch_size),
            resizes_loaders=not self._is_marked and first.option is None,
            window=first.window,
        )
        return self._captured(run, f"at batch size {batch_size}")

    @property
    def can_resize(self) -> bool:
        """Whether the script can be run at other batch sizes."""
        first = self.first()
        return self._is_marked or first.option is not None or first.has_loaders

    @property
    def batch_note(self) -> str:
        """What was taken for the batch size."""
        first = self.first()
        passes = round(first.capture.batch_size / first.batch_size)
        samples = f", {first.capture.batch_size} samples a step" if passes > 1 else ""
        if self._is_marked:
            return f"The batch size is {first.batch_size}, by the script's arguments{samples}."
        if first.option is not None:
            option = f"the script's option {first.option}"
            return f"The batch size is {first.batch_size}, {option}{samples}."
        if first.has_loaders:
            return f"The batch size is {first.batch_size}, that of the script's loader{samples}."
        return f"The batch size is taken to be {first.batch_size}: so many rows has its input."

    def _run(self, batch_size: int | None) -> ScriptRun:
        from outlay.trace.capture.script import ScriptRun

        arguments = tuple(
            argument.replace(BATCH_MARK, str(batch_size)) for argument in self._target.arguments
        )
        return ScriptRun(
            target=replace(self._target, arguments=arguments),
            selected=self._selected,
            folder="",
            batch_size=batch_size,
            **self._needs,
        )

    def _captured(self, run: ScriptRun, when: str) -> ScriptCapture:
        """What a run recorded; tried again where it ended early, or lacks a launcher."""
        from outlay.trace.capture.script import ScriptCapture, ScriptEnded

        result = self._in_fork(run, when)
        first_failure: OutlayError | None = None
        while isinstance(result, _Lack):
            first_failure = first_failure or result.failure
            self._needs.update(result.needs)
            run = replace(run, **self._needs)
            try:
                result = self._in_fork(run, when)
            except OutlayError as error:
                raise first_failure or error from None
        if isinstance(result, ScriptEnded) and result.window is not None:
            skip = result.turns - result.window.turns
            if skip > 0:
                result = self._in_fork(replace(run, window=result.window, skip=skip), when)
        if isinstance(result, ScriptCapture):
            return result
        assert isinstance(result, ScriptEnded)
        raise _ended(self._target, result)

    def _in_fork(self, run: ScriptRun, when: str) -> Any:
        """Run the script in a process of its own; its result, or its error raised here."""
        with tempfile.TemporaryDirectory(prefix="outlay-script-", dir=self._folder) as folder:
            path, written = Path(folder) / "result", Path(folder) / "written"
            written.mkdir()
            pid = os.fork()
            if pid == 0:
                _answer(replace(run, folder=str(written)), path, self._guard, when)
            _, status = os.waitpid(pid, 0)
            if not path.exists():
                raise _no_answer(self._target, os.waitstatus_to_exitcode(status))
            result, notes = pickle.loads(path.read_bytes())
            WATCH.add(notes)
        if isinstance(result, OutlayError):
            raise result
        return result


def _answer(run: ScriptRun, path: Path, guard: Guard, when: str) -> None:
    """Run the script, write what came of it, and end this process."""
    from outlay.trace.capture.script import capture_script
    from outlay.trace.libraries import stand_ins

    words = _LastWords()
    result: Any
    os.environ[stand_ins.ASSUMED_INSTALLED] = ",".join(run.packages)
    try:
        with contextlib.redirect_stderr(words), guard(when):
            try:
                result = capture_script(run)
            except SystemExit as error:
                raise _left(run.target, error, words.text) from None
            except Exception as error:
                lacks = _lacks(run, error)
                if lacks is None:
                    raise
                result = _Lack(needs={lacks: True})
    except OutlayError as error:
        result = type(error)(error.what, why=error.why, fix=error.fix)
        packages = stand_ins.wanted_after(f"{error.what} {error.why}")
        if packages:
            result = _Lack(needs={"packages": tuple(packages)}, failure=result)
    partial = path.with_suffix(".part")
    partial.write_bytes(pickle.dumps((result, WATCH.notes())))
    partial.replace(path)
    os._exit(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lack:
    """What a script failed without, and can be given: fields of `ScriptRun`."""

    needs: dict[str, Any]
    failure: OutlayError | None = None
    """How it failed, to be said where it fails again."""


def _lacks(run: ScriptRun, error: Exception) -> str | None:
    """What the script lacked, where it can be given: a field of `ScriptRun`."""
    from outlay.trace.capture.surroundings import RANK_VARIABLES

    lacks_rank = isinstance(error, KeyError) and RANK_VARIABLES.intersection(map(str, error.args))
    if lacks_rank and not run.as_rank:
        return "as_rank"
    frames = traceback.extract_tb(error.__traceback__)
    in_datasets = any(f"torchvision{os.sep}datasets" in frame.filename for frame in frames)
    return "without_data" if in_datasets and not run.without_data else None


class _LastWords(io.TextIOBase):
    """Standard error that keeps the last lines."""

    def __init__(self) -> None:
        self._through = sys.stderr
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)

    def write(self, text: str) -> int:
        self._lines.extend(line for line in text.splitlines() if line.strip())
        return self._through.write(text)

    def flush(self) -> None:
        self._through.flush()

    def fileno(self) -> int:
        return self._through.fileno()

    @property
    def text(self) -> str:
        """The last lines, in one."""
        return " ".join(" ".join(self._lines).split())


# Profiles


def script_profile(
    tracer: ScriptTracer, sizes: Sequence[int] | None, *, name: str, description: str, sample: str
) -> Profile:
    """The script's step at any batch size."""
    captures, notes = _captures_at(tracer, sizes)
    if len(captures) > 1:
        captures.sort(key=lambda capture: capture.batch_size)
        profile = profile_of_captures(captures, name=name, description=description, sample=sample)
    else:
        profile = profile_of_one(tracer.first(), name, description, sample)
    return replace(profile, notes=(*notes, *profile.notes))


def _captures_at(
    tracer: ScriptTracer, sizes: Sequence[int] | None
) -> tuple[list[Capture], list[str]]:
    """The captures at several batch sizes, as far as the script runs at them; and notes."""
    first = tracer.first()
    notes = [tracer.batch_note]
    if not tracer.can_resize:
        return [first.capture], notes
    captures, failed = [], []
    for size in sizes or sizes_around(first.batch_size):
        try:
            result = tracer.first(size)
        except OutlayError as error:
            failed.append(f"{size}: {error.why or error.what}")
            continue
        in_proportion = (
            size * first.capture.batch_size == result.capture.batch_size * first.batch_size
        )
        if in_proportion:
            captures.append(result.capture)
        else:
            failed.append(f"{size}: its step has {result.capture.batch_size} samples")
    if failed:
        notes.append(f"At other batch sizes the script could not be traced ({'; '.join(failed)}).")
    return captures or [first.capture], notes


def sizes_around(own: int) -> list[int]:
    """Batch sizes to trace at, where the script's own is one of them."""
    sizes = sorted({own // 4, own // 2, own, 2 * own, 4 * own})
    # One sample alone is refused by batch normalisation, and looks like another layout.
    return [size for size in sizes if size >= min(own, 2)][:4]


def profile_of_one(script: ScriptCapture, name: str, description: str, sample: str) -> Profile:
    """The step at any batch size from one: exact there, scaled at others."""
    capture = script.capture
    peak = capture.memory.peak()
    use = peak_use_and_need(history_of_capture(capture), capture.batch_size)
    counts = Counter(capture.ops)
    step = RecordedStep(
        name=name,
        batch_size=capture.batch_size,
        passes=max(round(capture.batch_size / script.batch_size), 1),
        pass_size=script.batch_size,
        ops=tuple(replace(op, count=times / capture.period) for op, times in counts.items()),
        parameter_shapes=script.parameter_shapes,
        parameters=capture.parameters,
        trainable_parameters=capture.trainable_parameters,
        issued_ops=len(capture.ops) / capture.period,
        parameter_bytes=peak.parameters,
        gradient_bytes=peak.gradients,
        optimizer_bytes=peak.optimizer_state,
        peak_allocated_bytes=peak.peak_bytes,
        peak_reserved_bytes=use.reserved_bytes,
        sample=sample,
        unknown_ops={op: count / capture.period for op, count in capture.unknown_ops.items()},
        notes=capture.notes,
    )
    profile = profile_of_step(step)
    return replace(
        profile,
        description=description,
        period=capture.period,
        compilable=capture.compilable,
    )


def script_captures(tracer: ScriptTracer, sizes: Sequence[int]) -> Iterator[Capture]:
    """The script's step with so many samples each, of all passes that make a step."""
    first = tracer.first()
    for samples in sizes:
        yield tracer.first(max(samples * first.batch_size // first.capture.batch_size, 1)).capture


# What to say of a script that did not train


def _ended(target: Target, ended: Any) -> TraceFailed:
    name = target.path.name
    if ended.turns:
        return TraceFailed(
            f"{name} ended after {ended.turns} optimizer steps.",
            why="The first steps make optimizer state: one more is needed to see a usual one.",
            fix="Let it make at least four steps: give it more by its own options.",
        )
    if ended.started:
        return TraceFailed(
            f"{name} ended without a training step of its own.",
            why=f"It started {ended.started[-1][:200]}, where the training may be.",
            fix="Trace the script that trains, not the one that starts it.",
        )
    return TraceFailed(
        f"{name} ended without a training step.",
        why="No optimizer of torch made a step in it."
        if ended.made_gpu_tensors
        else "It made no tensors on a GPU, and no optimizer of torch made a step in it.",
        fix="Give it the arguments with which it trains. If it does train, write its step as a "
        f"function (docs/tracing.md) and trace {name}:FUNCTION.",
    )


def _left(target: Target, error: SystemExit, words: str) -> TraceFailed:
    status = error.code if isinstance(error.code, int) else 1
    said = words or (error.code if isinstance(error.code, str) else "nothing")
    return TraceFailed(
        f"{target.path.name} left with status {status} before its first training step.",
        why=f"It said: {said[:_LONGEST_MESSAGE]}",
        fix="Give it the arguments that it needs after --, as you would run it.",
    )


def _no_answer(target: Target, status: int) -> TraceFailed:
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return TraceFailed(
        f"The process that ran {target.path.name} {how}, without a word.",
        why="A script may end its process itself, or the machine have too little memory.",
        fix="Check that the script trains by itself; data that it loads as a whole is real.",
    )
