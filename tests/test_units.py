from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.errors import InputError
from outlay.units import (
    DAY_S,
    GB,
    GIB,
    HOUR_S,
    MIB,
    MONTH_S,
    YEAR_S,
    days_after,
    days_between,
    duration_s,
    size_bytes,
)


def test_a_month_is_thirty_days_and_a_year_365():
    assert MONTH_S == 30 * 24 * 3600
    assert YEAR_S == 365 * 24 * 3600


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("35m", 35 * 60),
        ("35 min", 35 * 60),
        ("1.5h", 5400),
        ("1h30m", 3600 + 30 * 60),
        ("1 h 30 m", 3600 + 30 * 60),
        ("3d", 3 * 86400),
        ("1w", 7 * 86400),
        ("1 week", 7 * 86400),
        ("2 weeks", 14 * 86400),
        ("1 month", 30 * 86400),
        ("1 year", 365 * 86400),
        ("1_000s", 1000),
        ("1e3s", 1000),
        ("2H", 7200),
    ],
)
def test_duration_s(text, seconds):
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", " ", "35", "m", "-5m", "5 parsecs", "1h30", "1h and 5m", "one hour", "nan s"]
)
def test_duration_s_refused(text):
    with pytest.raises(InputError, match="not a duration") as caught:
        duration_s(text)
    assert caught.value.exit_code == 2
    assert "35m" in caught.value.fix


@given(st.integers(0, 400), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
@settings(deadline=None)
def test_duration_s_of_parts_is_their_sum(days, hours, minutes, seconds):
    text = f"{days}d{hours}h{minutes}m{seconds}s"
    assert duration_s(text) == days * DAY_S + hours * HOUR_S + minutes * 60 + seconds


@given(st.floats(1e-3, 1e9), st.sampled_from(["s", "m", "h", "d", "week", "month", "y"]))
@settings(deadline=None)
def test_duration_s_reads_back_any_number(number, unit):
    assert duration_s(f"{number!r} {unit}") == pytest.approx(number * duration_s(f"1{unit}"))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("13.8GB", 13_800_000_000),
        ("24GiB", 24 * 1024**3),
        ("512 MiB", 512 * 1024**2),
        ("600mb", 600_000_000),
        ("1TB", 10**12),
        ("1TiB", 1024**4),
        ("100B", 100),
        ("1_000 KB", 1_000_000),
        ("2KiB", 2048),
    ],
)
def test_size_bytes(text, number):
    assert size_bytes(text) == number


def test_size_bytes_gb_is_not_gib():
    assert size_bytes("1GB") == GB == 10**9
    assert size_bytes("1GiB") == GIB == 2**30
    assert size_bytes("1MiB") == MIB == 2**20


@pytest.mark.parametrize("text", ["", "24", "GB", "-1GB", "24 gigs", "1GB 2MB", "1h", "GB 24"])
def test_size_bytes_refused(text):
    with pytest.raises(InputError, match="not a size") as caught:
        size_bytes(text)
    assert repr(text) in caught.value.what


@given(
    st.integers(0, 10**6),
    st.sampled_from(["B", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"]),
    st.sampled_from(["", " ", "  "]),
    st.sampled_from([str.lower, str.upper, str]),
)
@settings(deadline=None)
def test_size_bytes_is_the_number_times_the_unit(number, unit, space, case):
    assert size_bytes(f"{number}{space}{case(unit)}") == number * size_bytes(f"1{unit}")


@pytest.mark.parametrize(
    ("day", "days", "after"),
    [
        ("2024-02-28", 1, "2024-02-29"),
        ("2026-01-01", -1, "2025-12-31"),
        ("2025-01-10", 90, "2025-04-10"),  # 21 + 28 + 31 + 10
        ("2026-11-17", 0, "2026-11-17"),
    ],
)
def test_days_after(day, days, after):
    assert days_after(day, days) == after
    assert days_between(day, after) == days
