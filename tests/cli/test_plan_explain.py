"""`outlay plan --explain`: the option that is meant, its bill, what it depends on, its sources."""

from __future__ import annotations

import jsonschema
import pytest

from outlay.report.text import usd

OFFERS = """
[consider]
bundled = false
[data]
preparation = "5m..15m"
[[offer]]
provider = "north"
instance = "one"
gpu = "T4"
price_per_hour = 2.00
as_of = 2026-10-01
[[offer]]
provider = "south"
instance = "two"
gpu = "A10"
price_per_hour = 3.00
spot_per_hour = 1.00
interruptions_per_month = "2..8"
"""
WIDTHS = (80, 120)


@pytest.fixture
def file(workload):
    """Six hours, half an hour of set-up, ten minutes of preparation: 6 h 40 min."""
    return workload(OFFERS)


def section(text, title):
    """The lines under a title, up to the next empty one."""
    lines = text.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith(title))
    stop = next((n for n in range(start, len(lines)) if not lines[n]), len(lines))
    return lines[start + 1 : stop]


# --- the option that is meant ---


def test_an_option_by_its_rank(outlay, file):
    options = outlay("plan", file, "--json").document["options"]
    assert len(options) == 3
    for option in options:
        shown = outlay("plan", file, "--explain", option["rank"]).out
        named = f"#{option['rank']} 1x {option['gpu']} at {option['provider']}"
        assert shown.startswith(named)
        assert option["tenancy"] in shown.splitlines()[0]


@pytest.mark.parametrize(
    ("words", "head"),
    [
        ("north", "1x T4 at north (one), on-demand"),
        ("T4 north", "1x T4 at north (one), on-demand"),
        ("A10 on-demand", "1x A10 at south (two), on-demand"),
        ("SOUTH spot", "1x A10 at south (two), spot"),
        ("two/spot", "1x A10 at south (two), spot"),
        ("1x t4", "1x T4 at north (one), on-demand"),
    ],
)
def test_an_option_by_words_in_any_order(outlay, file, words, head):
    ended = outlay("plan", file, "--explain", words)
    assert ended.code == 0
    assert head in ended.out.splitlines()[0]


def test_words_that_mean_several_mean_the_best_of_them(outlay, file):
    south = [
        option
        for option in outlay("plan", file, "--json").document["options"]
        if option["provider"] == "south"
    ]
    shown = outlay("plan", file, "--explain", "south").out
    assert shown.startswith(f"#{min(option['rank'] for option in south)} ")


@pytest.mark.parametrize("asked", ["west", "99", "0", "north spot"])
def test_an_option_that_is_not_there(outlay, file, asked):
    ended = outlay("plan", file, "--explain", asked)
    assert ended.code == 2
    assert ended.out == ""
    what, why, fix = ended.err.splitlines()
    assert what == f"outlay: No option is called {asked!r}."
    assert "There are 3" in why
    assert "--explain 'lambda a10'" in fix


# --- what is said of it ---


def test_the_bill_adds_up(outlay, file):
    shown = outlay("plan", file, "--explain", "north").out
    bill = section(shown, "What it costs, line by line")
    amounts = {line.split("  ")[1]: line for line in bill[1:]}
    # 6 h, half an hour and ten minutes at $2.00: 12 + 1 + 0.33
    assert "$12.00" in amounts["compute"]
    assert "6.00 h x $2/h" in amounts["compute"]
    assert "$1.00" in amounts["set-up"]
    assert "$0.33" in amounts["data preparation"]
    # the preparation's range: 5 and 15 min at $2.00
    assert "$0.17-0.50" in amounts["data preparation"]
    assert "$13.33" in amounts["total"]


def test_its_hours_add_up(outlay, file):
    hours = section(outlay("plan", file, "--explain", "north").out, "How its hours are spent")
    cells = {line.split("  ")[1]: line for line in hours[1:]}
    # 6 h of 6 h 40 min
    assert "6.00 h" in cells["compute"]
    assert "90 %" in cells["compute"]
    assert "0.50 h" in cells["set-up"]
    assert "0.17 h" in cells["data preparation"]
    assert "6.67 h" in cells["all"]


