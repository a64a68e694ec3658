"""What became dearer, cheaper, new or gone since a day, and where the comparison begins."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.prices.past_prices import KeptPrices, price

from outlay.currency import usd_per_unit
from outlay.errors import NotKnown
from outlay.offers.catalog import snapshot_offers
from outlay.prices.price_changes import price_changes
from outlay.prices.price_store import PriceStore
from outlay.prices.refresh import refresh_prices
from outlay.prices.skypilot import SkyPilotCatalogue
from outlay.prices.sources import Reply, Validators

HAND_CHECKED = Path(__file__).parent / "data" / "changes_2026-06-01_2026-08-22.csv"


def found(changes):
    return {
        (one.instance, one.tenancy): (one.kind, one.before_usd_per_hour, one.after_usd_per_hour)
        for one in changes.changes
    }


def test_dearer_cheaper_new_and_gone():
    store = KeptPrices(
        [
            *(price("2026-10-01", 2.0, 1.0, instance=name) for name in "abcd"),
            price("2026-11-01", 2.5, 1.0, instance="a"),
            price("2026-11-01", 2.0, 0.5, instance="b"),
            price("2026-11-01", instance="c"),
            price("2026-11-01", 4.0, instance="e"),
        ]
    )
    changes = price_changes("2026-10-01", store=store)
    assert found(changes) == {
        ("a", "on-demand"): ("dearer", 2.0, 2.5),
        ("b", "spot"): ("cheaper", 1.0, 0.5),
        ("c", "on-demand"): ("gone", 2.0, None),
        ("c", "spot"): ("gone", 1.0, None),
        ("e", "on-demand"): ("new", None, 4.0),
    }
    dearer = next(one for one in changes.changes if one.kind == "dearer")
    assert dearer.change_fraction == pytest.approx(0.25)
    (total,) = changes.totals
    assert (total.dearer, total.cheaper, total.new, total.gone) == (1, 1, 1, 2)
    assert total.same == 4  # a spot, b on demand, d both
    assert (total.begins, total.ends, total.from_snapshot) == ("2026-10-01", "2026-11-01", False)


def test_the_largest_change_of_a_provider_is_first_up_or_down():
    store = KeptPrices(
        [
            *(price("2026-10-01", 2.0, instance=name) for name in "abc"),
            price("2026-10-01", 2.0, provider="aws", instance="z"),
            price("2026-11-01", 2.2, instance="a"),  # 1.1 times
            price("2026-11-01", 1.0, instance="b"),  # half, as much as twice
            price("2026-11-01", 3.0, instance="c"),  # 1.5 times
            price("2026-11-01", 2.1, provider="aws", instance="z"),
            price("2026-11-01", 2.1, instance="new"),
        ]
    )
    changes = price_changes("2026-10-01", store=store).changes
    assert [one.instance for one in changes] == ["z", "b", "c", "a", "new"]


@pytest.mark.parametrize(("least", "listed"), [(0.01, 1), (0.1, 0), (0.0, 2)])
def test_small_changes_are_not_listed_unless_asked_for(least, listed):
    store = KeptPrices(
        [
            price("2026-10-01", 2.0, 1.0),
            price("2026-11-01", 2.1, 1.005),  # 5 % and 0.5 %
        ]
    )
    changes = price_changes("2026-10-01", min_change=least, store=store)
    assert len(changes.changes) == listed
    assert changes.totals[0].same == 2 - listed


def test_the_last_prices_at_or_before_the_day_are_compared():
    store = KeptPrices(
        [price("2026-09-01", 1.0), price("2026-10-01", 2.0), price("2026-11-01", 3.0)]
    )
    for since, before, begins in [
        ("2026-09-15", 1.0, "2026-09-01"),
        ("2026-10-01", 2.0, "2026-10-01"),
        ("2026-10-02", 2.0, "2026-10-01"),
    ]:
        changes = price_changes(since, store=store)
        assert found(changes)[("gpu_1x", "on-demand")] == ("dearer", before, 3.0)
        assert changes.totals[0].begins == begins
    assert price_changes("2026-11-01", store=store).changes == ()
    until = price_changes("2026-09-01", until="2026-10-31", store=store)
    assert found(until)[("gpu_1x", "on-demand")] == ("dearer", 1.0, 2.0)
    assert until.totals[0].ends == "2026-10-01"


def test_two_refreshes_on_one_day_are_told_apart():
    store = KeptPrices(
        [
            price("2026-10-01", 1.0),
            price("2026-11-01T08:00:00Z", 2.0),
            price("2026-11-01T20:00:00Z", 3.0),
        ]
    )
    by_day = price_changes("2026-11-01", store=store)
    assert found(by_day)[("gpu_1x", "on-demand")] == ("dearer", 2.0, 3.0)
    morning = price_changes("2026-11-01T07:59:59Z", store=store)
    assert found(morning)[("gpu_1x", "on-demand")] == ("dearer", 1.0, 3.0)
    noon = price_changes("2026-11-01T12:00:00Z", store=store)
    assert found(noon)[("gpu_1x", "on-demand")] == ("dearer", 2.0, 3.0)
    assert price_changes("2026-11-01T20:00:00Z", store=store).changes == ()


def test_without_prices_by_then_it_begins_with_the_first_kept():
    store = KeptPrices(
        [
            price("2026-10-01", 1.0, source="gpuhunt"),
            price("2026-11-01", 2.0, source="gpuhunt"),
            price("2026-11-01", 9.0, source="gpuhunt", provider="vultr"),
        ]
    )
    changes = price_changes("2026-06-01", store=store)
    assert found(changes) == {("gpu_1x", "on-demand"): ("dearer", 1.0, 2.0)}
    first, second = changes.totals
    assert (first.provider, first.begins, first.ends) == ("lambda", "2026-10-01", "2026-11-01")
    assert (second.provider, second.begins, second.ends) == ("vultr", "2026-11-01", "2026-11-01")


def test_the_bundled_snapshot_is_the_first_of_what_it_has():
    offers = [offer for offer in snapshot_offers() if offer.provider == "verda"]
    first, second, *rest = offers
    listed = [
        price(
            "2026-11-01",
            offer.price_usd_per_hour,
            offer.spot_usd_per_hour,
            provider="verda",
            instance=offer.instance,
            region=offer.region,
            gpu=offer.gpu,
            gpus=offer.gpus,
        )
        for offer in rest
    ]
    dearer = price(
        "2026-11-01",
        2 * first.price_usd_per_hour,
        first.spot_usd_per_hour,
        provider="verda",
        instance=first.instance,
        region=first.region,
        gpu=first.gpu,
        gpus=first.gpus,
    )
    changes = price_changes("2026-06-01", store=KeptPrices([dearer, *listed]))
    (total,) = changes.totals
    assert (total.begins, total.ends, total.from_snapshot) == ("2026-08-22", "2026-11-01", True)
    assert {(one.instance, one.kind) for one in changes.changes} == {
        (first.instance, "dearer"),
        (second.instance, "gone"),
    }


def test_only_one_provider_or_gpu():
    store = KeptPrices(
        [
            price("2026-10-01", 1.0),
            price("2026-10-01", 1.0, provider="aws", gpu="T4"),
            price("2026-11-01", 2.0),
            price("2026-11-01", 3.0, provider="aws", gpu="T4"),
        ]
    )
    assert {one.provider for one in price_changes("2026-10-01", store=store).changes} == {
        "aws",
        "lambda",
    }
    (one,) = price_changes("2026-10-01", provider="Lambda", store=store).changes
    assert one.provider == "lambda"
    (one,) = price_changes("2026-10-01", gpu="tesla t4", store=store).changes
    assert one.gpu == "T4"
    with pytest.raises(NotKnown):
        price_changes("2026-10-01", gpu="H900", store=store)
    with pytest.raises(NotKnown):
        price_changes("2026-10-01", provider="lamda", store=store)


def test_zones_count_as_their_region():
    store = KeptPrices(
        [
            price("2026-10-01", 2.0, 1.0, zone="a"),
            price("2026-10-01", 2.0, 0.8, zone="b"),
            price("2026-11-01", 2.0, 0.6, zone="a"),
        ]
    )
    assert found(price_changes("2026-10-01", store=store)) == {
        ("gpu_1x", "spot"): ("cheaper", 0.8, 0.6)
    }


def test_one_price_for_any_region_is_compared_with_each():
    store = KeptPrices(
        [
            price("2026-10-01", 2.0, region="any"),
            price("2026-11-01", region="any"),
            price("2026-11-01", 2.0, region="us-1"),
            price("2026-11-01", 2.5, region="us-2"),
        ]
    )
    (one,) = price_changes("2026-10-01", store=store).changes
    assert (one.region, one.kind, one.before_usd_per_hour) == ("us-2", "dearer", 2.0)


def test_nothing_kept_is_nothing_changed():
    changes = price_changes("2026-10-01", store=KeptPrices([]))
    assert (changes.changes, changes.totals) == ((), ())


USD = st.one_of(st.none(), st.floats(0.01, 100))
LISTS = st.dictionaries(st.sampled_from("abcdef"), st.tuples(USD, USD), max_size=6)


@given(LISTS, LISTS)
@settings(max_examples=60)
def test_every_price_is_counted_once(before, after):
    gone = {name: (None, None) for name in before if name not in after}
    store = KeptPrices(
        [
            price("2026-10-01", 1.0, instance="always"),
            *(price("2026-10-01", *usds, instance=name) for name, usds in before.items()),
            *(price("2026-11-01", *usds, instance=name) for name, usds in (after | gone).items()),
        ]
    )
    (total,) = price_changes("2026-10-01", store=store).totals
    # a spot price that saves nothing is none, so that a machine has at most two prices
    assert total.new + total.dearer + total.cheaper + total.same <= 2 * len(after) + 1
    assert total.gone + total.dearer + total.cheaper + total.same <= 2 * len(before) + 1


# --- between two days of the real files ---


class FilesOfADay:
    """A downloader that answers with SkyPilot's files as they stood on a day."""

    def __init__(self, folder: Path, day: str) -> None:
        self.folder, self.day = folder / "skypilot" / day, day

    def get(self, address, known=None, *, headers=None, largest_bytes=64 * 2**20):
        """`.../v8/aws/vms.csv` is `aws.csv.gz`."""
        path = self.folder / f"{address.split('/')[-2]}.csv.gz"
        data = gzip.decompress(path.read_bytes())
        return Reply(
            data=data, validators=Validators(etag=self.day), modified=self.day, address=address
        )

    def post(self, address, body, *, largest_bytes=64 * 2**20):
        raise NotImplementedError


