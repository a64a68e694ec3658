"""`tools/fit_prices.py` on small made-up series whose figures can be worked out by hand."""

from __future__ import annotations

import csv
import gzip
import math
from datetime import date, timedelta

import numpy as np
import pytest
from tests.docs.pages import tool as tool_named

FIRST = date(2025, 6, 1)
NAN = math.nan


@pytest.fixture(scope="module")
def tool():
    return tool_named("fit_prices")


def week(number):
    return (FIRST + timedelta(weeks=number)).isoformat()


def weekly_rows(prices, *, provider="aws", instance="g1.big", region="us-east-1", usd=1.0):
    """Rows of the weekly file: by zone, what spot cost in each week; None where not seen."""
    return [
        {
            "provider": provider,
            "instance": instance,
            "gpu": "T4",
            "gpus": "1.0",
            "region": region,
            "zone": zone,
            "week_of": week(number),
            "usd_per_hour": str(usd),
            "spot_usd_per_hour": str(spot),
        }
        for zone, series in prices.items()
        for number, spot in enumerate(series)
        if spot is not None
    ]


# --- quantile regression ---


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_quantile_regression_on_one_figure_is_its_quantile(tool, level):
    values = np.arange(101.0)  # 0 to 100: the 10th percentile is 10
    (fit,) = tool.quantile_regression(np.ones((101, 1)), values, level)
    assert fit == pytest.approx(100 * level, abs=0.5)  # half the distance of two values


@pytest.mark.parametrize(("level", "deviations"), [(0.1, -1.2816), (0.5, 0.0), (0.9, 1.2816)])
def test_quantile_regression_finds_a_slope_and_a_spread_that_grows(tool, level, deviations):
    random = np.random.default_rng(1)
    x = random.uniform(0, 2, 40_000)
    values = 1 + 3 * x + (0.5 + x) * random.standard_normal(40_000)
    constant, slope = tool.quantile_regression(np.stack([np.ones_like(x), x], 1), values, level)
    # 1 + 0.5 z and 3 + z; the standard error of each is below 0.02
    assert constant == pytest.approx(1 + 0.5 * deviations, abs=0.06)
    assert slope == pytest.approx(3 + deviations, abs=0.06)
    assert (values < constant + slope * x).mean() == pytest.approx(level, abs=0.005)


def test_quantile_regression_does_not_heed_how_far_off_the_rest_is(tool):
    values = np.array([1.0] * 60 + [1000.0] * 40)
    (middle,) = tool.quantile_regression(np.ones((100, 1)), values, 0.5)
    assert middle == pytest.approx(1.0, abs=0.01)


def test_quantile_regression_gives_nothing_to_what_nothing_tells_of(tool):
    features = np.stack([np.ones(101), np.zeros(101)], axis=1)
    fit = tool.quantile_regression(features, np.arange(101.0), 0.5)
    assert fit == pytest.approx([50, 0], abs=0.5)


# --- the past of a zone ---


def test_read_weekly_has_a_row_for_each_zone_and_a_column_for_each_week(tool):
    rows = weekly_rows({"a": [0.5, None, 0.25], "b": [0.1, 0.2, 0.4]}, usd=2.0)
    rows += weekly_rows({"c": [0.5]}, provider="gcp")
    rows += weekly_rows({"d": [0.5]}, instance="tpu-v4")
    weekly = tool.read_weekly(rows, "aws")
    assert [series.zone for series in weekly.series] == ["a", "b"]
    assert weekly.weeks == (week(0), week(1), week(2))
    assert list(np.diff(weekly.days)) == [7, 7]
    np.testing.assert_array_equal(weekly.spot_usd, [[0.5, NAN, 0.25], [0.1, 0.2, 0.4]])
    np.testing.assert_array_equal(weekly.on_demand_usd, [[2, NAN, 2], [2, 2, 2]])
    np.testing.assert_allclose(np.exp(weekly.log_share[1]), [0.05, 0.1, 0.2])


