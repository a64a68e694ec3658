"""Being told when a price falls: what counts as below, and that nobody is told twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import an_offer

from outlay.errors import InputError
from outlay.offers.catalog import OfferFilter, doubt_kinds, gpu_filter
from outlay.offers.price_book import PriceBook
from outlay.prices import alerts
from outlay.prices.alerts import SentAlerts, keep_sent_alerts, offers_below, sent_alerts


def book(*offers):
    return PriceBook(name="made up", kind="past", as_of="2026-11-01", listed=offers)


def h100(instance, gpus, price, spot=None, doubts=()):
    return replace(
        an_offer(),
        provider="lambda",
        instance=instance,
        gpu="H100 SXM",
        gpus=gpus,
        price_usd_per_hour=price,
        spot_usd_per_hour=spot,
        doubts=tuple(doubt_kinds()[word] for word in doubts),
    )


H100 = OfferFilter(gpus=(gpu_filter("H100"),))


def found(prices, below, **filters):
    cheap = offers_below(prices, replace(H100, **filters), below, "2026-11-01")
    return [(each.offer.instance, each.tenancy, each.usd_per_gpu_hour) for each in cheap]


def test_a_price_is_that_of_one_gpu():
    prices = book(h100("eight", 8, 16.0), h100("one", 1, 2.5), h100("two", 2, 3.0))
    # 16 / 8 = 2.0 is not below 2.0; 3 / 2 = 1.5 is
    assert found(prices, 2.0) == [("two", "on-demand", 1.5)]
    assert found(prices, 2.01) == [("two", "on-demand", 1.5), ("eight", "on-demand", 2.0)]


def test_the_cheaper_tenancy_unless_one_is_asked_for():
    prices = book(h100("one", 1, 2.5, spot=1.2))
    assert found(prices, 3.0) == [("one", "spot", 1.2)]
    assert found(prices, 3.0, spot=False) == [("one", "on-demand", 2.5)]
    assert found(prices, 2.0, spot=False) == []


def test_what_is_doubtful_raises_no_alarm():
    prices = book(
        h100("doubted", 1, 0.5, doubts=("suspiciously cheap",)),
        h100("not sold", 1, 0.6, doubts=("not sold on demand",)),
        h100("noted", 1, 0.7, doubts=("region not verified",)),
    )
    assert found(prices, 2.0) == [("noted", "on-demand", 0.7)]


def test_another_gpu_raises_none():
    assert found(book(replace(h100("a100", 1, 0.5), gpu="A100 80GB SXM")), 2.0) == []


def test_nobody_is_told_twice():
    sent = SentAlerts(figures={}).and_now([("lambda one", 1.9)], "2026-11-01")
    assert not sent.is_news("lambda one", 1.9, "2026-11-01")
    assert not sent.is_news("lambda one", 1.95, "2026-11-01")
    assert sent.is_news("lambda one", 1.8, "2026-11-01")
    assert sent.is_news("lambda one", 1.9, "2026-11-02")
    assert sent.is_news("lambda two", 1.9, "2026-11-01")


def test_what_was_sent_is_kept(tmp_path):
    path = tmp_path / "new" / "alerts.json"
    keep_sent_alerts(SentAlerts(figures={"one": (1.5, "2026-11-01")}), path)
    assert sent_alerts(path).figures == {"one": (1.5, "2026-11-01")}


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"one": 2}', '{"one": [1, "no day"]}'])
def test_a_damaged_file_is_no_file(tmp_path, text):
    path = tmp_path / "alerts.json"
    path.write_text(text)
    assert sent_alerts(path).figures == {}


def test_a_wrong_address_is_refused_and_not_shown():
    with pytest.raises(InputError) as error:
        alerts.check_addresses(["blah://user:secret@host"])
    assert "blah" in str(error.value)
    assert "secret" not in str(error.value)
