"""What a training process says of itself at its first step."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any


def process_values(torch: Any) -> dict[str, Any]:
    """The process, its place among the ranks, and its versions."""
    return {
        "pid": os.getpid(),
        "argv": sys.argv,
        "local_rank": int(os.environ.get("LOCAL_RANK", 0) or 0),
        **_rank(torch),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


def _rank(torch: Any) -> dict[str, int]:
    """Which of how many: as torch has it, or as the launcher set it."""
    group = getattr(torch, "distributed", None)
    if group is not None and group.is_available() and group.is_initialized():
        return {"rank": int(group.get_rank()), "world_size": int(group.get_world_size())}
    return {
        "rank": int(os.environ.get("RANK", 0) or 0),
        "world_size": int(os.environ.get("WORLD_SIZE", 1) or 1),
    }