def test_a_price_of_zero_is_no_price_and_a_share_is_at_most_one(tool):
    weekly = tool.read_weekly(weekly_rows({"a": [0, 2.0]}, usd=1.0), "aws")
    np.testing.assert_array_equal(weekly.log_share, [[NAN, 0.0]])


def test_until_leaves_out_what_came_after(tool):
    weekly = tool.read_weekly(weekly_rows({"a": [0.5, 0.4, 0.3]}), "aws")
    known = weekly.until(week(1))
    assert known.weeks == (week(0), week(1))
    np.testing.assert_array_equal(known.spot_usd, [[0.5, 0.4]])
    assert known.days.shape == (2,)


def test_past_of_a_zone_by_hand(tool):
    e = math.exp
    # Logarithms -1, -2, not seen, -3; another zone at -1, -1, -1, -2
    weekly = tool.read_weekly(
        weekly_rows({"a": [e(-1), e(-2), None, e(-3)], "b": [e(-1), e(-1), e(-1), e(-2)]}), "aws"
    )
    past = tool.past_of(weekly)
    assert past.seen[0].tolist() == [1, 2, 2, 3]
    assert past.mean[0] == pytest.approx([-1, -1.5, -1.5, -2])
    # A change counts where two weeks in a row were seen, and one usual change of 0.1 besides
    assert past.change[0] == pytest.approx([0.1] + 3 * [math.sqrt((1 + 0.01) / 2)])
    # the other zone of the type
    assert past.type_level[0] == pytest.approx([-1, -1, -1, -2])
    # the first zone; of all zones where that was not seen
    assert past.type_level[1] == pytest.approx([-1, -2, -1, -3])


def test_the_level_of_a_type_with_one_zone_is_everybodys(tool):
    e = math.exp
    rows = weekly_rows({"a": [e(-1)]}, instance="g1.big")
    rows += weekly_rows({"b": [e(-2)], "c": [e(-3)]}, instance="g2.big")
    level = tool.past_of(tool.read_weekly(rows, "aws")).type_level
    assert level[:, 0] == pytest.approx([-2, -3, -2])


def test_of_late_sums_eight_weeks(tool):
    sums = tool._of_late(np.arange(1.0, 13.0)[None, :])[0]
    # 1, 1 + 2 ... 1 + ... + 8 = 36, then 2 + ... + 9 = 44, and 8 more each week
    assert sums.tolist() == [1, 3, 6, 10, 15, 21, 28, 36, 44, 52, 60, 68]


def test_a_change_is_forgotten_after_eight_weeks(tool):
    e = math.exp
    series = [e(-1), e(-2)] + 10 * [e(-2)]
    change = tool.past_of(tool.read_weekly(weekly_rows({"a": series}), "aws")).change[0]
    # In week 1 to 8 the jump of 1 is among the last eight changes, in week 9 it is not: 0.1 / 3
    assert change[8] == pytest.approx(math.sqrt(1.01 / 9))
    assert change[9] == pytest.approx(0.1 / 3)


# --- what prices became ---


def returning(zones, weeks, *, back, noise, seed=3):
    """Series that go back to 0.3 of on-demand by a share `back` of the way each week."""
    random = np.random.default_rng(seed)
    level, logs = math.log(0.3), math.log(0.3) + 0.6 * random.standard_normal(zones)
    columns = []
    for _ in range(weeks):
        columns.append(np.minimum(np.exp(logs), 0.98))
        logs = logs + back * (level - logs) + noise * random.standard_normal(zones)
    table = np.stack(columns, 1)
    return {f"z{number}": [float(f"{usd:.5f}") for usd in row] for number, row in enumerate(table)}


@pytest.fixture(scope="module")
def returned(tool):
    rows = weekly_rows(returning(60, 40, back=0.15, noise=0.15))
    return tool.fit_zones(tool.read_weekly(rows, "aws"))


def test_prices_that_go_back_to_a_level_are_seen_to(returned):
    assert returned.terms["below"][1] > 0.3
    assert returned.terms["above"][1] < -0.3


def test_the_range_of_a_fit_is_in_order_and_made_no_narrower(returned):
    assert 1 <= returned.wider <= 1.5
    change = returned.terms["change"]
    constant = returned.terms["constant"]
    low, middle, high = (constant[number] + 0.15 * change[number] for number in range(3))
    assert low < middle < high


