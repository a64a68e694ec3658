"""The FAQ: a section for each topic that is answered there, with a source and a day."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from outlay.advise.questions import IN_FAQ, faq_section
from outlay.workload.file import read_workload

PAGE = Path(__file__).parents[2] / "docs" / "faq.md"
SECTIONS = dict(
    section.split("\n", 1) for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
)


@pytest.mark.parametrize("topic", IN_FAQ)
def test_each_question_has_its_section(topic):
    assert IN_FAQ[topic] in SECTIONS
    assert re.fullmatch(r"docs/faq\.md#[a-z0-9-]+", faq_section(topic))


@pytest.mark.parametrize("topic", sorted(set(IN_FAQ) - {"calculator"}))
def test_each_figure_has_a_source_and_a_day(topic):
    assert re.search(
        r"^Source:.*?\d{4}-\d{2}-\d{2}", SECTIONS[IN_FAQ[topic]], re.MULTILINE | re.DOTALL
    )


def test_distance_counts_round_trips():
    # 10,000 files x 47 ms = 470 s = 8 min; x 72 ms = 720 s = 12 min
    words = SECTIONS[IN_FAQ["distance"]]
    assert "8 min" in words
    assert "12 min" in words


def test_calculator_keys_are_keys_of_the_workload_file(tmp_path):
    written = re.findall(r"\| `([\w.]+ = [^`]+)` \|", SECTIONS[IN_FAQ["calculator"]])
    path = tmp_path / "outlay.toml"
    head = 'step.profile = "resnet50"\nlength.time = "6h"\nusage.horizon = "1 year"\n'
    path.write_text(head + "\n".join(written), encoding="utf-8")
    workload = read_workload(path)
    assert workload.usage.machines == 4
    assert workload.consider.tenancies == ("reserved",)
