"""Charts of prices: lines lie where the prices do, and files stand alone."""

from __future__ import annotations

import re
from datetime import date
from xml.etree import ElementTree

import pytest

from outlay.prices.history import PriceHistory, PricePoint, PriceSeries, price_history
from outlay.report.price_plot import (
    CHART_ROWS,
    NARROW,
    WIDE,
    apart,
    colours_of,
    current_series,
    day_number,
    history_html,
    history_svg,
    span,
    stretches,
    tenancy_svg,
    terminal_chart,
)
from outlay.report.price_report import provider_years

SVG = "{http://www.w3.org/2000/svg}"


def point(day, usd, *, until=None, middle=None, provider="north"):
    return PricePoint(
        at=day,
        cheapest_usd_per_gpu_hour=usd,
        median_usd_per_gpu_hour=middle or usd,
        cheapest_provider=provider,
        providers=1,
        machine_types=1,
        current_until=until or day,
        source="made",
    )


def series(*points, provider=""):
    return PriceSeries(provider=provider, tenancy="on-demand", points=points)


def two_levels() -> PriceSeries:
    """$4 through 2024, $1 through 2025."""
    return series(
        point("2024-01-01", 4.0, until="2024-12-31"), point("2025-01-01", 1.0, until="2025-12-31")
    )


DAYS = (date(2024, 1, 1).toordinal(), date(2025, 12, 31).toordinal())


def test_the_line_is_high_before_and_low_after():
    chart = terminal_chart(two_levels(), DAYS, 60, ascii_only=True)
    assert len(chart) == CHART_ROWS + 2
    # 60 columns less 10 of the axis; the top is 4 * 1.08 = 4.32: $4 lies in the first of nine rows
    # (1 - 4 / 4.32 = 0.07), $1 in the seventh (1 - 1 / 4.32 = 0.77, of nine 6.9)
    high, low = chart[0][10:], chart[6][10:]
    assert set(high) == {"*"}
    assert 24 <= len(high) <= 26  # a half of the columns
    assert low.lstrip(" ").strip("*") == ""
    assert low.index("*") in (25, 26)
    assert chart[-1].split() == ["2024-01", "2025", "2025-12"]
    assert "$4" in chart[0]


def test_braille_has_the_same_shape():
    chart = terminal_chart(two_levels(), DAYS, 60)
    assert re.search(r"[⠁-⣿]{24}", chart[0])
    assert re.search(r"[⠁-⣿]{24}$", chart[6])
    assert max(map(len, chart)) <= 60


def test_the_middle_is_dotted_and_gaps_are_blank():
    made = series(
        point("2024-01-01", 2.0, middle=4.0, until="2024-06-30"),
        point("2025-07-01", 2.0, middle=4.0, until="2025-12-31"),
    )
    chart = terminal_chart(made, DAYS, 60, ascii_only=True)
    middle = chart[0][10:]
    assert middle.startswith("....")
    assert "   " in middle.strip()
    assert [len(list(stretch)) for stretch in stretches(made)] == [1, 1]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_a_chart_keeps_its_width(width):
    history = price_history("H100 SXM")
    drawn = terminal_chart(history.of("spot"), span(history, ["spot"]), width)
    assert max(map(len, drawn)) <= max(width, 20)


def test_one_point_alone_is_drawn():
    chart = terminal_chart(series(point("2026-11-14", 1.5)), (739000, 739001), 60)
    assert len(chart) == CHART_ROWS + 2


@pytest.fixture(scope="module")
def history() -> PriceHistory:
    return price_history("A100 80GB")


def test_the_page_stands_alone(history):
    html = history_html(history, history, [], "2026-11-17")
    assert "<script" not in html
    assert not re.search(r'(?:href|src)="|url\(|@import', html)
    assert re.findall(r"https?://[^\"' )]+", html) == ["http://www.w3.org/2000/svg"] * 4
    assert 'name="viewport"' in html
    assert "prefers-color-scheme: dark" in html
    assert "max-width: 700px" in html
    assert len(html) < 300_000


def test_drawings_are_xml_with_a_line_for_each_provider(history):
    for layout in (WIDE, NARROW):
        root = ElementTree.fromstring(tenancy_svg(history, "on-demand", layout))
        assert root.get("viewBox") == f"0 0 {layout.width} {layout.height}"
        lines = root.findall(f".//{SVG}path")
        assert len(lines) >= len(history.providers("on-demand"))
        for one in lines:
            numbers = [float(x) for x in re.findall(r"[HM]([\d.]+)", one.get("d"))]
            assert layout.left - 0.1 <= min(numbers)
            assert max(numbers) <= layout.width - layout.right + 0.1
    whole = ElementTree.fromstring(history_svg(history))
    assert whole.find(f"{SVG}style") is not None


def test_points_say_what_they_are(history):
    root = ElementTree.fromstring(tenancy_svg(history, "on-demand", WIDE))
    titles = {title.text for title in root.iter(f"{SVG}title")}
    # runpod's 1x_A100-80GB_SECURE at $1.39 on the day of the snapshot
    assert any(text.startswith("$1.39 at runpod, 2026-08-22") for text in titles)


def test_a_provider_has_one_colour_and_its_name_where_it_sells_now(history):
    colours = colours_of(history)
    assert len(set(colours.values())) == len(colours)
    names = [one.provider for one in current_series(history, "on-demand")]
    prices = [
        one.points[-1].cheapest_usd_per_gpu_hour for one in current_series(history, "on-demand")
    ]
    assert prices == sorted(prices, reverse=True)
    assert "azure" not in names  # nobody has renewed its list since 2024-08
    sellers = {y.provider for y in provider_years(history, "on-demand") if y.is_current}
    assert set(names) == sellers - {""}


def test_names_are_moved_apart_and_stay_inside():
    # 11 would overlap 10: moved to 20; 95 and 96 have to end at 100
    assert apart([10, 11, 50, 95, 96], 10, 100) == [10, 20, 50, 90, 100]
    assert apart([], 10, 100) == []


def test_a_day_has_its_number():
    assert day_number("2026-11-16T20:15:00Z") - day_number("2026-11-15") == 1
