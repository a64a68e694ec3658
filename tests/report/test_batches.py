"""The search for the largest batch, printed and as JSON."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace

import jsonschema
import pytest
from tests.measured import a_search, a_trial

from outlay.files import to_json
from outlay.probe.find_batch import BatchSearch
from outlay.probe.trial import Trial
from outlay.report.batches import answer, batches_document, print_batches
from outlay.report.console import Page
from outlay.report.documents import dumps
from outlay.report.schemas import schema


def printed(search, width):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        print_batches(Page(width), search)
    return out.getvalue()


def test_answer_names_the_batch_to_take_the_limit_and_the_knee():
    take, limit, knee, took = answer(a_search())
    assert take == (
        "Take batch 44, with 5 % of the memory kept free; the largest that ran is 48. It was not "
        "tried itself."
    )
    ran = a_search(trials=(a_trial(44, 195.0, 16.0), *a_search().trials))
    assert answer(ran)[0].endswith("the largest that ran is 48.")
    assert limit == "Batch 64 runs out of memory (it may take 24.0 GiB)."
    assert knee.startswith("From batch 32 on, more is hardly faster")
    assert took == "It took 4 trials in 1:50 min."


@pytest.mark.parametrize("width", [60, 80, 120])
def test_trials_are_listed_by_size_with_their_remarks(width):
    lines = printed(a_search(), width).splitlines()
    assert max(map(len, lines)) <= width
    rows = [line.split() for line in lines if line.strip()[:2] in ("16", "32", "48", "64")]
    assert [row[0] for row in rows] == ["16", "32", "48", "64"]
    assert rows[1][-1] == "knee"
    assert rows[2][-1] == "largest"
    assert rows[3][1:4] == ["out", "of", "memory"]


def test_growing_throughput_has_no_knee_to_speak_of():
    growing = a_search(trials=(a_trial(8, 100.0, 1.0), a_trial(16, 200.0, 2.0)), largest=16)
    assert any("still grows" in line for line in answer(growing))


def test_where_none_ran_out_of_memory_larger_ones_may_fit():
    small = BatchSearch(trials=(a_trial(8, 100.0, 1.0),), largest=8)
    assert answer(small) == [
        "The largest batch that ran is 8, without a margin.",
        "None ran out of memory: larger ones may fit as well.",
        "It took 1 trial in 30 s.",
    ]


def test_a_larger_one_that_failed_otherwise_is_not_said_to_fit():
    failed = Trial(batch_size=1024, outcome="failed", why="ValueError: too large", elapsed_s=9.0)
    lower = Trial(batch_size=4, outcome="failed", why="ValueError: too small", elapsed_s=9.0)
    search = BatchSearch(trials=(a_trial(512, 100.0, 1.0), lower, failed), largest=512)
    assert answer(search)[1] == (
        "None ran out of memory, but batch 1,024 failed for another reason: whether larger ones "
        "fit is not known."
    )
    small = BatchSearch(trials=(a_trial(512, 100.0, 1.0), lower), largest=512)
    assert replace(search, is_interrupted=True).fails_otherwise_at is None
    assert answer(small)[1].endswith("larger ones may fit as well.")


def test_a_larger_one_that_the_script_did_not_take_did_not_fail():
    other = Trial(batch_size=1024, outcome="not taken", why="its passes had 500 samples")
    search = BatchSearch(trials=(a_trial(512, 100.0, 1.0), other), largest=512)
    assert answer(search)[1] == (
        "None ran out of memory, but the script did not take batch 1,024: whether larger ones fit "
        "is not known."
    )
    assert "its passes had 500 samples" in printed(search, 120)


def test_a_size_that_fits_may_have_a_remark():
    odd = replace(a_trial(8, 100.0, 1.0), why="torch was refused memory")
    assert "torch was refused memory" in printed(BatchSearch(trials=(odd,), largest=8), 200)


def test_where_none_ran_it_says_why():
    out_of_memory = Trial(batch_size=1, outcome="out of memory", elapsed_s=9.0)
    assert answer(BatchSearch(trials=(out_of_memory,))) == [
        "No batch size ran (1 trial in 9 s).",
        "Even batch 1 is too large.",
    ]
    failed = Trial(batch_size=4, outcome="failed", why="No such file: data.bin", elapsed_s=2.0)
    said = printed(BatchSearch(trials=(failed,), notes=("Nothing was learnt.",)), 80)
    assert "At batch 4 the trial did not succeed: No such file: data.bin" in said
    assert "- Nothing was learnt." in said
    assert "None was tried." in printed(BatchSearch(trials=()), 80)


@pytest.mark.parametrize("search", [a_search(), BatchSearch(trials=())])
def test_document_is_as_its_schema_says(search):
    jsonschema.validate(json.loads(dumps(batches_document(search))), schema("batches"))


def test_document_has_what_was_worked_out():
    document = to_json(batches_document(a_search()))
    assert (document["knee"], document["elapsed_s"], document["largest"]) == (32, 110, 48)
    assert document["trials"][0]["samples_per_s"] == 100
