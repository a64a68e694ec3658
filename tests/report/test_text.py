"""How figures are written: rounded for people, unknown said as unknown."""

from __future__ import annotations

import pytest

from outlay.report.text import (
    amounts_in,
    clock,
    count,
    duration,
    duration_range,
    energy,
    flops,
    gib,
    in_currency,
    in_own_currency,
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
    ("code", "usd_per_unit", "amount_usd", "text"),
    [
        ("EUR", 1.25, 0.35, "€0.28"),
        ("EUR", 1.25, 12.30, "€9.84"),
        ("EUR", 1.25, 0.05, "€0.040"),
        ("EUR", 1.25, 0.01, "<€0.01"),
        ("EUR", 1.25, -5, "-€4.00"),
        ("EUR", 1.25, 1250, "€1,000"),
        # without cents
        ("KRW", 0.00075, 0.225, "₩300"),
        ("KRW", 0.00075, 0.0005, "<₩1"),
        ("JPY", 0.0075, 12.3, "¥1,640"),
        ("jpy", 0.0075, 0, "¥0"),
        # a thousandth is the smallest coin
        ("KWD", 3.25, 0.65, "KWD 0.200"),
        ("CHF", 1.25, 2, "CHF 1.60"),
        ("USD", 1.0, 12.30, "$12.30"),
    ],
)
def test_amounts_in_a_currency_of_the_users(code, usd_per_unit, amount_usd, text):
    with amounts_in(code, usd_per_unit):
        assert usd(amount_usd) == text
    assert usd(12.30) == "$12.30"


@pytest.mark.parametrize(
    ("code", "usd_per_unit", "text", "expected"),
    [
        ("EUR", 1.25, "costs $3.75 more", "costs €3.00 more"),
        ("EUR", 1.25, "9.00 h x $0.75/h and $1,250", "9.00 h x €0.60/h and €1,000"),
        # as many digits as there were, three at least: 150.67 won, 9,706.67 won
        ("KRW", 0.00075, "2 kWh x $0.113/kWh", "2 kWh x ₩151/kWh"),
        ("KRW", 0.00075, "costs $7.28 more", "costs ₩9,710 more"),
        ("EUR", 1.25, "$0.00 is nothing", "€0 is nothing"),
        ("EUR", 1.25, "US$5, $HOME and 5 $", "US$5, $HOME and 5 $"),
        ("USD", 1.0, "costs $3.75 more", "costs $3.75 more"),
    ],
)
def test_words_with_amounts_in_a_currency_of_the_users(code, usd_per_unit, text, expected):
    with amounts_in(code, usd_per_unit):
        assert in_own_currency(text) == expected


def test_a_range_in_a_currency_of_the_users():
    # $120 and $310 at $1.25; $0.15 and $0.30 at $0.00075
    with amounts_in("EUR", 1.25):
        assert usd_range(Estimate(low=120, likely=200, high=310)) == "€96.00-248.00"
    with amounts_in("KRW", 0.00075):
        assert usd_range(Estimate(low=0.15, likely=0.2, high=0.3)) == "₩200-400"


def test_a_page_in_dollars_has_small_amounts_of_another_currency_beside():
    assert in_currency(0.35, "EUR", 1.25) == "$0.35 (0.28 EUR)"
    assert in_currency(0.225, "KRW", 0.00075) == "$0.23 (300 KRW)"


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
