"""The tables: unknown is shown as unknown, and a narrow terminal loses columns, not characters."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from functools import cache

import pytest
from rich.console import Console

from outlay import parse_workload, plan_workload
from outlay.hardware.gpu_names import find_gpu
from outlay.offers.catalog import bundled_offers
from outlay.offers.offer import Offer
from outlay.plan.placement import calibration
from outlay.predict.memory import LARGEST_BATCH
from outlay.predict.step import Placement, predict_step
from outlay.report.console import Page
from outlay.report.plan import print_plan
from outlay.report.tables import (
    facts_table,
    gpus_table,
    offers_table,
    predictions_table,
    profiles_table,
)
from outlay.report.text import machine, usd, usd_range
from outlay.trace.store import find_profile

WIDTHS = (80, 100, 120)
UNKNOWN_OFFER = Offer(
    provider="north",
    instance="n1",
    gpu="T4",
    gpus=2,
    region="any",
    price_usd_per_hour=None,
    as_of="2026-11-01",
    source="a test",
)


def shown(renderable, width=200):
    """What is printed, line by line."""
    out = io.StringIO()
    Console(file=out, width=width, markup=False, highlight=False, no_color=True).print(renderable)
    return out.getvalue().splitlines()


@cache
def planned(text):
    """A workload, its profile and its plan."""
    workload = parse_workload(text)
    profile = find_profile("resnet50")
    return workload, profile, plan_workload(workload, profile)


def plan_shown(text, width, best=10):
    """A plan's report, line by line."""
    workload, profile, plan = planned(text)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        print_plan(Page(width), plan, workload, profile, best=best, full=True)
    return out.getvalue().splitlines()


def section(lines, title):
    """The lines of a section, without its title, which may take two lines; they are indented."""
    start = next(i for i, line in enumerate(lines) if line.startswith(title))
    block = "\n".join(lines[start:]).split("\n\n")[0].partition("  Left out here")[0]
    return [line for line in block.splitlines() if line.startswith("  ")]


def column(lines, head):
    """The cells under a head, by the head's place; the head is at an end of them."""
    title, *rows = lines
    assert f" {head} " in f" {title} ", f"no column {head}"
    place = f" {title} ".index(f" {head} ")
    return [_cell(row, place, place + len(head)) for row in rows]


def _cell(row, start, end):
    """The text around a span, as far as single spaces go."""
    row = row.ljust(end)
    while start > 0 and row[start - 1 : start + 1].strip():
        start -= 1
    while end < len(row) and row[end - 1 : end + 1].strip():
        end += 1
    return row[start:end].strip()


EVERYTHING = """
name = "a run"
[step]
profile = "resnet50"
[length]
epochs = 90
[data]
samples = 1_281_167
size = "150GB"
preparation = "1h"
[checkpoint]
size = "200MB"
[limits]
budget = 500
"""
MIXED = """
name = "a run"
[step]
profile = "resnet50"
batch_size = 32
[length]
time = "6h"
[data]
size = "10GB"
[consider]
bundled = false
[[offer]]
provider = "north"
gpu = "T4"
price_per_hour = 1
[[offer]]
provider = "west"
gpu = "T4"
"""


@pytest.mark.parametrize("width", WIDTHS)
def test_plan_has_no_line_longer_than_the_terminal(width):
    lines = plan_shown(EVERYTHING, width)
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [20, 40, *WIDTHS])
def test_best_table_keeps_what_a_row_cannot_do_without(width):
    """Its number, what it is ranked by, and its range: in a second line where there is no room."""
    lines = plan_shown(EVERYTHING, width)
    best = " ".join(" ".join(section(lines, "Best ")).split())
    for head in ("#", "PROVIDER", "MACHINE", "TENANCY", "TIME", "EXPECTED", "RANGE"):
        assert f" {head} " in f" {best} "
    ranks = column(section(plan_shown(EVERYTHING, 200), "Best ")[:11], "#")
    assert len(ranks) == 10
    plan = planned(EVERYTHING)[2]
    for option in (plan.options[int(rank) - 1] for rank in ranks):
        amounts = usd(plan.measure_usd(option)), usd_range(option.cost_usd)
        for cell in (str(option.rank), option.offer.provider, machine(option.offer), *amounts):
            assert f" {cell}" in f" {best} "
    assert "…" not in best


def test_wider_terminal_shows_no_fewer_columns():
    heads = [heads_of(section(plan_shown(EVERYTHING, width), "Best ")) for width in WIDTHS]
    assert len(heads[0]) < len(heads[1]) < len(heads[2])
    assert set(heads[0]) < set(heads[1]) < set(heads[2])


def heads_of(lines):
    """The heads of a table, of which a folded one has several lines."""
    count = next(place for place, line in enumerate(lines) if line != line.upper())
    return " ".join(lines[:count]).split()


