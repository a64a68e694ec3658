"""Cards with a price: which row counts, how it ages, and what a card is sold for."""

from __future__ import annotations

import pytest

from outlay.advise.cards import ASKED, cards, is_sensible, resale_usd, worth_buying
from outlay.currency import in_usd
from outlay.facts import CardPrice, Fact, ImportedPrices

TODAY = "2026-11-15"


def card(name, condition, today=TODAY):
    [found] = [one for one in cards(today) if (one.gpu.name, one.condition) == (name, condition)]
    return found


def test_the_newest_row_of_each_condition_counts():
    assert card("RTX 3090", "used").listed_usd == 1207  # of 2026-10-01, not 704 of 2023
    assert card("RTX 5080", "new").listed_usd == 1623
    assert card("RTX 3090", "used", today="2024-01-01").listed_usd == 704


def test_leftover_stock_counts_only_where_nothing_else_does():
    assert card("RTX 3090", "new").is_leftover
    assert not card("RTX 5080", "new").is_leftover


def test_a_range_widens_with_the_age_of_a_price():
    year_old = card("RTX 3090", "used", today="2027-10-01")
    assert year_old.age_months == pytest.approx(12)
    assert year_old.price_usd.low == pytest.approx(0.54 * 1207)
    assert year_old.price_usd.high == pytest.approx(1.34 * 1207)
    assert card("RTX 3090", "used", today="2026-10-01").price_usd.high == 1207


def test_a_used_card_is_sold_for_its_kept_share_less_fees():
    # 1207 x 0.92^2 x (1 - 0.1 fees) = 919.44432
    assert resale_usd(card("RTX 3090", "used"), 2, TODAY).likely == pytest.approx(919.44432)


def test_a_new_card_is_a_used_one_once_it_is_bought():
    # A used RTX 5080 costs 1233: 1233 x 0.92 x 0.9 after a year, not 1623 x ...
    assert resale_usd(card("RTX 5080", "new"), 1, TODAY).likely == pytest.approx(1020.924)


def test_a_new_card_without_a_used_price_loses_the_usual_share():
    # 16000 x 0.74 x 0.92 x 0.9 = 9803.52
    sold = resale_usd(card("RTX PRO 6000 WS", "new"), 1, TODAY)
    assert sold.likely == pytest.approx(9803.52)
    assert sold.low == pytest.approx(16000 * 0.67 * 0.84 * 0.9)


@pytest.mark.parametrize(
    ("name", "condition", "why"),
    [
        ("V100 SXM2 16GB", "used", "server board"),
        ("P40", "used", "no fan"),
        ("H100 PCIe", "used", "servers"),
    ],
)
def test_what_no_desktop_takes(name, condition, why):
    assert why in (card(name, condition).in_a_desktop or "")


def test_worth_buying_has_no_old_price_and_nothing_for_servers():
    listed = worth_buying(TODAY)
    assert {"RTX 3090", "RTX 5070"} <= {one.gpu.name for one in listed}
    assert all(not one.is_old and not one.is_leftover for one in listed)
    assert {one.condition for one in worth_buying(TODAY, used=False)} == {"new"}


def test_amd_is_looked_at_unless_it_is_left_out():
    assert "RX 7900 XTX" in {one.gpu.name for one in worth_buying(TODAY)}
    assert {one.gpu.vendor for one in worth_buying(TODAY, amd=False)} == {"NVIDIA"}


def test_an_old_price_and_ending_software_are_not_sensible():
    assert not is_sensible(card("RTX 2080 Ti", "used"))  # of 2023
    assert not is_sensible(card("P40", "used"))  # compute capability 6.1
    assert is_sensible(card("RTX 3090", "used"))


def test_an_imported_price_counts_where_it_is_the_newest():
    def seen(usd, day, unit="USD"):
        fact = Fact(text=str(usd), unit=unit, source="your price list", as_of=day)
        return ImportedPrices(cards=(CardPrice(gpu="RTX 3090", condition="used", fact=fact),))

    def price(imported):
        return next(one for one in cards(TODAY, imported) if one.name == "used RTX 3090")

    assert price(seen(700, "2026-11-01")).listed_usd == 700
    assert price(seen(700, "2026-10-01")).source == "your price list"  # of one day, one's own
    assert price(seen(700, "2026-01-01")).listed_usd == 1207
    assert price(seen(700, "2027-01-01")).listed_usd == 1207  # a day to come
    assert price(seen(600, "2026-11-01", "EUR")).listed_usd == pytest.approx(600 * in_usd("EUR"))
    assert resale_usd(price(seen(700, "2026-11-01")), 0, TODAY).likely == pytest.approx(630)


@pytest.mark.parametrize(
    ("name", "condition", "least", "usd"),
    [
        # 1207 / 1856.34 of a used RTX 3090: what one seller in the middle asks
        ("RTX PRO 6000 WS", "new", 0.65, 16000),
        # 1207 / 1537.03 of it: the mean of the three cheapest, here of 1599, 1800 and 1999.99
        ("RTX 3090 Ti", "used", 0.79, 1799.66),
    ],
)
def test_what_sellers_ask_may_be_had_for_less(name, condition, least, usd):
    asked = card(name, condition, today="2026-10-10")
    assert any(words in asked.note for words in ASKED)
    assert asked.price_usd.low == pytest.approx(least * usd)
    assert asked.price_usd.likely == usd
