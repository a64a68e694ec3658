"""Pictures of made-up measurements: they parse, they stand alone, and they say what is missing."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from tests.measured import a_measurement, a_step_time, on_the_cpu, without_steps

from outlay.errors import InputError
from outlay.report.probe_plot import (
    MOST_HOVERS,
    NARROW,
    WIDE,
    legend,
    panels,
    probe_html,
    probe_svg,
    spans,
    subtitle,
    time_unit,
    write_probe_plot,
)
from outlay.report.svg import extremes

SVG = "{http://www.w3.org/2000/svg}"
MATPLOTLIB = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


def parsed(measurement):
    return ET.fromstring(probe_svg(measurement))


def texts(root):
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


def test_panels_are_what_was_seen():
    step, use, memory, power = panels(a_measurement())
    assert (step.name, step.unit, step.level, step.band) == ("step time", "s", 0.5, (0.49, 0.51))
    assert step.level_from_s == 18  # start-up 10 and warm-up 8
    assert (use.name, use.top) == ("GPU use", 100)
    assert (memory.level, memory.says) == (24.0, "18.0 of 24.0 GiB at most")
    assert power.says == "100 W in steps, 105 of 450 W at most"
    assert [panel.name for panel in panels(on_the_cpu())] == ["step time", "CPU use", "host memory"]
    assert panels(without_steps()) == []


def test_short_steps_are_drawn_in_milliseconds():
    times = tuple((float(at), 0.05) for at in range(10))
    step = a_step_time(mean_s=0.05, low_s=0.049, high_s=0.051, p90_s=0.052)
    panel = panels(a_measurement(step=step, step_times=times))[0]
    assert (panel.unit, panel.points[0]) == ("ms", (0.0, 50.0))
    assert panel.level == 50


def test_a_very_slow_first_step_does_not_flatten_the_others():
    measurement = a_measurement()
    times = ((10.0, 60.0), *measurement.step_times[1:])
    panel = panels(replace(measurement, step_times=times))[0]
    # 2.5 times the 90th percentile of 0.53 s, and an eighth of headroom at most
    assert panel.top < 2.5 * 0.53 * 1.125
    assert panel.says.endswith("slowest 60.0 s, beyond the axis")


def test_unsteady_and_missing_means_have_no_interval():
    unsteady = panels(a_measurement(step=a_step_time(is_steady=False)))[0]
    assert unsteady.band is None
    assert "not steady yet" in unsteady.says
    bare = panels(a_measurement(step=None))[0]
    assert (bare.level, bare.says) == (None, "too few for a mean")


def test_shaded_time_is_in_its_place():
    marks = [(span.kind, span.begin_s, span.end_s) for span in spans(a_measurement())]
    assert marks == [
        ("start-up", 0, 10),
        ("warm-up", 10, 18),
        ("evaluation", 50, 54),
        ("evaluation", 84, 88),
    ]
    assert dict(legend(a_measurement()))["evaluation"] == "evaluation 8.0 s"
    boxes = parsed(a_measurement()).iter(f"{SVG}rect")
    shades = [box for box in boxes if box.get("class") == "shade"]
    # four stretches in four panels; the warm-up lies from 10 to 18 of 120 s
    assert len(shades) == 16
    across = (WIDE.width - WIDE.left - WIDE.right) / 120
    assert float(shades[4].get("x")) == pytest.approx(WIDE.left + 10 * across, abs=0.1)
    assert float(shades[4].get("width")) == pytest.approx(8 * across, abs=0.1)


def test_svg_says_the_command_the_mean_and_the_units():
    said = texts(parsed(a_measurement()))
    assert "python train.py --batch-size 10 on NVIDIA GeForce RTX 4090" in said
    assert "step timemean 0.500 s (0.490 s to 0.510 s at 95 % confidence)" in said
    assert {"s", "%", "GiB", "W", "seconds after the start"} <= set(said)


def test_every_step_is_a_dot():
    measurement = a_measurement()
    dots = list(parsed(measurement).iter(f"{SVG}circle"))
    assert len(dots) == len(measurement.step_times)


def test_hover_text_tells_all_panels():
    tips = [tip.text for tip in parsed(a_measurement()).iter(f"{SVG}title")]
    assert len(tips) <= MOST_HOVERS
    warm = next(tip for tip in tips if "warm-up" in tip and "GPU use" in tip)
    assert "GPU memory: 18.0 GiB" in warm
    assert any("evaluation" in tip for tip in tips)


def test_page_stands_alone_and_stays_small():
    many = tuple((0.01 * n, 0.3 + 0.001 * (n % 97)) for n in range(50_000))
    page = probe_html(a_measurement(step_times=many, elapsed_s=500.0))
    assert page.count("http") == page.count("http://www.w3.org/2000/svg") == 2  # wide, narrow
    assert "<script" not in page
    assert "prefers-color-scheme: dark" in page
    assert len(page) < 400_000


def test_odd_commands_are_escaped():
    root = parsed(a_measurement(command=("python", "<b>&.py")))
    assert any("<b>&.py" in text for text in texts(root))


@pytest.mark.parametrize(
    "measurement",
    [
        without_steps(),
        without_steps(elapsed_s=0.0),
        a_measurement(samples=(), step_times=()),
        a_measurement(samples=a_measurement().samples[:1], step_times=((1.0, 0.0),), step=None),
        a_measurement(start_up_s=None, warm_up_s=None, pauses=()),
    ],
)
def test_incomplete_measurements_can_be_drawn(measurement):
    root = parsed(measurement)
    if not panels(measurement):
        assert "Nothing was seen that could be drawn." in texts(root)


def test_what_is_missing_is_named():
    assert subtitle(without_steps()) == (
        "3 s on 2026-11-01; not seen: step time, memory, GPU use, power"
    )
    assert subtitle(a_measurement()) == "2:00 min on 2026-11-01"
    assert subtitle(on_the_cpu()) == "2:00 min on 2026-11-01"


def test_axis_of_time_has_a_unit_to_read():
    assert time_unit(120.0) == (1.0, "seconds")
    assert time_unit(600.0) == (60.0, "minutes")
    assert time_unit(6 * 3600.0) == (3600.0, "hours")


def test_thinned_points_keep_highest_and_lowest_in_order():
    points = [(float(n), float(n * 7 % 101)) for n in range(1000)]
    few = extremes(points, 100, lambda point: point[1])
    assert len(few) <= 100
    assert few == sorted(few)
    assert max(v for _, v in few) == max(v for _, v in points)
    assert min(v for _, v in few) == min(v for _, v in points)


def test_writes_html(tmp_path):
    path = tmp_path / "probe.html"
    write_probe_plot(path, a_measurement())
    assert "mean 0.500 s" in path.read_text(encoding="utf-8")


@MATPLOTLIB
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("measurement", [a_measurement(), on_the_cpu(), without_steps()])
def test_writes_png(tmp_path, measurement):
    path = tmp_path / "probe.png"
    write_probe_plot(path, measurement)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"--plot probe\.html"):
        write_probe_plot(tmp_path / "probe.svg", a_measurement())


def test_a_narrow_picture_names_what_the_gpu_has():
    root = ET.fromstring(probe_svg(a_measurement(), NARROW))
    texts = ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]
    assert "the GPU has 24.0 GiB" in texts  # an RTX 4090
    assert root.get("viewBox").startswith("0 0 360 ")
    assert all(len(words) <= 56 for words in texts)  # 360 at 6.4 a letter
