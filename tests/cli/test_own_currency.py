"""A workload file in euros is answered in euros, everywhere but in JSON."""

from __future__ import annotations

import re

import pytest

from outlay.currency import rates_as_of, usd_per_unit

EUROS = """
name = "a run"
currency = "{currency}"
{rate}
[step]
profile = "resnet50"
batch_size = 32
[length]
time = "6h"
[usage]
setup = "1h"
[data]
size = "10GB"
preparation = "1h"
[limits]
budget = 20
[consider]
bundled = false
[[machine]]
name = "desktop"
gpu = "RTX 3090"
purchase = 1000
use = "4000h"
electricity_per_kwh = 0.3
[[offer]]
provider = "north"
gpu = "T4"
price_per_hour = 0.05
[[offer]]
provider = "south"
gpu = "A10"
price_per_hour = 5
[[offer]]
provider = "west"
gpu = "L4"
"""


@pytest.fixture
def file(tmp_path):
    def write(currency="EUR", rate="usd_per_unit = 1.25", name="run.toml", **changes):
        path = tmp_path / name
        text = EUROS.format(currency=currency, rate=rate)
        for before, after in changes.items():
            text = text.replace(before, after)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_every_amount_of_a_plan_is_in_euros(outlay, file):
    path = file()
    page, document = outlay("plan", path).out, outlay("plan", path, "--json").document
    assert "$" not in page
    assert "budget €20.00" in page
    north = next(one for one in document["options"] if one["provider"] == "north")
    # 0.05 euros an hour: set-up, preparation and six hours are 8 h, and 40 cents
    assert north["cost_usd"]["likely"] == pytest.approx(8 * 0.05 * 1.25, rel=0.02)
    assert "north (quote 1), on-demand: €0.40," in page
    row = next(line for line in page.splitlines() if " north " in line and "on-demand  " in line)
    assert " €0.050 " in row
    # south is 8 h x 5 euros: 20 over the budget
    assert re.search(r"over budget by €2\d\.\d\d", page)


@pytest.mark.parametrize(
    "options",
    [
        ("--explain", "north", "--sources"),
        ("--explain", "desktop"),
        ("--vary", "length.time=3h,6h"),
        ("--alert-below", "5"),
    ],
)
def test_every_page_of_a_plan_is_in_euros(outlay, file, options):
    page = outlay("plan", file(), *options).out
    assert "€" in page
    assert "$" not in page


def test_the_bill_has_its_sum_in_dollars_beside(outlay, file):
    page = outlay("plan", file(), "--explain", "north").out
    total = next(line for line in page.splitlines() if line.startswith("  total"))
    # 40 cents at 1.25
    assert "€0.40" in total
    assert total.endswith("0.50 USD")
    assert "x €0.050/h" in page


def test_a_difference_in_euros_and_of_two_currencies(outlay, file):
    first, second = file(), file(name="b.toml", **{"0.05": "0.10"})
    page = outlay("diff", first, second).out
    # 8 h at 5 more cents
    assert "+€0.40" in page
    assert "$" not in page
    won = file(currency="KRW", rate="usd_per_unit = 0.001", name="won.toml", **{"0.05": "50"})
    assert "$" in outlay("diff", first, won).out


def test_json_has_dollars_the_currency_and_its_rate(outlay, file):
    found = outlay("plan", file(), "--json").document
    stated = {key: found[key] for key in ("currency", "usd_per_unit", "rate_as_of")}
    assert stated == {"currency": "EUR", "usd_per_unit": 1.25, "rate_as_of": None}
    found = outlay("plan", file(rate="currency_day = 2026-01-05"), "--json").document
    assert found["usd_per_unit"] == usd_per_unit("EUR", "2026-01-05")[0]
    assert found["rate_as_of"] == "2026-01-05"
    assert not any("€" in text for text in map(str, found["options"]))


def test_currencies_without_cents(outlay, file):
    path = file(currency="KRW", rate="usd_per_unit = 0.00075", **{"0.05": "50", "= 20": "= 20000"})
    page = outlay("plan", path).out
    # 8 h at 50 won, and what a disk without a price usually costs
    assert re.search(r" north .* ₩4\d\d\*", page)
    assert "budget ₩20,000" in page
    assert not re.search(r"₩\d[\d,]*\.\d\d", page)


@pytest.mark.parametrize(
    ("day", "why"),
    [
        # commands run on 2026-11-15
        ("2099-01-01", "Today is 2026-11-15."),
        ("2026-11-16", "Today is 2026-11-15."),
        ("1990-01-01", "The rates at hand begin on 1999-01-04."),
    ],
)
@pytest.mark.parametrize("options", [(), ("--vary", "length.time=3h,6h")])
def test_a_rate_that_nobody_knows_is_refused(outlay, file, day, why, options):
    ended = outlay("plan", file(rate=f"currency_day = {day}"), *options)
    assert ended.code == 2
    assert ended.out == ""
    what, *rest = ended.err.splitlines()
    assert what == f"outlay: There is no exchange rate of EUR on {day}."
    assert rest[0].strip() in (why, f"The rates at hand end on {rates_as_of()}.")
    assert "usd_per_unit = " in rest[1]


def test_a_rate_of_today_is_the_newest(outlay, file):
    found = outlay("plan", file(rate="currency_day = 2026-11-15"), "--json").document
    assert found["rate_as_of"] == rates_as_of()
