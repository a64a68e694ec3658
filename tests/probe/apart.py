"""Scripts of tests, run in a Python of their own: libraries are heavy, and warn of much."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SEARCHED = os.pathsep.join(map(str, (HERE.parents[1] / "src", HERE, HERE / "stand_in")))
QUIET = {
    "PYTHONPATH": SEARCHED,
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MPLBACKEND": "agg",
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
}


def documented(word):
    """The example of docs/probe.md that has a word in it."""
    text = (HERE.parents[1] / "docs" / "probe.md").read_text(encoding="utf-8")
    (example,) = [block for block in text.split("```python\n")[1:] if word in block.split("```")[0]]
    return example.split("```")[0]


def run_script(script, folder, **environment):
    """What a script wrote as JSON to the file it is given as its only argument, and its output."""
    folder.mkdir(exist_ok=True)
    (folder / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py", "told.json"],
        cwd=folder,
        env={**os.environ, **QUIET, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "told.json").read_text()), done.stdout
