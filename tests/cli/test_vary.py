"""`outlay plan --vary`: the document, where the choice turns, what is refused, the printing."""

from __future__ import annotations

import jsonschema
import pytest

from outlay.report.text import usd

STEEP_AND_FLAT = """
sessions_per_month = 4
[consider]
bundled = false
[[stored]]
name = "images"
size = "100GB"
kind = "registry"
[[offer]]
provider = "steep"
instance = "one"
gpu = "T4"
price_per_hour = 1.00
[[offer]]
provider = "flat"
instance = "two"
gpu = "T4"
price_per_hour = 0.60
[[provider]]
name = "steep"
registry_per_gb_month = 0.10
[[provider]]
name = "flat"
registry_per_gb_month = 0.20
"""
STEEP, FLAT = "one at steep on-demand", "two at flat on-demand"
HOURS = 'time = "6h30m"\nhours_are_equal = true'


@pytest.fixture
def file(workload):
    """Sessions of 7 h: $1.00 x 7 h x n and 100 GB x $0.10, or $0.60 x 7 h x n and 100 GB x $0.20.

    That is 10 + 7 n and 20 + 4.2 n.
    """
    return workload(STEEP_AND_FLAT, length=HOURS)


@pytest.fixture
def curves(outlay, file):
    ended = outlay("plan", file, "--vary", "sessions=1..12", "--json")
    assert (ended.code, ended.err) == (0, "")
    return ended.document


# --- the document ---


def test_document_validates_against_its_schema(outlay, curves):
    jsonschema.validate(curves, outlay("schema", "vary").document)


def test_document_has_every_value_with_what_is_chosen(curves):
    assert curves["vary"] == "usage.sessions_per_month"
    assert curves["unit"] == "dollars"
    assert [point["value"] for point in curves["points"]] == [*range(1, 13)]
    assert [point["chosen"] for point in curves["points"]] == [STEEP] * 3 + [FLAT] * 9


def test_costs_are_those_of_the_bills(curves):
    for point in curves["points"]:
        sessions = point["value"]
        steep, flat = 10 + 7 * sessions, 20 + 4.2 * sessions
        assert point["costs_usd"] == pytest.approx({STEEP: steep, FLAT: flat})
        assert point["cost_usd"] == pytest.approx(min(steep, flat))


def test_the_turn_is_where_the_costs_meet(curves):
    (turn,) = curves["turns"]
    assert (turn["before"], turn["after"]) == (STEEP, FLAT)
    # 10 + 7 n = 20 + 4.2 n: n = 10 / 2.8
    assert turn["at"] == pytest.approx(10 / 2.8)


def test_different_work_is_compared_by_a_million_samples(outlay, workload):
    length = 'time = "6h"\nhours_are_equal = false'
    path = workload(STEEP_AND_FLAT.replace('gpu = "T4"', 'gpu = "A10"', 1), length=length)
    document = outlay("plan", path, "--vary", "sessions=1,2", "--json").document
    assert document["unit"] == "dollars for training a million samples"
    jsonschema.validate(document, outlay("schema", "vary").document)


@pytest.mark.parametrize(
    ("text", "costs"),
    [
        # 10 + 7 x 4 = 38, and 20 + 4 x 7 h x the price
        ("offer.two.price_per_hour=0.5,1", [(38, 34), (38, 48)]),
        ("offer.2.price_per_hour=0.5,1", [(38, 34), (38, 48)]),
        # 1 h more in each of four sessions: 4 x $1.00 and 4 x $0.60
        ("setup=30m,90m", [(38, 36.8), (42, 39.2)]),
        # 10 and 20 dollars for 100 GB, twice that for 200
        ("stored.images.size=100GB,200GB", [(38, 36.8), (48, 56.8)]),
        ("provider.flat.registry_per_gb_month=0.2,0.1", [(38, 36.8), (38, 26.8)]),
    ],
)
def test_any_key_of_the_file_can_be_varied(outlay, file, text, costs):
    points = outlay("plan", file, "--vary", text, "--json").document["points"]
    found = [(point["costs_usd"][STEEP], point["costs_usd"][FLAT]) for point in points]
    assert found == [pytest.approx(pair) for pair in costs]


@pytest.mark.parametrize(
    ("text", "values", "costs"),
    [
        # 10 + 4 x 2 h or 3.5 h x $1.00, and 20 + 4 x that x $0.60, with half an hour of set-up
        ("length.time=1h30m,3h", ["1h30m", "3h"], [(18, 24.8), (24, 28.4)]),
        ("length.time=5h..6h", ["5h", "6h"], [(32, 33.2), (36, 35.6)]),
        # a run of 6.5 h and half an hour of set-up, 38 and 36.80 dollars, whatever may be spent
        ("budget=$50..$51", [50, 51], [(38, 36.8)] * 2),
        ("limits.budget=1,000..1,001", [1000, 1001], [(38, 36.8)] * 2),
        ("offer.one.as_of=2026-11-01..2026-11-02", ["2026-11-01", "2026-11-02"], [(38, 36.8)] * 2),
        # none, or 30 min of idling in each of four sessions: 4 x 15 min x $1.00 and $0.60 likely
        ("usage.idle=0m,0m..30m", ["0m", "0m..30m"], [(38, 36.8), (39, 37.4)]),
    ],
)
def test_durations_money_days_and_ranges_can_be_varied(outlay, file, text, values, costs):
    points = outlay("plan", file, "--vary", text, "--json").document["points"]
    assert [point["value"] for point in points] == values
    found = [(point["costs_usd"][STEEP], point["costs_usd"][FLAT]) for point in points]
    assert found == [pytest.approx(pair) for pair in costs]


