"""`--as-of`: plans, offers, differences and advice with the prices of then."""

from __future__ import annotations

import json
import re

import pytest

from outlay.plan.pipeline import plan_workload
from outlay.prices.past_books import past_prices
from outlay.report.documents import dumps, plan_document
from outlay.workload.file import read_workload

A10S = '[consider]\nproviders = ["lambda"]\ngpus = ["A10"]\n'


@pytest.fixture
def work(workload):
    return workload(A10S)


def test_the_first_line_of_a_plan_says_whose_prices(outlay, work):
    ended = outlay("plan", work, "--as-of", "2024-10")
    assert (ended.code, ended.err) == (0, "")
    first = ended.out.splitlines()[0]
    assert first == "With the prices of 2024-10-31, as if it were that day."
    full = outlay("plan", work, "--as-of", "2024-10", "--full").out
    assert "the cheapest region in which the type was sold" in " ".join(full.split())
    assert "newer list prices" not in full
    explained = outlay("plan", work, "--as-of", "2024-10", "--explain", "1")
    assert explained.out.splitlines()[0] == first


def test_its_document_has_the_prices_of_then_and_is_the_librarys(outlay, work):
    document = outlay("plan", work, "--as-of", "2024-10", "--json").document
    # Lambda's list had last changed on the 7th; others' are of the day itself
    assert document["prices"]["as_of"] == "2024-10-31"
    assert document["prices"]["age_days"] == 0
    assert document["chosen"]["price_as_of"] == "2024-10-07"
    assert document["chosen"]["quoted_usd_per_hour"] == 0.75
    plan = plan_workload(read_workload(work), prices=past_prices("2024-10"))
    own = json.loads(dumps(plan_document(plan, read_workload(work).name)))
    assert document == own


def test_a_list_that_stood_still_is_not_chosen(outlay, work):
    # Lambda's of 2025-02-17 was 133 days old on 2025-06-30: a caution, as of the prices of today
    ended = outlay("plan", work, "--as-of", "2025-06", "--json")
    assert (ended.code, ended.document["chosen"]) == (3, None)
    assert all("stale" in option["doubts"] for option in ended.document["options"])


def test_the_day_of_the_clock_does_not_matter(outlay, work, monkeypatch):
    first = outlay("plan", work, "--as-of", "2024-10", "--json")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1900000000")  # 2030
    assert outlay("plan", work, "--as-of", "2024-10", "--json").document == first.document


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--refresh",), "--refresh and --as-of exclude each other"),
        (("--prices", "bundled"), "--as-of and --prices bundled exclude each other"),
        (("--alert-below", "5"), "--alert-below and --as-of exclude each other"),
    ],
)
def test_what_excludes_each_other_is_a_usage_error(outlay, work, more, said):
    ended = outlay("plan", work, "--as-of", "2025-06", *more)
    assert ended.code == 2
    assert said in ended.err


@pytest.mark.parametrize("command", ["offers", "diff", "advise"])
def test_prices_bundled_excludes_it_everywhere(outlay, work, command):
    more = {"offers": (), "diff": (work, work), "advise": ("--purpose", "kaggle")}[command]
    ended = outlay(command, *more, "--as-of", "2025-06", "--prices", "bundled")
    assert ended.code == 2
    assert "exclude each other" in ended.err


@pytest.mark.parametrize("day", ["2022-06", "2026-12", "yesterday"])
def test_a_day_without_prices_ends_with_2_and_the_range_there_is(outlay, work, day):
    ended = outlay("plan", work, "--as-of", day)
    assert ended.code == 2
    assert "Traceback" not in ended.err
    assert "2022-07-31 to 2026-08-22" in ended.err or "Write 2025-06" in ended.err


def test_offers_of_then(outlay):
    ended = outlay("offers", "--gpu", "H100", "--as-of", "2023-07")
    assert (ended.code, ended.err) == (0, "")
    assert "p5.48xlarge" in ended.out
    assert ended.out.splitlines()[-1].endswith("the prices of 2023-07-31.")
    document = outlay("offers", "--gpu", "H100", "--as-of", "2023-07", "--json").document
    assert {offer["as_of"] for offer in document["offers"]} == {"2023-06-15", "2023-07-31"}


def test_a_difference_with_the_prices_of_then(outlay, work, tmp_path):
    longer = tmp_path / "longer.toml"
    longer.write_text(work.read_text(encoding="utf-8").replace("6h", "12h"), encoding="utf-8")
    ended = outlay("diff", work, longer, "--as-of", "2024-10")
    assert ended.code == 0
    assert ended.out.splitlines()[0] == "Both with the prices of 2024-10-31."
    document = outlay("diff", work, longer, "--as-of", "2024-10", "--json").document
    # six hours more at $0.75
    assert document["change_usd"] == pytest.approx(6 * 0.75, rel=0.01)


def test_curves_say_whose_prices(outlay, work):
    ended = outlay("plan", work, "--as-of", "2024-10", "--vary", "length.time=6h,12h")
    assert ended.code == 0
    assert "the prices of 2024-10-31" in ended.out


def test_advice_of_then_knows_no_card_of_later(outlay):
    arguments = ("advise", "--profile", "resnet50", "--usage", "2h/day", "--as-of", "2025-08")
    ended = outlay(*arguments, "--json")
    assert ended.code == 0
    days = set(re.findall(r"20\d\d-\d\d-\d\d", json.dumps(ended.document["advice"])))
    assert days
    assert max(days) <= "2025-08-31"
    assert "the prices of 2025-08-31" in outlay(*arguments).out