def test_prices_that_stand_still_are_expected_to(tool):
    standing = {f"z{number}": [0.2 + 0.01 * number] * 30 for number in range(20)}
    fit = tool.fit_zones(tool.read_weekly(weekly_rows(standing), "aws"))
    for values in fit.terms.values():
        assert values == pytest.approx([0, 0, 0], abs=1e-3)


def test_pairs_by_hand(tool):
    e = math.exp
    weekly = tool.read_weekly(weekly_rows({"a": [e(-2), e(-1)], "b": [e(-1), e(-1)]}), "aws")
    pairs = tool.pairs_of(weekly)
    # One week apart: a moved by 1, b by nothing. growth(1) = 1 / (1 + 4)
    assert pairs.moved == pytest.approx([1, 0])
    assert pairs.share == pytest.approx([-2, -1])
    # One week of its own past weighs 1 / (1 + 8): the level of a is -2/9 - 8/9, 8/9 above it,
    # that of b -1/9 - 16/9, 8/9 below. A quarter is -1.386, 0.614 above a.
    gap, low = 8 / 9, 2 - math.log(4)
    expected = [[1, gap, 0, 0.1, low], [1, 0, gap, 0.1, 0]]
    np.testing.assert_allclose(pairs.features, np.array(expected) / 5)
    assert pairs.group[0] == pairs.group[1]
    assert len(pairs.since(week(1)).moved) == 0
    assert len(pairs.since(week(0)).moved) == 2


def test_what_saves_nothing_is_no_quote_but_may_become_one(tool):
    weekly = tool.read_weekly(weekly_rows({"a": [1.0, 0.5, 1.0]}), "aws")
    pairs = tool.pairs_of(weekly)
    # only the middle week has a price to go by: it doubled
    assert pairs.moved == pytest.approx([math.log(2)])


def test_looks_are_weeks_apart_even_where_a_week_is_missing(tool):
    days = np.array([0, 7, 21])
    looks = list(tool._looks(days))
    # 0 to 7 is one week, 7 to 21 two; 0 to 21 is three, which nobody asks for
    assert looks == [(0, 1, 1), (1, 2, 2)]


# --- what lists moved over the months ---


def monthly_rows(prices, *, provider="acme", instance="box", column="ondemand_min", renewed=True):
    """Rows of the monthly file from 2024-01 on; a list that is renewed each month, or never."""
    rows = []
    for number, usd in enumerate(prices):
        month = f"{2024 + number // 12}-{number % 12 + 1:02}"
        said = dict.fromkeys(("ondemand_min", "ondemand_median", "spot_min", "spot_median"), "")
        rows.append(
            {
                "month": month,
                "provider": provider,
                "instance_type": instance,
                **said,
                column: str(usd),
                "last_changed": f"{month}-20" if renewed else "2024-01-20",
            }
        )
    return rows


def test_monthly_moves_by_hand(tool):
    moves = tool.monthly_moves(monthly_rows([1, 2, 2, 4]), ["ondemand_min"], "2024-12-31")
    two = math.log(2)
    assert moves["acme"][1] == pytest.approx([two, 0, two])
    assert moves["acme"][2] == pytest.approx([two, two])
    assert moves["acme"][3] == pytest.approx([2 * two])
    assert set(moves["acme"]) == {1, 2, 3}  # of 1, 2, 3, 6 and 12 months


def test_a_list_that_was_not_renewed_has_not_stood_still(tool):
    rows = monthly_rows([1, 1, 1], renewed=False)
    assert tool.monthly_moves(rows, ["ondemand_min"], "2024-12-31") == {}


def test_an_auctions_lowest_bid_is_left_out(tool):
    rows = monthly_rows([1, 2], provider="mithril")
    assert tool.monthly_moves(rows, ["ondemand_min"], "2024-12-31") == {}


