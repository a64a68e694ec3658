"""What the output of a command that ended says of its end: out of memory, killed, or otherwise."""

from __future__ import annotations

import re

_OUT_OF_MEMORY = re.compile(
    # "running out of memory" is advice, not news.
    r"(?<!running )out of memory|OutOfMemoryError|CUDNN_STATUS_ALLOC_FAILED"
    r"|CUBLAS_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory|RESOURCE_EXHAUSTED"
    r"|DefaultCPUAllocator|can't allocate memory|MemoryError|bad_alloc|NCCL.*memory",
    re.IGNORECASE,
)
_EXCEPTION = re.compile(
    r"^\s*(\[\w+\]:\s*)*([\w.]+(Error|Exception|Failure|Interrupt)\b|what\(\):)"
)
_KILLED = re.compile(
    r"exitcode\s*:\s*-9\b|Signal 9 \(SIGKILL\)|died with <Signals\.SIGKILL"
    r"|killed by signal:? (Killed|9\b)|terminated with signal SIGKILL|return code = -9\b"
)
_ROOT_CAUSE = "Root Cause"
"""Where a launcher says which process failed first; it ends the others itself."""
_OF_LAUNCHERS = ("ChildFailedError", "CalledProcessError", "ProcessExitedException")
"""What says only that a process below failed."""
_LONGEST = 300


def out_of_memory_line(output: bytes) -> str | None:
    """The last line that says memory ran out; None where none does.

    Where exceptions were printed, only they count: what else speaks of memory is advice.
    """
    lines = _lines(output)
    exceptions = [line for line in lines if _EXCEPTION.search(line)]
    found = [line for line in exceptions or lines if _OUT_OF_MEMORY.search(line)]
    return found[-1] if found else None


def killed_line(output: bytes) -> str | None:
    """What a launcher or parent says of a process of its own that was killed; None: nothing."""
    text = "\n".join(_lines(output))
    _, mark, cause = text.rpartition(_ROOT_CAUSE)
    found = [line for line in (cause if mark else text).split("\n") if _KILLED.search(line)]
    return found[-1] if found else None


def last_line(output: bytes) -> str | None:
    """What it said at last: an exception, not one that only passes on a failure, or any words."""
    lines = [line for line in _lines(output) if any(letter.isalpha() for letter in line)]
    exceptions = [line for line in lines if _EXCEPTION.search(line)]
    own = [line for line in exceptions if not any(name in line for name in _OF_LAUNCHERS)]
    said = own or exceptions or lines
    return said[-1] if said else None


def _lines(output: bytes) -> list[str]:
    text = output.decode(errors="replace")
    return [line.strip()[:_LONGEST] for line in text.splitlines() if line.strip()]
