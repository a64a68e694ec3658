"""What prices did: the bundled months, refreshes after them, and what is said of both."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.prices.past_prices import KeptPrices, price

from outlay.errors import NotKnown
from outlay.prices import history as module
from outlay.prices.history import (
    MonthlyPrice,
    bundled_history,
    folded,
    good_time,
    month_end,
    price_history,
)

CACHED = ("_lists", "history_names", "_provider_doubts")


def months_of(history, tenancy, provider=""):
    return [point.month for point in history.of(tenancy, provider).points]


def cheapest(history, tenancy="on-demand", provider=""):
    points = history.of(tenancy, provider).points
    return {point.day: round(point.cheapest_usd_per_gpu_hour, 4) for point in points}


# --- the bundled months ---


def test_bundled_history_is_every_row_with_its_meaning():
    rows = bundled_history()
    assert len(rows) == 21_352
    (row,) = (r for r in rows if r.instance == "a2-highgpu-2g" and r.month == "2022-07")
    # 2022-07,gcp,a2-highgpu-2g,A100 40GB,2.0,7.34695,7.34695,2.20369,2.20369,4,v1,2022-07-25
    assert row == MonthlyPrice(
        provider="gcp",
        instance="a2-highgpu-2g",
        gpu="A100 40GB SXM",
        gpus=2.0,
        month="2022-07",
        price_usd_per_hour=7.3469,
        price_median_usd_per_hour=7.3469,
        spot_usd_per_hour=2.2037,
        spot_median_usd_per_hour=2.2037,
        regions=4,
        as_of="2022-07-25",
        repeated=False,
        doubts=("host added",),
        source="skypilot-catalog:catalogs/v1/gcp/vms.csv",
    )
    assert row.day == "2022-07-31"


@pytest.mark.parametrize(
    ("month", "day"),
    [("2024-02", "2024-02-29"), ("2025-02", "2025-02-28"), ("2026-08", "2026-08-22")],
)
def test_a_month_ends_with_its_last_day_or_the_snapshot(month, day):
    assert month_end(month) == day


def test_a_gpu_hour_is_the_price_of_a_machine_over_its_gpus():
    history = price_history("A100 80GB SXM", provider="lambda")
    # gpu_8x_a100_80gb_sxm4: $12.00 for eight in 2023-02, $14.32 in 2024-02, $22.32 since 2026-04
    found = cheapest(history, provider="lambda")
    assert found["2023-02-28"] == 1.5
    assert found["2024-02-29"] == 1.79
    assert found["2026-04-30"] == 2.79


def test_lists_that_only_repeat_are_no_points():
    history = price_history("H100 SXM", provider="runpod")
    found = months_of(history, "on-demand", "runpod")
    assert found[:2] == ["2024-01", "2025-04"]  # the list of 2024-01-08 stood for fifteen months


def test_a_frozen_list_is_no_point():
    found = months_of(price_history("T4", provider="aws"), "on-demand", "aws")
    assert not {"2026-04", "2026-05", "2026-06"} & set(found)
    assert {"2026-03", "2026-07", "2026-08"} <= set(found)


def test_doubted_prices_are_left_out_and_said():
    history = price_history("A100 40GB SXM", provider="gcp")
    found = set(months_of(history, "on-demand", "gcp"))
    assert {"2025-01", "2026-08"} <= found
    assert not {month for month in found if "2025-02" <= month <= "2026-07"}
    assert "2025-06" in months_of(history, "spot", "gcp")
    (left,) = history.left_out
    assert (left.provider, left.tenancy, left.doubt) == ("gcp", "on-demand", "suspiciously cheap")
    assert (left.first, left.last) == ("2025-02", "2026-07")


def test_an_auctions_floor_is_left_out_and_a_price_in_euros_is_converted():
    history = price_history("H100")
    doubts = {(left.provider, left.doubt) for left in history.left_out}
    assert ("mithril", "bid floor") in doubts
    providers = {one.provider for one in history.series}
    assert "mithril" not in providers
    assert "seeweb" in providers


def test_shares_of_a_gpu_are_no_gpus():
    # g6f.large has an eighth of an L4 for $0.2024 an hour; whole L4s cost $0.70 and more at AWS
    found = price_history("L4", provider="aws").of("on-demand", "aws").points
    assert min(point.cheapest_usd_per_gpu_hour for point in found) > 0.7


def test_an_open_name_counts_all_it_may_mean_and_a_form_only_itself():
    whole = price_history("A100 80GB")
    assert whole.names == ("A100 80GB PCIe", "A100 80GB SXM")
    assert "scp" in {one.provider for one in whole.series}  # does not say which form
    single = price_history("A100 80GB SXM")
    assert "scp" not in {one.provider for one in single.series}
    assert "gcp" in {one.provider for one in single.series}


def test_only_machines_of_so_many_gpus():
    history = price_history("A100 40GB SXM", provider="gcp", gpus=16)
    (point,) = (p for p in history.of("on-demand").points if p.month == "2026-08")
    # a2-megagpu-16g, the one type of sixteen: $55.740 / 16
    assert point.machine_types == 1
    assert point.cheapest_usd_per_gpu_hour == pytest.approx(55.740 / 16)


def test_since_and_until_are_days_or_months_both_included():
    history = price_history("T4", provider="aws", since="2025-11", until="2026-01")
    assert months_of(history, "on-demand") == ["2025-11", "2025-12", "2026-01"]
    assert months_of(history.between("2025-12-01", "2025-12-31"), "spot") == ["2025-12"]


def test_only_one_tenancy():
    history = price_history("T4", provider="aws", tenancies=("spot",))
    assert {series.tenancy for series in history.series} == {"spot"}


def test_a_gpu_or_provider_nobody_knows_is_an_error():
    with pytest.raises(NotKnown, match="H900"):
        price_history("H900")
    with pytest.raises(NotKnown, match="lamda"):
        price_history("H100", provider="lamda")


def test_a_gpu_without_history_has_no_series():
    history = price_history("GTX 1070 Ti")
    assert history.series == ()
    assert good_time(history, "on-demand", "2026-11-17") is None


# --- statistics, on tables made for them ---


def row(month, provider="north", usd=None, spot=None, **other):
    """A monthly price of one GPU; `as_of` is the tenth of its month unless said."""
    values = {
        "instance": "one",
        "gpu": "T4",
        "gpus": 1.0,
        "price_median_usd_per_hour": usd,
        "spot_median_usd_per_hour": spot,
        "regions": 1,
        "as_of": f"{month}-10",
        "repeated": False,
        "doubts": (),
        "source": "made",
    }
    return MonthlyPrice(
        provider=provider,
        month=month,
        price_usd_per_hour=usd,
        spot_usd_per_hour=spot,
        **(values | other),
    )


@pytest.fixture
def made(monkeypatch):
    """A history of rows made by a test, in place of the bundled one."""

    def history_of(*rows, store=None, **asked):
        monkeypatch.setattr(module, "bundled_history", lambda: rows)
        for name in CACHED:
            getattr(module, name).cache_clear()
        return price_history("T4", store=store, **asked)

    yield history_of
    for name in CACHED:
        getattr(module, name).cache_clear()


def test_cheapest_and_middle_over_machine_types(made):
    history = made(
        row("2025-01", usd=2.0, price_median_usd_per_hour=3.0),
        row("2025-01", usd=8.0, instance="four", gpus=4.0, price_median_usd_per_hour=8.0),
        row("2025-01", usd=12.0, instance="two", gpus=2.0, price_median_usd_per_hour=14.0),
    )
    (point,) = history.of("on-demand", "north").points
    # per GPU: lowest 2, 8 / 4 = 2, 12 / 2 = 6; middle 3, 2, 7
    assert (point.cheapest_usd_per_gpu_hour, point.median_usd_per_gpu_hour) == (2.0, 3.0)
    assert point.machine_types == 3


def test_all_together_is_the_cheapest_provider_and_the_middle_of_them(made):
    history = made(
        row("2025-01", "east", usd=5.0), row("2025-01", usd=2.0), row("2025-01", "west", usd=3.0)
    )
    (point,) = history.of("on-demand").points
    assert (point.cheapest_usd_per_gpu_hour, point.median_usd_per_gpu_hour) == (2.0, 3.0)
    assert (point.cheapest_provider, point.providers, point.machine_types) == ("north", 3, 3)


def test_who_resells_is_no_second_provider_for_the_middle(made):
    history = made(
        row("2025-01", usd=2.0),
        row("2025-01", "resold", usd=1.0, doubts=("aggregator",)),
        row("2025-01", "west", usd=4.0),
    )
    (point,) = history.of("on-demand").points
    assert point.cheapest_usd_per_gpu_hour == 1.0
    assert point.median_usd_per_gpu_hour == 3.0  # of 2 and 4


def test_a_price_stands_until_the_next_list_but_spot_for_90_days_at_most(made):
    history = made(
        row("2025-01", "east", usd=9.0, spot=8.0),
        row("2025-01", usd=2.0, spot=1.0),
        *(row(f"2025-{month:02}", "east", usd=9.0, spot=8.0) for month in range(2, 8)),
        row("2025-07", usd=2.5, spot=1.5),
    )
    # north's list of 2025-01-10 is 90 days old on 2025-04-10, and is renewed after half a year
    found = cheapest(history)
    assert [
        found[f"2025-0{month}-{day}"] for month, day in [(3, 31), (4, 30), (6, 30), (7, 31)]
    ] == [
        2.0,
        2.0,
        2.0,
        2.5,
    ]
    spot = cheapest(history, "spot")
    assert [
        spot[f"2025-0{month}-{day}"] for month, day in [(3, 31), (4, 30), (6, 30), (7, 31)]
    ] == [
        1.0,
        8.0,
        8.0,
        1.5,
    ]


def test_lists_more_than_a_year_apart_are_not_bridged(made):
    history = made(
        row("2024-01", usd=2.0),
        *(row(f"2024-{month:02}", "east", usd=9.0) for month in range(1, 13)),
        row("2025-03", usd=2.5),
    )
    found = cheapest(history)
    assert found["2024-03-31"] == 2.0
    assert found["2024-05-31"] == 9.0


def test_a_list_without_the_gpu_ends_its_price(made):
    history = made(
        row("2025-01", usd=2.0),
        row("2025-01", "east", usd=9.0),
        row("2025-02", usd=1.0, gpu="L4", instance="other"),
        row("2025-02", "east", usd=9.0),
    )
    assert cheapest(history) == {"2025-01-31": 2.0, "2025-02-28": 9.0}


def test_the_last_list_stands_for_90_days(made):
    history = made(row("2025-01", usd=2.0))
    (point,) = history.of("on-demand").points
    assert point.current_until == "2025-04-10"  # 2025-01-10 and 90 days: 21 + 28 + 31 + 10
    series = history.of("on-demand")
    assert series.current("2025-04-10") is point
    assert series.current("2025-04-11") is None
    assert series.current("2025-01-30") is None


# --- is now a good time ---


def year_of(usds, **other):
    """A row for each month from 2025-01 on."""
    months = [f"{2025 + number // 12}-{number % 12 + 1:02}" for number in range(len(usds))]
    return [row(month, usd=usd, **other) for month, usd in zip(months, usds, strict=True)]


def test_where_todays_price_lies_in_the_year_before(made):
    # twelve months before: 4 at 1.00, 5 at 2.00 (as now), 3 at 3.00
    history = made(*year_of([1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 2]))
    time = good_time(history, "on-demand", "2026-02-01")
    assert time is not None
    assert (time.months, time.cheaper_months, time.dearer_months) == (12, 4, 3)
    assert time.percentile == pytest.approx((4 + 5 / 2) / 12)
    assert time.lowest.cheapest_usd_per_gpu_hour == 1.0
    assert time.highest.cheapest_usd_per_gpu_hour == 3.0
    assert time.now.day == "2026-01-31"
    assert time.is_current


def test_a_price_that_nobody_confirmed_is_not_of_today(made):
    history = made(*year_of([1] * 12))
    assert not good_time(history, "on-demand", "2026-06-01").is_current


def test_of_few_months_nothing_is_said(made):
    time = good_time(made(*year_of([1, 2, 3, 2, 1, 2])), "on-demand", "2025-07-01")
    assert time.months == 5  # before the sixth
    assert (time.percentile, time.lowest, time.highest) == (None, None, None)
    assert [wait.cases for wait in time.waiting] == [5, 3, 0]
    assert all(wait.median_ratio is None for wait in time.waiting)


def test_what_waiting_gained(made):
    # 1, 2, 1, 2 ...: after one month twice or half, after three likewise, after six the same
    history = made(*year_of([1, 2] * 10))
    one, three, six = good_time(history, "on-demand", "2026-09-01").waiting
    # of 20 months 19 have a next: ten times up (1 to 2), nine times down
    assert (one.cases, one.cheaper, one.dearer) == (19, 9, 10)
    assert (one.median_ratio, one.best_ratio, one.worst_ratio) == (2.0, 0.5, 2.0)
    assert (three.cases, three.cheaper, three.dearer) == (17, 8, 9)
    assert (six.cases, six.cheaper, six.dearer, six.median_ratio) == (14, 0, 0, 1.0)


def test_a_provider_that_joins_is_no_fall_in_price(made):
    history = made(*year_of([4.0] * 14), *year_of([1.0] * 14, provider="young")[7:])
    together = cheapest(history)
    assert (together["2025-07-31"], together["2025-08-31"]) == (4.0, 1.0)
    one, three, six = good_time(history, "on-demand", "2026-03-01").waiting
    assert (one.cases, one.cheaper, one.dearer) == (13, 0, 0)
    assert (three.cheaper, six.cheaper) == (0, 0)


def test_lists_that_nobody_renewed_are_no_cases(made):
    rows = year_of([4.0] * 3)
    again = [
        row(f"2025-{month:02}", usd=4.0, as_of="2025-03-10", repeated=True) for month in (4, 5)
    ]
    time = good_time(made(*rows, *again), "on-demand", "2025-06-01")
    assert [wait.cases for wait in time.waiting] == [2, 0, 0]


# --- refreshes ---


def test_refreshes_come_after_the_months():
    store = KeptPrices(
        [
            price("2026-11-01", 3.0, 1.2, provider="verda"),
            price("2026-11-10", 2.8, 1.2, provider="verda"),
        ]
    )
    history = price_history("H100 SXM", provider="verda", store=store)
    found = cheapest(history)
    assert [found[day] for day in ("2026-11-01", "2026-11-10")] == [3.0, 2.8]
    assert "2026-08-22" in found
    assert cheapest(history, "spot")["2026-11-10"] == 1.2


def test_the_store_is_asked_for_the_gpu_alone():
    store = KeptPrices([price("2026-11-01", 3.0)])
    price_history("H100 SXM", store=store)
    price_history("A100 80GB", store=store)
    assert store.asked == [
        ("H100 SXM",),
        ("A100 80GB", "A100 80GB PCIe", "A100 80GB SXM"),
    ]


def test_two_refreshes_on_one_day_are_two_points(made):
    store = KeptPrices(
        [
            price("2026-11-01T08:00:00Z", 3.0, gpu="T4"),
            price("2026-11-01T20:00:00Z", 2.0, gpu="T4"),
        ]
    )
    history = made(row("2025-01", usd=9.0), store=store)
    points = history.of("on-demand", "lambda").points
    assert [(point.at, point.cheapest_usd_per_gpu_hour) for point in points] == [
        ("2026-11-01T08:00:00Z", 3.0),
        ("2026-11-01T20:00:00Z", 2.0),
    ]
    assert [point.at for point in history.of("on-demand").points[-2:]] == [
        "2026-11-01T08:00:00Z",
        "2026-11-01T20:00:00Z",
    ]
    assert history.of("on-demand").current("2026-11-02").cheapest_usd_per_gpu_hour == 2.0


def test_regions_and_types_of_a_refresh_are_counted_as_in_the_months(made):
    store = KeptPrices(
        [
            price("2026-11-01", 2.0, gpu="T4", region="a"),
            price("2026-11-01", 3.0, gpu="T4", region="b"),
            price("2026-11-01", 7.0, gpu="T4", region="c"),
            price("2026-11-01", 10.0, gpu="T4", instance="two", gpus=2.0),
        ]
    )
    (point,) = made(row("2025-01", usd=9.0), store=store).of("on-demand", "lambda").points
    # the one: lowest 2, middle of 2, 3 and 7 is 3; the two: 10 / 2 = 5; middle of 3 and 5 is 4
    assert (point.cheapest_usd_per_gpu_hour, point.median_usd_per_gpu_hour) == (2.0, 4.0)
    assert point.machine_types == 2


def test_what_is_no_longer_listed_ends(made):
    store = KeptPrices([price("2026-11-01", 2.0, gpu="T4"), price("2026-11-05", gpu="T4")])
    history = made(row("2025-01", usd=9.0), store=store)
    (point,) = history.of("on-demand", "lambda").points
    assert point.current_until == "2026-11-04"


def test_a_list_that_was_old_when_it_was_read_is_no_point(made):
    old = price("2026-11-01", 2.0, gpu="T4", as_of="2026-07-01")  # 123 days
    new = price("2026-11-01", 3.0, gpu="T4", as_of="2026-09-01", provider="runpod")
    history = made(row("2025-01", usd=9.0), store=KeptPrices([old, new]))
    assert not history.of("on-demand", "lambda").points
    assert cheapest(history)["2026-11-01"] == 3.0


def test_a_refresh_that_changed_nothing_confirms(made):
    store = KeptPrices(
        [price("2026-05-01", 2.0, gpu="T4")], confirmed=[("skypilot", "lambda", "2026-10-30")]
    )
    history = made(row("2025-01", usd=9.0), store=store)
    first, last = history.of("on-demand", "lambda").points
    assert (first.day, last.day) == ("2026-05-01", "2026-10-30")
    assert last.cheapest_usd_per_gpu_hour == 2.0
    assert last.current_until == "2027-01-28"  # 1 day of October, 30, 31, and 28 of January


def test_a_list_that_is_fetched_again_and_never_renewed_ends_as_any_other(made):
    days = ["2026-07-30", "2026-07-31", "2027-05-01"]  # 90 and 91 days after 2026-05-01, a year
    store = KeptPrices(
        [price("2026-05-01", 2.0, gpu="T4")],
        confirmed=[("skypilot", "lambda", day) for day in days],
        list_days=dict.fromkeys(days, "2026-05-01"),
    )
    history = made(row("2025-01", usd=9.0), store=store)
    first, last = history.of("on-demand", "lambda").points
    assert (first.day, last.day) == ("2026-05-01", "2026-07-30")
    assert last.current_until == "2026-07-30"


def test_of_two_sources_the_one_that_looked_more_often_counts(made):
    store = KeptPrices(
        [
            price("2026-11-01", 2.0, gpu="T4"),
            *(price(f"2026-11-0{day}", 2.1 + day, gpu="T4", source="gpuhunt") for day in (1, 2, 3)),
        ]
    )
    points = made(row("2025-01", usd=9.0), store=store).of("on-demand", "lambda").points
    assert {point.source for point in points} == {"gpuhunt"}


def test_spot_that_saves_nothing_is_no_spot_price(made):
    store = KeptPrices([price("2026-11-01", 2.0, 2.0, gpu="T4")])
    history = made(row("2025-01", usd=9.0), store=store)
    assert not history.of("spot").points


def test_doubts_that_a_provider_always_had_hold_for_refreshes():
    floor = price("2026-11-01", None, 0.01, provider="mithril")
    doubted = price("2026-11-01", 0.01, provider="verda", doubts=("suspiciously cheap",))
    history = price_history("H100 SXM", store=KeptPrices([floor, doubted]))
    assert not history.of("spot", "mithril").points
    assert "2026-11-01" not in cheapest(history, provider="verda")


def test_a_provider_that_only_the_store_knows_is_known():
    store = KeptPrices([price("2026-11-01", 2.0, provider="newcloud")])
    history = price_history("H100 SXM", provider="newcloud", store=store)
    assert cheapest(history) == {"2026-11-01": 2.0}


# --- zones ---


def test_zones_are_folded_into_their_region():
    alone = folded(
        [
            price("2026-11-01", 2.0, 1.5, zone="a"),
            price("2026-11-01", 2.0, 0.9, zone="b"),
            price("2026-11-01", None, None, zone="c"),
        ]
    )
    (one,) = alone.values()
    assert (one.price_usd_per_hour, one.spot_usd_per_hour) == (2.0, 0.9)
    with_region = folded([price("2026-11-01", 2.0, 0.9, zone="b"), price("2026-11-01", 2.0, 1.2)])
    (one,) = with_region.values()
    assert one.spot_usd_per_hour == 1.2  # the region's own


USD = st.one_of(st.none(), st.floats(0.01, 100))


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["", "x", "y"]), USD, USD), max_size=12
    )
)
def test_folding_gives_each_region_once_and_no_price_that_nobody_asks(listed):
    prices = [
        price("2026-11-01", usd, spot, region=region, zone=zone)
        for region, zone, usd, spot in listed
    ]
    found = folded(prices)
    assert len({one.region for one in found.values()}) == len(found)
    asked = {one.price_usd_per_hour for one in prices} | {one.spot_usd_per_hour for one in prices}
    for one in found.values():
        assert {one.price_usd_per_hour, one.spot_usd_per_hour} <= asked | {None}
        assert (one.price_usd_per_hour, one.spot_usd_per_hour) != (None, None)