def test_of_two_columns_the_one_that_moves_less_is_taken(tool):
    rows = monthly_rows([1, 4])
    for row, middle in zip(rows, ("1", "2"), strict=True):
        row["ondemand_median"] = middle
    moves = tool.monthly_moves(rows, ["ondemand_min", "ondemand_median"], "2024-12-31")
    assert moves["acme"][1] == pytest.approx([math.log(2)])


@pytest.mark.parametrize(
    ("until", "cases"),
    # lists of the 20th of January to April
    [("2024-04-30", 3), ("2024-04-19", 2), ("2024-03-31", 2), ("2024-02-20", 1)],
)
def test_monthly_moves_know_no_list_from_after_a_day(tool, until, cases):
    rows = monthly_rows([1, 2, 4, 8])
    assert len(tool.monthly_moves(rows, ["ondemand_min"], until)["acme"][1]) == cases
    assert tool.renewals_of(rows, until) == {"acme": cases + 1}


def test_spread_of_a_random_walk_is_that_of_a_quarter(tool):
    random = np.random.default_rng(5)
    # 0.1 a month; a quarter is 13 weeks, 13 / 4.348 = 2.99 months
    walk = np.cumsum(0.1 * random.standard_normal((4000, 13)), axis=1)
    changes = {months: walk[:, months] - walk[:, 0] for months in (1, 2, 3, 6, 12)}
    spread = tool.spread_of(changes)
    assert spread.deviation == pytest.approx(0.1 * math.sqrt(2.99), rel=0.03)
    assert spread.cases == 4000


def test_spread_by_hand(tool):
    # All moved by 0.3 in three months: growth is the root of 3 x 4.3483 / 13 = 1.00346
    spread = tool.spread_of({3: np.array([0.3, -0.3])})
    assert spread.deviation == pytest.approx(0.3 / math.sqrt(1.00346), rel=1e-4)


def test_a_list_that_was_renewed_seldom_is_drawn_to_everybodys(tool):
    own, everybody = tool.Spread(0.1, 500), tool.Spread(0.3, 9)
    # 6 renewals weigh as much as everybody: the middle of 0.01 and 0.09
    assert own.towards(everybody, 6).deviation == pytest.approx(math.sqrt(0.05))
    # 18 weigh three quarters: 0.0075 + 0.0225
    assert own.towards(everybody, 18).deviation == pytest.approx(math.sqrt(0.03))
    assert own.towards(everybody, 0).deviation == pytest.approx(0.3)
    assert own.towards(everybody, 6).cases == 500


def test_spreads_are_shrunk_by_renewals_and_few_cases_have_none(tool):
    def steady(deviation, cases):
        # growth of one month and of two, so that both fit one spread
        growth = [math.sqrt(months * 52.18 / 12 / 13) for months in (1, 2)]
        return {
            1: np.full(cases, deviation * growth[0]),
            2: np.full(cases, deviation * growth[1]),
        }

    moves = {"calm": steady(0.1, 100), "wild": steady(0.3, 100), "small": steady(9.0, 99)}
    spreads = tool.spreads_of(moves, {"calm": 6, "wild": 6, "small": 6})
    assert set(spreads) == {"calm", "wild", "*"}
    everybody = math.sqrt((0.01 + 0.09) / 2)  # the root of the mean square of those two
    assert spreads["*"].deviation == pytest.approx(everybody)
    assert spreads["calm"].deviation == pytest.approx(math.sqrt((0.01 + 0.05) / 2))
    assert spreads["wild"].deviation == pytest.approx(math.sqrt((0.09 + 0.05) / 2))


# --- the tables ---


@pytest.fixture(scope="module")
def raw_rows():
    """AWS by the week and two providers by the month, with enough cases of each."""
    weekly = weekly_rows(returning(20, 40, back=0.15, noise=0.15))
    random = np.random.default_rng(7)
    monthly = []
    for provider in ("acme", "aws"):
        for number in range(8):
            for column in ("ondemand_min", "spot_min"):
                prices = np.exp(np.cumsum(0.05 * random.standard_normal(24)))
                monthly += monthly_rows(
                    prices, provider=provider, instance=f"{column} {number}", column=column
                )
    return weekly, monthly


