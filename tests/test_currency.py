from __future__ import annotations

from datetime import date, timedelta

import pytest
from currency_converter import CurrencyConverter
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.currency import rate_in_words, rates_as_of, usd_per_unit
from outlay.errors import InputError, NotKnown

RATES = CurrencyConverter()


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTLAY_DATA", str(tmp_path / "data"))


def test_a_dollar_is_a_dollar():
    assert usd_per_unit("USD") == (1.0, "")
    assert usd_per_unit("usd", "2024-05-31") == (1.0, "")


@pytest.mark.parametrize("currency", ["EUR", "GBP", "KRW", "JPY", "CHF"])
def test_the_newest_rate_is_the_packages(currency):
    last = RATES.bounds[currency].last_date
    expected = RATES.convert(1, currency, "USD", date=last)
    assert usd_per_unit(currency) == (expected, last.isoformat())
    assert usd_per_unit(currency.lower()) == (expected, last.isoformat())


def test_the_rate_of_a_day_in_the_past():
    # European Central Bank, 29 December 2023: 1 EUR = 1.1050 USD
    assert usd_per_unit("EUR", "2023-12-29") == (1.1050, "2023-12-29")


def test_on_a_weekend_the_friday_before_counts():
    # 30 and 31 December 2023 are a Saturday and a Sunday
    assert usd_per_unit("EUR", "2023-12-31")[0] == usd_per_unit("EUR", "2023-12-29")[0]


def test_a_day_after_the_newest_rate_has_that_one_and_says_of_which_day():
    day_after = (date.fromisoformat(rates_as_of()) + timedelta(days=20)).isoformat()
    assert usd_per_unit("EUR", day_after) == usd_per_unit("EUR")


@pytest.mark.parametrize(("day", "today"), [("2099-01-01", ""), ("2026-12-24", "2026-11-17")])
def test_a_rate_of_a_day_to_come_is_refused(day, today):
    with pytest.raises(InputError, match=f"no exchange rate of EUR on {day}") as caught:
        usd_per_unit("EUR", day, today=today)
    assert "prices refresh --source rates" in caught.value.fix


def test_an_old_rate_is_said_with_what_renews_it():
    assert rate_in_words("2026-10-30", "2026-11-29") == "the rate of 2026-10-30"  # 30 days
    said = rate_in_words("2026-10-30", "2026-11-30")
    assert said.startswith("the rate of 2026-10-30, 31 days old: ")
    assert "outlay prices refresh --source rates" in said
    assert rate_in_words("2020-01-01") == "the rate of 2020-01-01"


def test_before_the_rates_begin():
    with pytest.raises(InputError, match="no exchange rate of EUR on 1998-12-31") as caught:
        usd_per_unit("EUR", "1998-12-31")
    assert "1999-01-04" in caught.value.why
    assert "usd_per_unit" in caught.value.fix


def test_a_currency_that_is_gone_has_its_last_rate():
    # Croatia has the euro since 2023
    usd, day = usd_per_unit("HRK")
    assert day == RATES.bounds["HRK"].last_date.isoformat() < "2023-02"
    assert usd == RATES.convert(1, "HRK", "USD", date=date.fromisoformat(day))


def test_an_unknown_currency_is_refused_with_near_ones():
    with pytest.raises(NotKnown, match="No currency is known as 'KRX'") as caught:
        usd_per_unit("KRX")
    assert "KRW" in caught.value.suggestions
    assert "usd_per_unit" in caught.value.fix


@given(st.floats(0.01, 1e9), st.sampled_from(["EUR", "KRW", "GBP", "INR"]))
@settings(deadline=None)
def test_there_and_back_again(amount, currency):
    usd, _ = usd_per_unit(currency)
    back = RATES.convert(amount * usd, "USD", currency)
    assert back == pytest.approx(amount, rel=1e-9)


def test_on_a_weekend_the_day_before_counts_and_is_said():
    # 2023-12-31 was a Sunday
    rate, day = usd_per_unit("EUR", "2023-12-31")
    assert day == "2023-12-29"
    assert rate == usd_per_unit("EUR", "2023-12-29")[0]


@pytest.mark.parametrize("day", ["2008-12-31", "2015-06-01"])
def test_a_day_in_a_gap_of_years_has_no_rate(day):
    # The bank published no rates of the Icelandic krona from 2008-12-10 to 2018-02-01.
    if day == "2008-12-31":  # three weeks after the last one
        assert usd_per_unit("ISK", day)[1] == "2008-12-09"
        return
    with pytest.raises(InputError, match=f"no exchange rate of ISK near {day}") as caught:
        usd_per_unit("ISK", day)
    assert "2008-12-09" in caught.value.why


@given(st.dates(date(1999, 1, 4), date(2026, 10, 30)), st.sampled_from(["EUR", "KRW", "GBP"]))
@settings(deadline=None, max_examples=50)
def test_the_rate_of_any_day_is_the_packages(day, currency):
    usd, rate_day = usd_per_unit(currency, day.isoformat())
    assert timedelta(0) <= day - date.fromisoformat(rate_day) <= timedelta(days=30)
    assert usd == RATES.convert(1, currency, "USD", date=date.fromisoformat(rate_day))