def test_the_choice_says_so_and_a_loser_says_why(outlay, file):
    chosen = outlay("plan", file, "--json").document["chosen"]
    assert "It is the choice." in outlay("plan", file, "--explain", chosen["rank"]).out
    dear = " ".join(outlay("plan", file, "--explain", "A10 on-demand").out.splitlines()[:2])
    assert "Not chosen: costs $" in dear


def test_a_document_has_what_the_cost_hangs_on(outlay, file):
    ended = outlay("plan", file, "--explain", "north", "--json")
    document = ended.document
    jsonschema.validate(document, outlay("schema", "plan").document)
    explained = document["explained"]
    (rank,) = (one["rank"] for one in document["options"] if one["provider"] == "north")
    assert explained["rank"] == rank
    inputs = {one["name"]: one for one in explained["inputs"]}
    preparation = inputs["data preparation"]
    # 5, 10 and 15 min
    assert preparation["value"] == pytest.approx({"low": 300, "likely": 600, "high": 900})
    # 6 h 35 min, 6 h 40 min and 6 h 45 min at $2.00
    ends = {"low": 2 * 79 / 12, "likely": 2 * 80 / 12, "high": 2 * 81 / 12}
    assert preparation["cost_usd"] == pytest.approx(ends)


def test_without_explain_a_document_is_about_the_choice(outlay, file):
    document = outlay("plan", file, "--json").document
    assert document["explained"]["rank"] == document["chosen"]["rank"]


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("north", {"data preparation"}),
        ("south spot", {"data preparation", "interruption rate", "spot price: south A10"}),
    ],
)
def test_every_uncertain_input_is_listed(outlay, file, asked, names, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1790812800")  # 2026-10-01, the day of the quote
    document = outlay("plan", file, "--explain", asked, "--json").document
    said = {one["name"]: one["cost_usd"] for one in document["explained"]["inputs"]}
    assert names <= set(said)
    moving = [name for name, cost in said.items() if cost["high"] - cost["low"] > 0.01]
    assert set(moving) == names
    shown = section(outlay("plan", file, "--explain", asked).out, "What its cost depends on")
    for name in moving:
        (row,) = (line for line in shown if line.strip().startswith(name))
        assert usd(said[name]["low"]) in row
        assert usd(said[name]["high"]) in row


def test_inputs_are_listed_by_how_far_they_move_the_cost(outlay, workload):
    path = workload(OFFERS, length="samples = 5_000_000")
    document = outlay("plan", path, "--explain", "south spot", "--json").document
    moved = [
        one["cost_usd"]["high"] - one["cost_usd"]["low"] for one in document["explained"]["inputs"]
    ]
    assert moved == sorted(moved, reverse=True)
    assert {"speed: A10", "data preparation"} <= {
        one["name"] for one in document["explained"]["inputs"]
    }


def test_sources_are_shown(outlay, file):
    shown = section(outlay("plan", file, "--explain", "north").out, "Where these figures come from")
    text = "\n".join(shown)
    assert "$2/h" in text
    assert "the workload file, 2026-10-01" in text
    for word in ("T4 memory_bandwidth", "T4 peak_fp16", "training step", "assumptions.csv"):
        assert word in text


def test_what_has_no_price_is_named_with_what_is_usual(outlay, workload):
    more = OFFERS.replace("[data]", '[data]\nsize = "100GB"')
    shown = outlay("plan", workload(more), "--explain", "north").out
    bill = " ".join(" ".join(section(shown, "What it costs, line by line")).split())
    assert "not priced unknown volume storage of the dataset at north: no price known" in bill
    assert "at usual prices, which the ranking counts" in bill


def test_an_option_that_does_not_fit_is_explained_without_a_bill(outlay, workload):
    path = workload(OFFERS.replace("T4", "K520"), step='profile = "resnet50"\nbatch_size = 256')
    ended = outlay("plan", path, "--explain", "north")
    assert ended.code == 0
    assert "does not fit" in ended.out.splitlines()[0]
    assert "What it costs" not in ended.out


def test_nothing_within_the_limits_ends_with_3_and_is_explained(outlay, workload):
    path = workload(OFFERS + "[limits]\nbudget = 1\n")
    ended = outlay("plan", path, "--explain", "north")
    assert ended.code == 3
    # 13.33 - 1
    assert "over budget by $12.33" in " ".join(ended.out.splitlines()[:2])


# --- as it is printed ---


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("asked", ["north", "south spot"])
def test_no_line_is_too_long_and_no_figure_is_cut(outlay, file, monkeypatch, width, asked):
    monkeypatch.setenv("COLUMNS", str(width))
    shown = outlay("plan", file, "--explain", asked).out
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    document = outlay("plan", file, "--json").document
    tenancy = "spot" if "spot" in asked else "on-demand"
    (option,) = (
        one
        for one in document["options"]
        if (one["provider"], one["tenancy"]) == (asked.split()[0], tenancy)
    )
    bill = section(shown, "What it costs, line by line")
    for line in option["lines"]:
        assert any(
            row.split()[: len(line["name"].split())] == line["name"].split()
            and usd(line["usd"]) in row.split()
            for row in bill
        ), line["name"]


def test_the_real_program_prints_plain_text(program, file):
    ended = program("plan", "work.toml", "--explain", "north")
    assert (ended.code, ended.err) == (0, "")
    assert "\x1b" not in ended.out
    assert ended.out.startswith("#")


# --- what must be paid, and when ---

TERM = """
[consider]
bundled = false
[[offer]]
provider = "vast"
instance = "year"
gpu = "T4"
price_per_hour = 1.00
term = "1 year"
upfront = 4380
setup_cost = 20
"""


def test_what_must_be_paid_on_day_one_and_what_remains_due(outlay, workload):
    shown = outlay("plan", workload(TERM), "--explain", "1").out
    payments = [" ".join(line.split()) for line in section(shown, "What must be paid, and when")]
    # half of 8,760 h x $1 and the fee at once; of the other half 335 of 365 days after a month
    assert payments[1].startswith("on day one: upfront payment $4,380 365 days, partial upfront")
    assert payments[2].startswith("on day one: set-up fee $20.00")
    assert payments[3].startswith("on day one, all $4,400")
    assert payments[4].startswith("due if you stop at once $4,380")
    assert payments[5].startswith("due if you stop after 1 month $4,020")
    assert payments[6].startswith("due if you stop half-way $2,190")
    # what Vast.ai says of its reserved instances
    assert payments[7].endswith("less the discount so far")


def test_cash_in_the_document(outlay, workload):
    (option,) = outlay("plan", workload(TERM), "--json").document["options"]
    assert option["cash_upfront_usd"] == pytest.approx(4400)
    assert [payment["usd"] for payment in option["cash_upfront"]] == pytest.approx([4380, 20])
    assert option["due_if_stopped_usd"] == pytest.approx(4380)
    assert option["cash_not_known"] == []
    assert sum(line["usd"] for line in option["lines"]) == option["cost_usd"]["likely"]
    # $4,380 / 2 x 5 % x a year
    lines = {line["name"]: line["usd"] for line in option["lines"]}
    assert lines["interest"] == pytest.approx(109.5)
    assert lines["set-up fee"] == 20


def test_cash_is_zero_where_nothing_is_paid_on_the_first_day(outlay, file):
    options = outlay("plan", file, "--json").document["options"]
    assert {option["cash_upfront_usd"] for option in options} == {0.0}
    assert {option["due_if_stopped_usd"] for option in options} == {0.0}


def test_options_for_a_term_are_listed_with_their_cash(outlay, workload):
    shown = outlay("plan", workload(TERM), "--full").out
    (head, row) = section(shown, "Paid on the first day, and due if you stop then")
    assert "ON DAY ONE" in head
    assert "$4,400" in row
    assert "$4,380" in row
    assert "On day one: $4,400 (upfront payment, set-up fee)." in shown
