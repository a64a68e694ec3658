"""Functions in a process of their own that has torch at once: a fork of one that imported it.

Importing torch takes longer than tracing most steps; all tests of a worker have it imported once.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "torch._dynamo"])  # the first optimizer would need both


def call_forked(function: str, *arguments: Any) -> Any:
    """What `module:function` returns there, as JSON; fails with what it printed where it dies."""
    with tempfile.TemporaryDirectory() as folder:
        result, log = Path(folder) / "result.json", Path(folder) / "log"
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        process = _CONTEXT.Process(
            target=_call, args=(function, arguments, environment, result, log)
        )
        process.start()
        process.join()
        process.close()
        assert result.exists(), log.read_text(errors="replace")[-3000:]
        return json.loads(result.read_text())


def _call(
    function: str, arguments: tuple[Any, ...], environment: dict[str, str], result: Path, log: Path
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    warnings.simplefilter("ignore")
    module, _, name = function.partition(":")
    with contextlib.redirect_stdout(sys.stderr):
        value = getattr(importlib.import_module(module), name)(*arguments)
    part = result.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.rename(result)
