"""Scripts of tests, run in a Python of their own: libraries are heavy, and warn of much."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SEARCHED = os.pathsep.join([str(HERE.parents[1] / "src"), str(HERE)])
QUIET = {
    "PYTHONPATH": SEARCHED,
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MPLBACKEND": "agg",
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
}


def told_by(script, folder, **environment):
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