def test_a_length_takes_the_place_of_another(outlay, workload):
    path = workload(STEEP_AND_FLAT, length="iterations = 100\nglobal_batch_size = 32")
    points = outlay("plan", path, "--vary", "length.time=6h,7h", "--json").document["points"]
    # 10 + 4 x 6.5 h or 7.5 h x $1.00
    assert [point["costs_usd"][STEEP] for point in points] == pytest.approx([36, 40])


# --- the table ---


def test_the_answer_comes_before_the_table(outlay, file):
    lines = outlay("plan", file, "--vary", "sessions=1..12").out.splitlines()
    assert lines[0] == "training run: usage.sessions_per_month from 1 to 12; dollars"
    # 10 + 7 x 1, and 20 + 4.2 x 4
    assert lines[1] == f"From 1: {STEEP}, $17.00."
    assert lines[2] == f"From 4: {FLAT}, $36.80."
    assert lines[3] == f"{STEEP} and {FLAT} cost the same at about 3.57."


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_too_long_and_no_figure_is_cut(outlay, file, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    shown = outlay("plan", file, "--vary", "sessions=1..12").out
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    cells = [line.split() for line in shown.splitlines()]
    rows = [row for row in cells if len(row) > 2 and row[0].isdecimal()]
    # steep is chosen first and is A, flat is B
    assert rows == [
        [str(n), "A" if n < 4 else "B", usd(10 + 7 * n), usd(20 + 4.2 * n)] for n in range(1, 13)
    ]
    assert f"  A  {STEEP}" in shown
    assert f"  B  {FLAT}" in shown


def test_two_values_are_not_drawn(outlay, file):
    assert "+---" in outlay("plan", file, "--vary", "sessions=1..3").out
    assert "+---" not in outlay("plan", file, "--vary", "sessions=1,2").out


# --- exit codes and what is refused ---


def test_where_some_value_has_an_answer_it_ends_well(outlay, file):
    # 36.80 dollars for four sessions
    ended = outlay("plan", file, "--vary", "budget=30,40", "--json")
    assert ended.code == 0
    assert [point["chosen"] for point in ended.document["points"]] == [None, FLAT]
    jsonschema.validate(ended.document, outlay("schema", "vary").document)


def test_where_no_value_has_an_answer_it_ends_with_3(outlay, file):
    ended = outlay("plan", file, "--vary", "budget=1,2", "--json")
    assert (ended.code, ended.err) == (3, "")
    assert [point["cost_usd"] for point in ended.document["points"]] == [None, None]
    assert ended.document["turns"] == []
    assert outlay("plan", file, "--vary", "budget=1,2").code == 3


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("sessions", ["'sessions'", "--vary sessions=1..12"]),
        ("sessions=a..b", ["not of numbers"]),
        ("machine.desk.purchase=1,2", ["'machine.desk.purchase'", "no [[machine]]"]),
        ("offer.three.price_per_hour=1,2", ["'three'", "'one', 'two'"]),
        ("usage.sesions_per_month=1..3", ["usage.sesions_per_month", "'sessions_per_month'"]),
        ("sessons=1..3", ["sessons"]),
        ("sessions=-1,1", ["usage.sessions_per_month", "-1"]),
        ("data.size=many", ["data.size", "many"]),
        ("budget=50 EUR..100 EUR", ["limits.budget is in EUR", "counts in USD"]),
        ("budget=$5,7 EUR", ["EUR and USD"]),
        ("deadline=90..100", ["work.toml, varied", "limits.deadline = 90", "unit"]),
        ("step.batch_size=nan,3", ["step.batch_size = nan"]),
    ],
)
def test_what_cannot_be_varied_is_refused(outlay, file, text, fragments):
    ended = outlay("plan", file, "--vary", text)
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("outlay: ")
    assert "Traceback" not in ended.err
    for fragment in fragments:
        assert fragment in ended.err


def test_a_file_that_is_not_there(outlay, tmp_path):
    ended = outlay("plan", tmp_path / "nothing.toml", "--vary", "sessions=1..2")
    assert ended.code == 2
    assert "nothing.toml" in ended.err


def test_a_typo_in_the_file_is_named_with_its_line(outlay, workload):
    path = workload(STEEP_AND_FLAT.replace("price_per_hour = 0.60", "price_per_hou = 0.60"))
    line = path.read_text().splitlines().index("price_per_hou = 0.60") + 1
    ended = outlay("plan", path, "--vary", "sessions=1..2")
    assert ended.code == 2
    assert f"line {line}" in ended.err
    assert "'price_per_hour'" in ended.err


# --- the real program ---


def test_piped_output_is_plain_and_nothing_is_on_standard_error(program, file):
    ended = program("plan", "work.toml", "--vary", "sessions=1..3")
    assert (ended.code, ended.err) == (0, "")
    assert "\x1b" not in ended.out
    assert not [line for line in ended.out.splitlines() if line != line.rstrip()]


def test_progress_is_a_line_a_stage_where_it_is_asked_for(outlay, file, few_offers):
    ended = outlay("plan", file, "--vary", "sessions=1,2", "--json", "--progress")
    assert ended.err.splitlines() == [
        "usage.sessions_per_month = 1 ...",
        "usage.sessions_per_month = 2 ...",
    ]
    assert outlay("plan", file, "--vary", "sessions=1,2", "--json").err == ""
