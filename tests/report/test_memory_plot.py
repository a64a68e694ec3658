"""Pictures of made-up timelines: they parse, they add up, and they name the peak."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.errors import ExtraMissing, InputError
from outlay.report.memory_plot import (
    COLOURS,
    MOST_HOVERS,
    NARROW,
    edges,
    layers,
    memory_html,
    memory_svg,
    peak_lines,
    stretches,
    thinned,
    write_plot,
)
from outlay.report.svg import byte_unit, check_plot_path, ticks
from outlay.trace.profile import Memory
from outlay.trace.step_report import CATEGORIES, CallSite, MemoryPoint, MemoryTimeline
from outlay.units import GIB, KIB, MIB

SVG = "{http://www.w3.org/2000/svg}"
SITE = CallSite(file="train.py", line=31, function="forward", code="y = a < b & c")


def memory(activations, temporaries=0.0):
    return Memory(
        parameters=100.0 * MIB,
        gradients=10.0 * MIB,
        optimizer_state=200.0 * MIB,
        inputs=5.0 * MIB,
        activations=activations * MIB,
        temporaries=temporaries * MIB,
    )


def timeline(amounts, phase_of=lambda _: "forward"):
    points = [
        MemoryPoint(
            operation=number,
            name="aten.mm",
            phase=phase_of(number),
            memory=memory(amount),
            site=SITE,
        )
        for number, amount in enumerate(amounts, start=1)
    ]
    return MemoryTimeline(points=tuple(points), operations=len(points))


def three_phases(number):
    return "forward" if number <= 3 else "backward" if number <= 6 else "optimizer"


STEP = timeline([10.0, 20.0, 30.0, 40.0, 20.0, 10.0, 0.0], three_phases)


def test_every_category_has_a_colour():
    assert sorted(COLOURS) == sorted(CATEGORIES)


def test_layers_lie_on_one_another_and_end_at_the_total():
    made = layers(STEP)
    assert made[0].lower_bytes == (0.0,) * 7
    for below, above in pairwise(made):
        assert above.lower_bytes == below.upper_bytes
    # 100 + 10 + 200 + 5 and the activations
    assert [top / MIB for top in made[-1].upper_bytes] == [325, 335, 345, 355, 335, 325, 315]


def test_phases_are_stretches_of_operations():
    assert list(stretches(STEP)) == [
        ("forward", 0.0, 3.0),
        ("backward", 3.0, 6.0),
        ("optimizer", 6.0, 7.0),
    ]
    assert edges(STEP) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_peak_is_said_with_its_place():
    lines = ["peak 355 MiB", "operation 4 of 7, backward", "mm · train.py:31"]
    assert peak_lines(STEP) == lines


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=400), st.integers(10, 60))
def test_thinned_keeps_the_peak_and_the_order(amounts, most):
    whole = timeline(amounts)
    few = thinned(whole, most)
    numbers = [point.operation for point in few.points]
    assert len(numbers) <= most
    assert numbers == sorted(set(numbers))
    assert few.peak == whole.peak
    assert few.operations == whole.operations
    if len(amounts) <= most:
        assert few is whole


def test_svg_parses_and_names_the_peak():
    root = ET.fromstring(memory_svg(STEP, "Memory of <step> & more"))
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert "Memory of <step> & more" in texts
    assert {"peak 355 MiB", "mm · train.py:31"} <= set(texts)
    assert {"forward", "backward", "optimizer", "MiB"} <= set(texts)
    assert "activations 40.0 MiB" in texts


def test_svg_heights_sum_up():
    """Each layer's first step begins where the one below has its top."""
    root = ET.fromstring(memory_svg(timeline([40.0]), "one operation"))
    paths = [path.get("d") for path in root.iter(f"{SVG}path")]
    # M x foot, V top, H right, V bottom, H left, Z
    tops = [float(path.split("V")[1].split("H")[0]) for path in paths]
    bottoms = [float(path.split("V")[2].split("H")[0]) for path in paths]
    assert bottoms[1:] == tops[:-1]
    heights = [bottom - top for bottom, top in zip(bottoms, tops, strict=True)]
    # of 355 MiB: parameters 100, optimizer state 200, inputs 5, gradients 10, activations 40
    scale = sum(heights) / 355
    assert heights == pytest.approx([h * scale for h in (100, 200, 5, 10, 40, 0, 0)], abs=0.11)


