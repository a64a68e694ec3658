"""`outlay bench` as a user types it: what would be tried, and what is refused before any money."""

from __future__ import annotations

import pytest

WORKLOAD = """\
name = "bench"
[step]
profile = "resnet50"
[length]
samples = 1_000_000
[consider]
bundled = false
[[offer]]
provider = "a"
gpu = "RTX 3090"
price_per_hour = 1.0
[[offer]]
provider = "b"
gpu = "A100-80GB"
price_per_hour = 3.0
"""
RUN = '[run]\ncommand = "python train.py {batch}"\n[run.slurm]\npartition = "gpu"\n'


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "outlay.toml"
    path.write_text(WORKLOAD + RUN)
    return path


def test_a_dry_run_shows_what_may_be_spent(outlay, file):
    ended = outlay("bench", file, "--on", "RTX 3090,A100-80GB:1", "--cap-usd", 2, "--dry-run")
    assert ended.code == 0
    # $2 at $4 an hour together are half an hour: $0.50 and $1.50.
    assert "30 min  $0.50" in ended.out
    assert "30 min  $1.50" in ended.out
    assert outlay("runs").out.startswith("No run was launched yet")


def test_nobody_is_asked_without_a_terminal(outlay, file):
    ended = outlay("bench", file, "--on", "RTX 3090", "--cap-usd", 2)
    assert ended.code == 2
    assert "there is nobody to ask" in ended.err
    assert outlay("runs").out.startswith("No run was launched yet")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--on", "RTX 3091"), "No GPU is known as 'RTX 3091'"),
        (("--on", ""), "--on names no GPU"),
        (("--on", "RTX 3090:x"), "is no GPU with a number"),
        (("--on", "T4:1"), "None of these machines can be tried"),
        (("--on", "RTX 3090", "--steps", "5", "--for", "5m"), "exclude each other"),
        (("--on", "RTX 3090", "--for", "five"), "five"),
    ],
)
def test_what_is_refused(outlay, file, options, words):
    ended = outlay("bench", file, *options, "--yes")
    assert ended.code == 2
    assert words in ended.err


def test_a_file_without_a_run_table(outlay, tmp_path):
    path = tmp_path / "outlay.toml"
    path.write_text(WORKLOAD)
    ended = outlay("bench", path, "--on", "RTX 3090", "--yes")
    assert ended.code == 2
    assert "There is no [run] table." in ended.err


def test_no_trial_pays_for_itself_where_one_machine_is_there(outlay, tmp_path):
    path = tmp_path / "outlay.toml"
    text = WORKLOAD.replace('gpu = "A100-80GB"', 'gpu = "RTX 3090"')
    path.write_text(text + RUN)
    ended = outlay("bench", path, "--on", "worth-it", "--json", "--max-options", 1)
    assert ended.code == 0
    assert ended.document["trials"] == []
    assert ended.document["notes"] == ["No trial pays for itself."]
    assert ended.document["trial_cost_usd"] == 0
    assert ended.document["plan"]["chosen"]["provider"] == "a"