def test_move_rows_have_a_row_for_each_term_and_provider(tool, raw_rows):
    rows = tool.move_rows(*raw_rows, "2025-12-31")
    keys = [(row["provider"], row["tenancy"], row["term"]) for row in rows]
    assert keys == [
        *(("aws", "spot", term) for term in ("constant", "below", "above", "change", "low")),
        ("*", "spot", "constant"),
        ("acme", "spot", "constant"),
        ("*", "on-demand", "constant"),
        ("acme", "on-demand", "constant"),
        ("aws", "on-demand", "constant"),
    ]
    for row in rows:
        assert bool(row["half_weeks"]) == ((row["provider"], row["tenancy"]) == ("aws", "spot"))
        if not row["half_weeks"]:
            assert float(row["low"]) == -float(row["high"]) < float(row["middle"]) == 0
            assert row["as_of"] == "2025-12-20"


def test_move_rows_use_nothing_that_came_after(tool, raw_rows):
    until = "2025-12-15"
    weekly, monthly = raw_rows
    changed_weeks = [
        row if row["week_of"] <= until else row | {"spot_usd_per_hour": "0.95"} for row in weekly
    ]
    changed_months = [
        row if row["last_changed"] <= until else row | {"ondemand_min": "99", "spot_min": "77"}
        for row in monthly
    ]
    assert changed_weeks != weekly
    assert changed_months != monthly
    before = tool.move_rows(weekly, monthly, until)
    assert tool.move_rows(changed_weeks, changed_months, until) == before
    assert {row["as_of"] for row in before} == {"2025-12-14", "2025-11-20"}
    # and what came before is used
    assert tool.move_rows(weekly, monthly, "2025-11-15") != before


def raw_offer(provider, instance, zone, spot, *, usd="4.0", gpu="T4", gpus="1.0"):
    return {
        "provider": provider,
        "instance_type": instance,
        "gpu": gpu,
        "gpu_count": gpus,
        "gpu_memory_gib": "16",
        "vcpus": "4",
        "ram_gib": "16",
        "region": zone,
        "price_usd_hour": usd,
        "spot_usd_hour": spot,
        "snapshot_date": "2026-08-22",
        "source": "list@1:vms.csv",
        "last_changed": "2026-08-22",
        "flags": "",
    }


def region_row(instance, region, weeks, spot_mean, usd="4.0"):
    return {
        "provider": "aws",
        "instance_type": instance,
        "region": region,
        "weeks": weeks,
        "spot_mean": spot_mean,
        "ondemand_median": usd,
    }


def past(row):
    return tuple(row[name] for name in ("weeks", "seen_first", "mean_share", "weekly_change"))


def test_history_of_a_zone_in_the_weekly_file(tool):
    # $1 and $4 of $4, a week apart: the geometric mean is a half of on-demand
    weekly = weekly_rows({"use1-az1": [1.0, 4.0]}, usd=4.0)
    offers = [raw_offer("aws", "g1.big", "use1-az1", "2.000049")]
    (row,) = tool.history_rows(offers, weekly, [], [])
    keys = ("provider", "instance", "region", "zone", "spot_usd_hour", "share", "source")
    place = ("aws", "g1.big", "us-east-1", "use1-az1")
    assert tuple(row[key] for key in keys) == (*place, "2", "0.5", "list@1")
    # Two weeks and the snapshot's; one change of log 4 and one of 0.1: sqrt((1.9218 + 0.01) / 2)
    assert past(row) == ("3", week(0), "0.5", "0.983")


def test_history_of_a_zone_that_only_its_region_is_known_of(tool):
    offers = [raw_offer("aws", "g1.big", "use1-az9", "2.0")]
    (row,) = tool.history_rows(offers, [], [region_row("g1.big", "us-east-1", "11", "1.0")], [])
    # Ten weeks before 22 August is 13 June; $1 of $4
    assert past(row) == ("11", "2026-06-13", "0.25", "")


def test_history_of_a_zone_that_nothing_is_known_of(tool):
    offers = [raw_offer("aws", "g1.big", "use1-az9", "2.0")]
    (row,) = tool.history_rows(offers, [], [region_row("g1.big", "us-west-2", "11", "1.0")], [])
    assert past(row) == ("1", "2026-08-22", "", "")


