"""How figures are written: rounded for people, unknown said as unknown."""

from __future__ import annotations

import pytest

from outlay.report.text import (
    clock,
    count,
    duration,
    duration_range,
    energy,
    flops,
    gib,
    magnitude,
    percent,
    rate,
    share,
    size,
    step_time,
    tera,
    usd,
    usd_range,
)
from outlay.uncertainty import Estimate
from outlay.units import DAY_S, GIB, HOUR_S, KIB, MIB


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "$0.00"),
        (-5, "-$5.00"),
        (0.0347, "$0.035"),
        (0.0099, "<$0.01"),
        (0.00161, "<$0.01"),
        (0.1, "$0.10"),
        (0.104, "$0.10"),
        (0.106, "$0.11"),
        (1, "$1.00"),
        (12.3, "$12.30"),
        (12.345678, "$12.35"),
        (999.99, "$999.99"),
        (1000, "$1,000"),
        (1234.4, "$1,234"),
        (1234.6, "$1,235"),
        (1_000_000, "$1,000,000"),
    ],
)
def test_usd(amount, text):
    assert usd(amount) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (120, 310, "$120.00-310.00"),
        (900, 1200, "$900.00-1,200"),
        (0.05, 0.2, "$0.050-0.20"),
        (7, 7, ""),
        (0.001, 0.002, ""),
    ],
)
def test_usd_range(low, high, text):
    assert usd_range(Estimate(low=low, likely=low, high=high)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.083, "83.0 ms"),
        (0.9996, "999.6 ms"),
        (1, "1.0 s"),
        (12, "12.0 s"),
        (59.9, "59.9 s"),
        (60, "1 min"),
        # 35 x 60 s
        (2100, "35 min"),
        # 7 x 3600 s
        (25_200, "7.0 h"),
        (24 * HOUR_S, "24.0 h"),
        (47 * HOUR_S, "47.0 h"),
        (48 * HOUR_S, "2.0 d"),
        # 4.2 x 86,400 s
        (362_880, "4.2 d"),
        (1500 * DAY_S, "1,500.0 d"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_duration_range():
    # 3600 s and 9000 s = 2.5 h
    assert duration_range(Estimate(low=3600, likely=7200, high=9000)) == "1.0 h - 2.5 h"


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (GIB, "1.0 GiB"),
        (24 * GIB, "24.0 GiB"),
        (GIB // 2, "0.5 GiB"),
        (4502.1 * GIB, "4,502.1 GiB"),
    ],
)
def test_gib(amount, text):
    assert gib(amount) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0"), (999, "999"), (1000, "1,000"), (115_305_030.0, "115,305,030")],
)
def test_count(amount, text):
    assert count(amount) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(8.141e12, "8.141"), (312e12, "312"), (989.4e12, "989.4"), (1979e12, "1,979")],
)
def test_tera(amount, text):
    assert tera(amount) == text


@pytest.mark.parametrize("write", [usd, duration, gib, count])
def test_unknown_is_said(write):
    assert write(None) == "unknown"


def test_arithmetic_the_hardware_lacks_is_a_dash():
    assert tera(None) == "-"


@pytest.mark.parametrize(
    ("amount_bytes", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1.5 * KIB, "1.50 KiB"),
        (12.34 * MIB, "12.3 MiB"),
        (640 * MIB, "640 MiB"),
        (9.996 * GIB, "10.0 GiB"),
        (5000 * GIB, "5,000 GiB"),
    ],
)
def test_size(amount_bytes, text):
    assert size(amount_bytes) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, ""),
        (12, "12 FLOP"),
        (1024, "1.02 kFLOP"),
        (1.05e6, "1.05 MFLOP"),
        (2.5e13, "25.0 TFLOP"),
    ],
)
def test_flops(amount, text):
    assert flops(amount) == text


def test_share():
    assert share(1, 8) == "12.5 %"
    assert share(0, 8) == share(0, 0) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00123, "1.23 ms"),
        (0.0831, "83.1 ms"),
        (0.3844, "0.384 s"),
        (0.9996, "1.00 s"),
        (12.44, "12.4 s"),
        (1234.4, "1,234 s"),
    ],
)
def test_step_time(seconds, text):
    assert step_time(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1:00 min"),
        (185, "3:05 min"),
        (7620, "2:07 h"),
        (3600, "1:00 h"),
    ],
)
def test_clock(seconds, text):
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("joules", "text"), [(50, "50.0 J"), (4200, "4.20 kJ"), (3.6e6, "1.00 kWh"), (0, "0.00 J")]
)
def test_energy(joules, text):
    assert energy(joules) == text


def test_measured_shares_rates_and_large_counts():
    assert (percent(0.974), percent(1.0), percent(0.0)) == ("97 %", "100 %", "0 %")
    assert (rate(0.384), rate(66.66), rate(1240.4)) == ("0.38", "66.7", "1,240")
    assert (magnitude(900), magnitude(7200), magnitude(21.3e6)) == ("900", "7.20 k", "21.3 M")
    assert magnitude(1.24e9) == "1.24 B"
