"""Answers: their arithmetic, their sources, and that unknown is said."""

from __future__ import annotations

import pytest

from outlay.advise.questions import (
    IN_FAQ,
    TOPICS,
    QuestionContext,
    answer,
    answer_rows,
    faq_section,
    rank_correlation,
    sentences_of,
)
from outlay.errors import InputError, NotKnown

ABOUT = QuestionContext(today="2026-11-15")
WITHOUT_SOURCE = {"list"}


@pytest.mark.parametrize("topic", [*TOPICS, "list"])
def test_each_has_words_and_a_source(topic):
    found = answer(topic, ABOUT)
    assert found.topic == topic
    assert all(word.strip() for word in found.words)
    assert found.words
    assert found.sources or topic in WITHOUT_SOURCE
    if found.figures is not None:
        assert all(len(row) == len(found.figures.heads) for row in found.figures.rows)


def test_unknown_topics_name_the_nearest():
    with pytest.raises(NotKnown) as raised:
        answer("nvlnk", ABOUT)
    assert "nvlink" in raised.value.suggestions


@pytest.mark.parametrize("topic", IN_FAQ)
def test_topics_of_the_faq_are_named_with_their_section(topic):
    with pytest.raises(InputError) as raised:
        answer(topic, ABOUT)
    assert str(raised.value) == f"--ask {topic} is answered in {faq_section(topic)}."
    assert raised.value.exit_code == 2
    assert topic not in TOPICS


def test_where_no_source_was_found_it_says_unknown():
    assert sentences_of("no such topic") == ("Unknown: no source was found for it.",)


def test_rank_correlation():
    assert rank_correlation([1, 2, 3], [10, 20, 30]) == 1
    assert rank_correlation([1, 2, 3], [30, 20, 10]) == -1
    # Ranks 0 1 2 3 against 1 0 3 2: 1 - 6 x 4 / (4 x 15) = 0.6
    assert rank_correlation([1, 2, 3, 4], [2, 1, 4, 3]) == pytest.approx(0.6)


def figures(topic, **about):
    found = answer(topic, QuestionContext(today="2026-11-15", **about))
    return [dict(zip(found.figures.heads, row, strict=True)) for row in found.figures.rows]


def test_tflops_column_is_fp32_at_a_higher_clock():
    rows = {row["gpu"]: row for row in figures("tflops")}
    assert {row["nearest"] for row in rows.values()} == {"fp32"}
    # 44.1 / 35.58 x 1695 MHz = 2101 MHz
    assert rows["RTX 3090"]["clock"] == "2,101 of 1,695 MHz"
    assert rows["A100 40GB PCIe"]["clock"] == "1,410 of 1,410 MHz"


def test_tflops_worst_pair_is_the_a100_against_a_geforce():
    words = " ".join(answer("tflops", ABOUT).words)
    # The column puts the RTX 4090 at 103.7 / 19.5 = 5.3 times the A100.
    assert "RTX 4090 is 5.3x A100" in words


def test_upload_time():
    rows = {row["rate"]: row for row in figures("upload", size_bytes=900e9)}
    # 900e9 B / 2.5e6 B/s = 360,000 s = 4.2 days; at 100 Mbit/s 72,000 s = 20 h
    assert rows["assumed, likely"]["time"] == "4.2 days"
    assert rows["assumed, fast"]["time"] == "20.0 h"


def test_download_price():
    rows = {row["provider"]: row["usd"] for row in figures("download", size_bytes=1100e9)}
    # AWS: 1100 GB less 100 GB free x $0.09 = $90
    assert rows["Amazon Web Services"] == "$90.00"


def test_mixed_cards_are_slower_together_than_apart():
    rows = {row["machine"]: float(row["samples/s"].replace(",", "")) for row in figures("mixed")}
    pair = rows["RTX 3090 + RTX 2080 Ti"]
    assert pair < rows["RTX 3090"] + rows["RTX 2080 Ti"]
    assert pair <= 2 * rows["RTX 2080 Ti"]


def test_cpu_cores_by_their_flops():
    rows = {row["profile"]: row for row in figures("cpu")}
    # 32 cores x 96e9 x 0.5 = 1.536e12 FLOP/s; ResNet-50 takes 24.3e9 a sample: 63.2 a second
    assert float(rows["resnet50"]["cores/s"]) == pytest.approx(63.2, rel=0.005)
    assert rows["llama-1b"]["t4/s"] == "does not fit"


def test_nvlink_takes_time_off_and_the_published_figure_is_cited():
    for row in figures("nvlink"):
        assert 0 <= float(row["less time"].rstrip("%")) < 50
    assert any("101.9" in one.answer for one in answer_rows("nvlink"))


def test_shares_and_whole_gpus_are_all_offers():
    rows = figures("share")
    assert {float(row["share"]) for row in rows} <= {0.125, 0.25, 0.5}