def test_hover_text_tells_the_operation_and_its_categories():
    root = ET.fromstring(memory_svg(STEP, ""))
    tips = [tip.text for tip in root.iter(f"{SVG}title")]
    assert len(tips) == 7
    assert "operation 4 of 7, backward\nmm · train.py:31\ny = a < b & c" in tips[3]
    assert "activations: 40.0 MiB" in tips[3]
    assert "activations" not in tips[6]


def test_page_stands_alone_and_stays_small():
    page = memory_html(timeline([float(n % 97) for n in range(50_000)]), "long")
    assert page.count("http") == page.count("http://www.w3.org/2000/svg") == 2  # wide, narrow
    assert "<script" not in page
    assert "prefers-color-scheme: dark" in page
    assert page.count("<title>") <= MOST_HOVERS + MOST_HOVERS // 4 + 1
    assert len(page) < 400_000


def test_operations_without_a_line_and_an_empty_step():
    bare = MemoryPoint(operation=1, name="aten.add_", phase="backward", memory=memory(1.0))
    root = ET.fromstring(memory_svg(MemoryTimeline(points=(bare,), operations=1), ""))
    assert "add_" in ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("highest", "expected"),
    [
        (0.0, [0]),
        (10.0, [0, 2, 4, 6, 8, 10]),
        (7.0, [0, 2, 4, 6]),
        (848.0, [0, 200, 400, 600, 800]),
    ],
)
def test_ticks_are_round(highest, expected):
    assert ticks(highest, 6) == expected


@pytest.mark.parametrize(
    ("amount_bytes", "unit"), [(5 * GIB, "GiB"), (GIB, "MiB"), (MIB, "KiB"), (0, "KiB")]
)
def test_unit_of_the_axis(amount_bytes, unit):
    assert byte_unit(amount_bytes) == ({"GiB": GIB, "MiB": MIB, "KiB": KIB}[unit], unit)


def test_writes_html(tmp_path):
    path = tmp_path / "memory.HTML"
    write_plot(path, STEP, "a step")
    assert "peak 355 MiB" in path.read_text(encoding="utf-8")


@pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_writes_png(tmp_path):
    path = tmp_path / "memory.png"
    write_plot(path, STEP, "a step")
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["memory.svg", "memory", "memory.html.gz"])
def test_other_endings_are_refused(tmp_path, name):
    with pytest.raises(InputError, match=r"no \.html or \.png file"):
        check_plot_path(tmp_path / name)


def test_missing_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        check_plot_path(tmp_path / "gone" / "memory.html")


def test_png_without_matplotlib_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ExtraMissing, match="pip install matplotlib"):
        check_plot_path(tmp_path / "memory.png")


@pytest.mark.parametrize("module", ["memory_plot", "probe_plot"])
def test_a_page_needs_no_matplotlib(module):
    script = f"import sys; sys.modules['matplotlib'] = None; import outlay.report.{module}"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_what_a_gpu_has_is_a_labelled_line_where_it_belongs():
    root = ET.fromstring(memory_svg(STEP, "", [("small", 500.0 * MIB), ("large", 64.0 * GIB)]))
    (level,) = [one for one in root.iter(f"{SVG}line") if one.get("class") == "level"]
    # The axis ends above the line: 1.08 x 500 = 540 MiB; it has 104 above it and 52 of 600 below.
    assert float(level.get("y1")) == pytest.approx(548 - 500 / 540 * (548 - 104), abs=0.1)
    texts = ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]
    assert "small: 500 MiB" in texts
    assert "beyond the axis: large: 64.0 GiB" in texts


def test_words_stay_within_a_telephone():
    title = "Memory of examples/stylenat.py:training_step at batch 8 (16 steps)"
    root = ET.fromstring(memory_svg(STEP, title, [("RTX 3060", 500.0 * MIB)], NARROW))
    assert root.get("viewBox").startswith("0 0 360 ")
    for one in root.iter(f"{SVG}text"):
        words, x = "".join(one.itertext()), float(one.get("x"))
        classes = one.get("class").split()
        width = 6.2 * len(words) if "soft" in classes else 7 * len(words)
        left = x - width if "end" in classes else x - width / 2 if "middle" in classes else x
        assert left >= -1, words
        assert left + width <= 361, words