@pytest.mark.parametrize("width", WIDTHS)
def test_what_a_plan_leaves_out_is_named_below_the_table(width):
    lines = plan_shown(EVERYTHING, width)
    whole = heads_of(section(plan_shown(EVERYTHING, 200), "Best "))
    heads = heads_of(section(lines, "Best "))
    start = next(place for place, line in enumerate(lines) if line.startswith("Best "))
    note = " ".join(" ".join(lines[start:]).split("Left out here: ")[1].split())
    assert set(note.split(". A page")[0].split(", ")) == set(whole) - set(heads)


@pytest.mark.parametrize("width", WIDTHS)
def test_frontier_keeps_machine_and_cost(width):
    frontier = section(plan_shown(EVERYTHING, width), "Faster for more money")
    assert len(frontier) > 2
    assert not [line for line in frontier if "…" in line]


def test_plan_shows_what_has_no_price_as_unknown():
    lines = plan_shown(MIXED, 120)
    # Storing 10 GB at north has no known price: what the answer rests on says so.
    first_screen = " ".join(lines[: lines.index("")])
    assert "Not in the bill, as no price is known: volume storage of the dataset" in first_screen
    assert "storage" not in lines[2]
    unpriced = section(lines, "No price known")
    assert any("west" in line for line in unpriced)
    assert not any("west" in line for line in section(lines, "Best "))


def test_offer_without_prices_shows_none():
    head, row = shown(offers_table([UNKNOWN_OFFER], 200))
    for name in ("$/H", "SPOT $/H", "$/GPU-H"):
        assert name in head
    assert "$" not in row
    assert " 0" not in row
    assert "2x T4" in row


def test_fact_nobody_found_is_unknown():
    unknown = [
        (gpu, name)
        for gpu in (find_gpu("A100 80GB PCIe").gpu, find_gpu("A100 80GB SXM").gpu)
        for name, fact in gpu.facts.items()
        if not fact.known
    ]
    assert unknown
    for gpu, name in unknown:
        (row,) = [line for line in shown(facts_table(gpu, 900), 900) if line.startswith(f"{name} ")]
        assert row.split()[1] == "unknown"


def test_facts_table_has_every_fact_with_its_source():
    gpu = find_gpu("T4").gpu
    lines = shown(facts_table(gpu, 900), 900)
    assert len(lines) == 1 + len(gpu.facts)
    for (name, fact), line in zip(gpu.facts.items(), lines[1:], strict=True):
        assert line.startswith(name)
        assert fact.source in line


def test_gpus_table_shows_a_dash_for_arithmetic_the_hardware_lacks():
    lines = shown(gpus_table([find_gpu("T4").gpu], 200))
    # Turing has neither TF32 nor BF16 nor FP8; 65 TFLOP/s in FP16 (NVIDIA T4 data sheet).
    assert column(lines, "TF32") == ["-"]
    assert column(lines, "BF16") == ["-"]
    assert column(lines, "FP8") == ["-"]
    assert column(lines, "FP16") == ["65"]


def test_predictions_table_says_what_does_not_fit():
    step = predict_step(
        find_profile("resnet50"), Placement(gpu=find_gpu("T4").gpu), 100_000, calibration()
    )
    lines = shown(predictions_table([step], 200))
    assert column(lines, "FITS") == ["no"]
    assert column(lines, "BATCH")[0].startswith("100000")


def test_predictions_table_says_where_the_search_ended_before_the_memory():
    step = predict_step(
        find_profile("resnet50"), Placement(gpu=find_gpu("T4").gpu), 1, calibration()
    )
    ends = [replace(step, max_batch_size=size) for size in (LARGEST_BATCH - 1, LARGEST_BATCH)]
    lines = shown(predictions_table(ends, 200))
    # 2^20 and one less
    assert column(lines, "MAX BATCH") == ["1048575", "1048576+"]


def test_profiles_table_has_the_parameters():
    lines = shown(profiles_table([find_profile("resnet50")], 200))
    assert column(lines, "PARAMETERS") == ["25,557,032"]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("title", ["Best ", "Cheaper, but", "Ruled out"])
def test_no_section_cuts_a_figure(width, title):
    lines = section(plan_shown(EVERYTHING, width), title)
    assert not [line for line in lines if "…" in line]


@pytest.mark.parametrize("width", WIDTHS)
def test_offers_keep_their_prices(width):
    offers = bundled_offers()[:40]
    lines = shown(offers_table(offers, width), width)
    assert "$/H" in lines[0]
    assert "SPOT $/H" in lines[0]
    assert not [line for line in lines if "…" in line or len(line.rstrip()) > width]


@pytest.mark.parametrize("width", WIDTHS)
def test_gpus_keep_their_figures(width):
    lines = shown(gpus_table([find_gpu(name).gpu for name in ("H200", "RTX PRO 6000 WS")], width))
    assert {"MEM", "GB/S", "TF32", "FP16", "BF16", "TDP"} <= set(lines[0].split())
    assert max(len(line.rstrip()) for line in lines) <= width


def test_text_in_square_brackets_is_text():
    offer = replace(UNKNOWN_OFFER, provider="x[/]", instance="rack[2]")
    row = shown(offers_table([offer], 200))[1]
    assert "x[/]" in row
    assert "rack[2]" in row