def hand_checked() -> list[dict[str, str]]:
    with HAND_CHECKED.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_hand_checked_rows_agree_with_themselves():
    rows = hand_checked()
    assert len(rows) >= 20
    assert {row["provider"] for row in rows} >= {
        "aws", "gcp", "lambda", "runpod", "nebius", "verda", "shadeform", "seeweb", "mithril",
    }  # fmt: skip
    for row in rows:
        before, after = row["before_usd_hour"], row["after_usd_hour"]
        if before and after:
            change = float(after) / float(before) - 1
            kind = "same" if abs(change) < 0.01 else "dearer" if change > 0 else "cheaper"
        else:
            kind = "gone" if before else "new"
        assert row["kind"] == kind, row


@pytest.mark.sources
def test_what_a_refresh_between_two_days_changed(price_sources, tmp_path):
    providers = sorted({row["provider"] for row in hand_checked()})
    with PriceStore(tmp_path / "prices.sqlite") as store:
        for day in ("2026-06-01", "2026-08-22"):
            refresh_prices(
                sources=["skypilot"],
                providers=providers,
                now=f"{day}T12:00:00Z",
                store=store,
                downloader=FilesOfADay(price_sources, day),
                known_sources=[SkyPilotCatalogue(rate_day="2026-08-21")],
                accept=True,  # half of Mithril's types are gone
            )
        changes = price_changes("2026-06-01", store=store)
        everything = price_changes("2026-06-01", min_change=0.0, store=store)
    assert {(total.begins, total.ends) for total in changes.totals} == {
        ("2026-06-01", "2026-08-22")
    }
    listed = {(one.provider, one.instance, one.region, one.tenancy): one for one in changes.changes}
    for row in hand_checked():
        key = (row["provider"], row["instance"], row["region"], row["tenancy"])
        if row["kind"] == "same":
            assert key not in listed
            continue
        change = listed[key]
        assert change.kind == row["kind"], row
        # Seeweb's list is in euros; the row has what stands there.
        rate = usd_per_unit("EUR")[0] if row["provider"] == "seeweb" else 1.0
        for usd, column in (
            (change.before_usd_per_hour, "before_usd_hour"),
            (change.after_usd_per_hour, "after_usd_hour"),
        ):
            wanted = float(row[column]) * rate if row[column] else None
            assert usd == (None if wanted is None else pytest.approx(wanted, rel=2e-4)), row
    assert len(everything.changes) >= len(changes.changes)
