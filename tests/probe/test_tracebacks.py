"""The errors of a probed script look as they do without a probe."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.probe.probed import PYTHON, SCRIPTS, environment, probe

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(sys.platform == "win32", reason="its terminals are others"),
]


def test_a_failing_script_prints_what_it_prints_without_a_probe(tmp_path):
    """In its loader and a worker of it, in backward, in the optimizer, in a thread, chained, ..."""
    command = [PYTHON, str(SCRIPTS / "fails.py")]
    plain = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    probed = probe(tmp_path, "--", *command)
    assert plain.stderr.count("Traceback (most recent call last):") > 30
    assert probed.err[: len(plain.stderr)] == plain.stderr
    assert (plain.returncode, probed.code) == (1, 1)
    # One of its steps was recorded meanwhile.
    assert probed.measurement.profile is not None
