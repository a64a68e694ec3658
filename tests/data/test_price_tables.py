"""The tables of how prices moved hold together, and with the offers they are of."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import date
from pathlib import Path

import pytest
from tests.tables import rows_in

import outlay

DATA = Path(outlay.__file__).parent / "data"
SNAPSHOT = "2026-08-22"
SAVES_NOTHING = 0.999
WEEKS_OF_A_YEAR = 53
TERMS = {"constant", "below", "above", "change", "low"}

Row = dict[str, str]


@pytest.fixture(scope="module")
def history() -> list[Row]:
    return rows_in(DATA / f"spot_history_{SNAPSHOT}.csv")


@pytest.fixture(scope="module")
def moves() -> list[Row]:
    return rows_in(DATA / "price_moves.csv")


@pytest.fixture(scope="module")
def offers() -> list[Row]:
    return rows_in(DATA / f"offers_{SNAPSHOT}.csv")


def keys_of(rows: list[Row], *columns: str) -> list[tuple[str, ...]]:
    return [tuple(row[column] for column in columns) for row in rows]


def repeated(keys: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [key for key, count in Counter(keys).items() if count > 1]


# --- spot_history ---


def test_history_has_the_columns_in_order(history: list[Row]) -> None:
    assert list(history[0]) == [
        "provider",
        "instance",
        "region",
        "zone",
        "spot_usd_hour",
        "share",
        "weeks",
        "seen_first",
        "mean_share",
        "weekly_change",
        "as_of",
        "source",
    ]


def test_history_is_sorted_unique_and_compact(history: list[Row]) -> None:
    keys = keys_of(history, "provider", "instance", "region", "zone")
    assert keys == sorted(keys)
    assert repeated(keys) == []
    assert (DATA / f"spot_history_{SNAPSHOT}.csv").stat().st_size < 500_000


def test_history_has_plausible_figures(history: list[Row]) -> None:
    for row in history:
        for column in ("share", "mean_share"):
            assert not row[column] or 0 < float(row[column]) <= 1, row
        assert not row["spot_usd_hour"] or float(row["spot_usd_hour"]) > 0, row
        # one usual change of 0.1 among eight weeks and itself: at least 0.1 / sqrt(9)
        assert not row["weekly_change"] or 0.033 <= float(row["weekly_change"]) < 1.5, row


def test_history_was_seen_in_some_week_before_its_day(history: list[Row]) -> None:
    for row in history:
        first, last = (date.fromisoformat(row[name]) for name in ("seen_first", "as_of"))
        assert first <= last <= date.fromisoformat(SNAPSHOT), row
        assert 1 <= int(row["weeks"]) <= (last - first).days / 7 + 2, row
        if row["zone"]:
            assert int(row["weeks"]) <= WEEKS_OF_A_YEAR, row


def test_a_zone_without_a_past_has_one_week_and_no_mean(history: list[Row]) -> None:
    for row in history:
        if row["zone"]:
            alone = row["weeks"] == "1" and row["seen_first"] == row["as_of"]
            assert alone or row["mean_share"] or not row["share"], row
            assert not (alone and row["weekly_change"]), row


def test_zones_are_of_aws_and_gcp_with_a_price_each(history: list[Row]) -> None:
    for row in history:
        has_zones = row["provider"] in ("aws", "gcp")
        assert has_zones == bool(row["zone"]) == bool(row["spot_usd_hour"]), row
        assert has_zones == bool(row["region"]), row


def test_every_row_of_the_history_has_a_source(history: list[Row]) -> None:
    assert [row for row in history if not row["source"].startswith("skypilot-catalog")] == []


def zones_of(history: list[Row]) -> dict[tuple[str, ...], list[Row]]:
    zones: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in history:
        zones[row["provider"], row["instance"], row["region"]].append(row)
    return zones


def test_an_offers_spot_price_is_the_lowest_of_its_zones(
    history: list[Row], offers: list[Row]
) -> None:
    zones = zones_of(history)
    for row in offers:
        if row["provider"] not in ("aws", "gcp") or not row["spot_usd_hour"]:
            continue
        quotes = [
            float(zone["spot_usd_hour"])
            for zone in zones[row["provider"], row["instance"], row["region"]]
            if not zone["share"] or float(zone["share"]) < SAVES_NOTHING
        ]
        assert quotes, row
        assert min(quotes) == float(row["spot_usd_hour"]), row
        assert max(quotes) == float(row["spot_usd_hour_max"]), row


def test_a_share_is_of_the_offers_price(history: list[Row], offers: list[Row]) -> None:
    prices = {
        key: float(row["price_usd_hour"])
        for key, row in zip(keys_of(offers, "provider", "instance", "region"), offers, strict=True)
        if row["price_usd_hour"] and "zones differ" not in row["doubts"]
    }
    for row in history:
        price = prices.get((row["provider"], row["instance"], row["region"]))
        if price is not None and row["share"]:
            share = min(float(row["spot_usd_hour"]) / price, 1.0)
            # four digits of the share, five of both prices
            assert float(row["share"]) == pytest.approx(share, rel=7e-4), row


# --- price_moves ---


def test_moves_have_the_columns_in_order(moves: list[Row]) -> None:
    assert list(moves[0]) == [
        "provider",
        "tenancy",
        "term",
        "low",
        "middle",
        "high",
        "unit",
        "half_weeks",
        "source",
        "as_of",
        "note",
    ]


def test_moves_are_unique_with_a_unit_a_source_and_a_day(moves: list[Row]) -> None:
    assert repeated(keys_of(moves, "provider", "tenancy", "term")) == []
    for row in moves:
        assert row["unit"] == "log of price", row
        assert row["source"], row
        assert date.fromisoformat(row["as_of"]) <= date.fromisoformat(SNAPSHOT), row
        assert row["tenancy"] in ("spot", "on-demand"), row
        assert row["term"] in TERMS, row


def test_a_constant_is_in_order(moves: list[Row]) -> None:
    for row in moves:
        if row["term"] == "constant":
            low, middle, high = (float(row[name]) for name in ("low", "middle", "high"))
            assert low < middle < high, row
        if row["term"] == "change":  # what changes much has a wider range
            assert float(row["low"]) < 0 < float(row["high"]), row


def test_every_row_of_a_provider_has_a_constant_and_one_half_time(moves: list[Row]) -> None:
    for key in set(keys_of(moves, "provider", "tenancy")):
        rows = [row for row in moves if (row["provider"], row["tenancy"]) == key]
        assert "constant" in {row["term"] for row in rows}, key
        assert len({row["half_weeks"] for row in rows}) == 1, key
        assert all(float(row["half_weeks"] or 1) > 0 for row in rows), key


def test_every_tenancy_has_a_row_for_everybody_else(moves: list[Row]) -> None:
    others = {row["tenancy"] for row in moves if row["provider"] == "*"}
    assert others == {row["tenancy"] for row in moves} == {"spot", "on-demand"}


def test_spot_prices_move_more_than_those_on_demand(moves: list[Row]) -> None:
    widths = {
        (row["provider"], row["tenancy"]): float(row["high"]) - float(row["low"])
        for row in moves
        if row["term"] == "constant"
    }
    both = [provider for provider, tenancy in widths if tenancy == "spot"]
    for provider in both:
        assert widths[provider, "spot"] > widths[provider, "on-demand"], provider


def test_providers_with_moves_sell_something(moves: list[Row], offers: list[Row]) -> None:
    sellers = {row["provider"] for row in offers}
    gone = {row["provider"] for row in moves} - sellers - {"*"}
    assert gone <= {"fluidstack", "cudo"}