def test_history_of_a_gcp_machine_is_its_gpus(tool):
    weekly = weekly_rows(
        {"us-west1-b": [1.0, 1.0]},
        provider="gcp",
        instance="acc:H100:8",
        region="us-west1",
        usd=2.0,
    )
    offers = [
        raw_offer("gcp", name, "us-west1-b", "2.0", gpu="H100 SXM", gpus="8.0")
        for name in ("a3-highgpu-8g", "a3-megagpu-8g")
    ]
    high, mega = tool.history_rows(offers, weekly, [], [])
    assert past(high) == ("3", week(0), "0.5", "0.0707")  # sqrt(0.01 / 2)
    assert past(mega) == ("1", "2026-08-22", "", "")


def monthly_spot(months, *, instance="box"):
    return [
        {
            "month": day[:7],
            "provider": "acme",
            "instance_type": instance,
            "spot_median": spot,
            "ondemand_median": "4.0",
            "last_changed": day,
        }
        for day, spot in months
    ]


def test_history_of_a_provider_with_monthly_lists(tool):
    offers = [raw_offer("acme", "box", "moon", "2.0"), raw_offer("acme", "box", "mars", "1.0")]
    months = [("2026-03-22", "1.0"), ("2026-04-22", "4.0"), ("2026-05-22", "1.0")]
    months += [("2026-05-22", "1.0"), ("2026-06-22", "4.0")]
    # Where spot saved nothing it was not for sale; a list read twice is one
    (row,) = tool.history_rows(offers, [], [], monthly_spot(months))
    assert (row["region"], row["zone"], row["spot_usd_hour"], row["share"]) == ("", "", "", "")
    # two lists of 4.35 weeks, $1 of $4 in both
    assert past(row) == ("9", "2026-03-22", "0.25", "")


def test_monthly_lists_stand_for_no_more_weeks_than_have_passed(tool):
    months = [("2026-07-31", "1.0"), ("2026-08-22", "1.0")]
    offers = [raw_offer("acme", "box", "moon", "2.0")]
    (row,) = tool.history_rows(offers, [], [], monthly_spot(months))
    # 22 days: three weeks, and the first one
    assert past(row)[0] == "4"


@pytest.mark.parametrize(
    ("offer", "months"),
    [
        (raw_offer("acme", "box", "moon", "2.0"), [("2026-03-22", "1.0")]),
        (raw_offer("acme", "box", "moon", "4.0"), [("2026-03-22", "1.0"), ("2026-04-22", "1.0")]),
        (raw_offer("acme", "box", "moon", ""), [("2026-03-22", "1.0"), ("2026-04-22", "1.0")]),
    ],
    ids=["one list", "saves nothing", "no spot"],
)
def test_no_history_of_other_providers(tool, offer, months):
    assert tool.history_rows([offer], [], [], monthly_spot(months)) == []


def test_both_tables_are_written(tool, raw_rows, tmp_path):
    weekly, monthly = raw_rows
    for row in monthly:
        row.setdefault("gpu", "T4")
    offers = [raw_offer("aws", "g1.big", f"use1-az{number}", "2.0") for number in (1, 2)]
    volatility = [region_row("g1.big", "us-east-1", "11", "1.0")]
    for name, rows in (
        ("offers_2026-08-22.csv.gz", offers),
        ("spot_weekly.csv.gz", weekly),
        ("history_monthly_instances.csv.gz", monthly),
        ("spot_volatility.csv", volatility),
    ):
        path = tmp_path / name
        opened = gzip.open if name.endswith("gz") else open
        with opened(path, "wt", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    out = tmp_path / "out"
    out.mkdir()
    tool.build(tmp_path, out)
    assert sorted(path.name for path in out.iterdir()) == [
        "price_moves.csv",
        "spot_history_2026-08-22.csv",
    ]
    with (out / "spot_history_2026-08-22.csv").open(encoding="utf-8", newline="") as file:
        assert [row["weeks"] for row in csv.DictReader(file)] == ["11", "11"]
