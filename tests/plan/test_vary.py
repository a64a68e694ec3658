from __future__ import annotations

import pytest
from tests.builders import a_cost, a_plan, a_run, an_offer, an_option

from outlay.cost.lines import Breakdown, Cost, Line
from outlay.errors import InputError
from outlay.plan.vary import CURVES, PER_MILLION, WHOLE, curves_of, kind_of
from outlay.units import HOUR_S
from outlay.workload.variation import SHORT, variation_of, with_value
from outlay.workload.workload import Limits

# --- what to vary, and how ---


def values(text):
    return list(variation_of(f"x={text}").values)


def test_whole_numbers_of_a_short_range_are_all_tried():
    found = variation_of("sessions=1..12")
    assert found.path == "usage.sessions_per_month"
    assert list(found.values) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert found.numbers == tuple(float(value) for value in found.values)
    assert values("0..24") == list(range(25))
    assert values("5..5") == [5]


def test_a_range_may_be_written_from_its_end():
    assert values("3..1") == [1, 2, 3]


def test_of_a_long_range_a_dozen_values_is_tried():
    # 100 to 210 in eleven steps of 10
    assert values("100..210") == [*range(100, 220, 10)]
    # 0.5 to 6 in eleven steps of 0.5
    assert values("0.5..6") == pytest.approx([step / 2 for step in range(1, 13)])


def test_a_range_over_decades_goes_by_ratio():
    # 1 to 2048 in eleven steps of a factor 2
    assert values("1..2048")[:10] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    # from nothing there is no ratio: eleven steps of 100
    assert values("0..1100") == [*range(0, 1200, 100)]


def test_units_go_with_the_numbers():
    assert values("1h..3h") == ["1h", "2h", "3h"]
    assert values("1..3h") == ["1h", "2h", "3h"]
    assert values("1h..3") == ["1h", "2h", "3h"]
    assert values("100GB..103GB") == ["100GB", "101GB", "102GB", "103GB"]
    assert values("100 GB .. 101 GB") == ["100GB", "101GB"]
    assert variation_of("size=100GB..103GB").numbers == (100, 101, 102, 103)


@pytest.mark.parametrize("text", ["size=100GB..2h", "interval=30m..2GB"])
def test_a_range_in_two_units_is_refused(text):
    with pytest.raises(InputError, match="in two units") as caught:
        variation_of(text)
    assert "commas" in caught.value.fix


def test_a_list_is_taken_as_it_is_written():
    assert values("1500,2000,2500") == [1500, 2000, 2500]
    assert values("1_000, 2.5") == [1000, 2.5]
    assert values("100GB, 2TB") == ["100GB", "2TB"]
    assert values("volume,object") == ["volume", "object"]
    assert values("true,false") == [True, False]
    assert values("7") == [7]


def test_words_have_no_numbers():
    assert variation_of("data.storage=volume,object,disk").numbers == (None, None, None)


def test_units_of_a_list_count():
    assert variation_of("size=500GB,1TB").numbers == (500, 1000)
    # 30 min and 2 h, in minutes
    assert variation_of("interval=30m,2h").numbers == (30, 120)


def test_a_range_may_go_from_one_unit_to_a_larger_one():
    found = variation_of("data.size=100GB..2TB")
    assert (found.values[0], found.values[-1]) == ("100GB", "2000GB")


def test_the_ends_of_a_range_are_tried_as_they_are():
    found = variation_of("samples=1234567..9876543").values
    assert (found[0], found[-1]) == (1234567, 9876543)
    assert len(variation_of("samples=1000000..1000100").values) == 12


@pytest.mark.parametrize(
    ("table", "path", "left"),
    [
        ({"length": {"samples": 1, "name": 2}}, "length.time", {"length": {"name": 2, "time": 9}}),
        (
            {"length": {"time": "1h", "hours_are_equal": False}},
            "length.epochs",
            {"length": {"epochs": 9}},
        ),
        (
            {"usage": {"hours_per_day": 2, "days_per_week": 5}},
            "usage.sessions_per_month",
            {"usage": {"sessions_per_month": 9}},
        ),
        (
            {"machine": [{"name": "desk", "parts": {"card": 1}}]},
            "machine.desk.purchase",
            {"machine": [{"name": "desk", "purchase": 9}]},
        ),
    ],
)
def test_what_excludes_a_value_goes(table, path, left):
    assert with_value(table, path, 9) == left


def test_a_list_in_the_file_takes_one_value():
    table = {"consider": {"gpus": ["T4"]}}
    assert with_value(table, "consider.gpus", "A10") == {"consider": {"gpus": ["A10"]}}


@pytest.mark.parametrize("text", ["sessions", "sessions=", "=1..2", "", "="])
def test_what_says_not_what_to_vary_is_refused(text):
    with pytest.raises(InputError, match="says not what to vary and how") as caught:
        variation_of(text)
    assert "--vary sessions=1..12" in caught.value.fix


def test_a_range_may_have_durations_of_several_parts():
    # 90 min to 180 min, the end included
    assert (values("1h30m..3h")[0], values("1h30m..3h")[-1]) == ("90m", "180m")
    assert variation_of("x=1h..2h30m").numbers[-1] == 150


def test_amounts_are_numbers_in_their_currency():
    found = variation_of("budget=$50..$52")
    assert (found.values, found.currency) == ((50, 51, 52), "USD")
    assert variation_of("x=50 EUR,60.5 EUR").values == (50, 60.5)
    assert values("1,000..1,002") == [1000, 1001, 1002]
    # 989 thousands to a million in eleven steps
    assert values("989k..1M") == [*range(989_000, 1_001_000, 1000)]


def test_days_are_tried_one_by_one():
    assert values("2026-02-27..2026-03-01") == ["2026-02-27", "2026-02-28", "2026-03-01"]
    assert variation_of("x=2026-01-01..2026-06-01").values[-1] == "2026-06-01"


def test_counts_of_an_interval_have_one_unit():
    assert values("1 epoch..3 epochs") == ["1epoch", "2epoch", "3epoch"]


@pytest.mark.parametrize(
    "text",
    ["x=a..b", "x=1..", "x=..3", "x=one..3", "x=1...3", "x=1..inf", "x=nan..2", "x=1..1e400"],
)
def test_a_range_of_anything_but_numbers_is_refused(text):
    with pytest.raises(InputError, match="not of numbers"):
        variation_of(text)


@pytest.mark.parametrize(("short", "path"), SHORT.items())
def test_short_names_lead_to_keys_that_the_file_has(short, path):
    from outlay.workload.tables import WorkloadFile
    from outlay.workload.toml import keys_of

    assert variation_of(f"{short}=1..2").path == path
    table, key = path.split(".")
    inner = keys_of(WorkloadFile)[table].annotation
    keys = next(
        keys_of(model)
        for model in (inner, *getattr(inner, "__args__", ()))
        if hasattr(model, "model_fields")
    )
    assert key in keys


# --- where it goes in the file ---

TABLE = {
    "step": {"profile": "resnet50"},
    "usage": {"machines": 1},
    "machine": [
        {"name": "Desktop", "purchase": 1000},
        {"name": "cluster node", "purchase": 9000},
    ],
    "offer": [{"provider": "aws", "instance": "p3"}, {"provider": "gcp"}],
}


def test_a_value_is_put_into_a_table_and_the_file_stays_as_it_is():
    changed = with_value(TABLE, "usage.machines", 4)
    assert changed["usage"] == {"machines": 4}
    assert TABLE["usage"] == {"machines": 1}


def test_a_table_that_is_not_there_is_made():
    assert with_value(TABLE, "data.size", "1TB")["data"] == {"size": "1TB"}
    assert with_value(TABLE, "name", "x")["name"] == "x"


@pytest.mark.parametrize("name", ["desktop", "Desktop", "1"])
def test_a_table_that_stands_there_more_than_once_is_found_by_name_or_place(name):
    changed = with_value(TABLE, f"machine.{name}.purchase", 2000)
    assert [one["purchase"] for one in changed["machine"]] == [2000, 9000]


def test_names_with_blanks_and_offers_by_instance():
    changed = with_value(TABLE, "machine.cluster node.purchase", 1)
    assert changed["machine"][1]["purchase"] == 1
    changed = with_value(TABLE, "offer.p3.price_per_hour", 3.0)
    assert changed["offer"][0]["price_per_hour"] == 3.0
    assert with_value(TABLE, "offer.2.vcpus", 8)["offer"][1]["vcpus"] == 8


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("machine.laptop.purchase", "'Desktop', 'cluster node'"),
        ("machine.3.purchase", "'Desktop', 'cluster node'"),
        ("machine.purchase", "say which by its name"),
        ("provider.aws.discount", "has no [[provider]]"),
        ("step.profile.deep.size", "'profile' is no table"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path, why):
    with pytest.raises(InputError, match="cannot find") as caught:
        with_value(TABLE, path, 1)
    assert repr(path) in caught.value.what
    assert why in caught.value.why
    assert "sessions" in caught.value.fix


# --- curves ---


def quote(name, usd, **said):
    return an_option(usd, offer=an_offer("acme", name, usd=1.0, quoted=True), **said)


def curves(text, plan_at):
    return curves_of(variation_of(text), plan_at)


def flat_and_steep(sessions):
    """Flat: 20 + 4.2 n; steep: 10 + 7 n."""
    return a_plan(quote("flat", 20 + 4.2 * sessions), quote("steep", 10 + 7 * sessions))


def test_the_choice_turns_where_the_costs_meet():
    found = curves("sessions=1..12", flat_and_steep)
    (turn,) = found.turns
    # 10 + 7 n = 20 + 4.2 n: n = 10 / 2.8 = 3.571
    assert turn.at == pytest.approx(10 / 2.8)
    assert (turn.before, turn.after) == ("steep at acme on-demand", "flat at acme on-demand")
    assert found.unit == WHOLE
    chosen = [point.chosen for point in found.points]
    assert chosen == ["steep at acme on-demand"] * 3 + ["flat at acme on-demand"] * 9
    # 10 + 7 x 1 and 20 + 4.2 x 12
    assert (found.points[0].usd, found.points[-1].usd) == pytest.approx((17.0, 70.4))
    assert found.points[3].costs == pytest.approx(
        {"steep at acme on-demand": 38.0, "flat at acme on-demand": 36.8}
    )


def test_on_a_straight_line_the_values_tried_do_not_matter():
    (turn,) = curves("sessions=1,12", flat_and_steep).turns
    assert turn.at == pytest.approx(10 / 2.8)


def test_one_choice_all_along_is_no_turn():
    found = curves("sessions=4..12", flat_and_steep)
    assert found.turns == ()
    assert found.named == ("flat at acme on-demand", "steep at acme on-demand")


def test_where_nothing_can_be_taken_nothing_is_chosen():
    def plan_at(budget):
        limits = Limits(budget_usd=budget)
        return a_plan(quote("one", 10.0, limits=limits))

    found = curves("budget=5,15", plan_at)
    assert [point.chosen for point in found.points] == [None, "one at acme on-demand"]
    assert [point.usd for point in found.points] == [None, 10.0]
    assert found.turns == ()


def test_different_work_is_compared_by_a_million_samples():
    def plan_at(_):
        return a_plan(
            quote("slow", 10.0, samples=1e6),
            quote("fast", 20.0, samples=4e6),
        )

    found = curves("x=1", plan_at)
    assert found.unit == PER_MILLION
    (point,) = found.points
    assert point.chosen == "fast at acme on-demand"
    # $10 for a million; $20 for four
    assert point.costs == pytest.approx(
        {"slow at acme on-demand": 10.0, "fast at acme on-demand": 5.0}
    )


def test_only_training_is_in_the_price_of_a_million_samples():
    lines = (Line(name="set-up", usd=4.0), Line(name="compute", usd=6.0))
    cost = Cost(breakdown=Breakdown(lines=lines))

    def plan_at(_):
        option = quote("slow", 10.0, samples=1e6, cost=cost, run=a_run(HOUR_S))
        return a_plan(option, quote("fast", 20.0, samples=4e6))

    (point,) = curves("x=1", plan_at).points
    assert point.costs["slow at acme on-demand"] == pytest.approx(6.0)


def test_a_kind_of_machine_costs_what_its_cheapest_place_does():
    def bundled(usd, region):
        offer = an_offer("acme", "box", gpu="T4", region=region, usd=1.0)
        return an_option(usd, offer=offer)

    (point,) = curves("x=1", lambda _: a_plan(bundled(3, "here"), bundled(2, "there"))).points
    assert point.costs == {"1x T4 at acme on-demand": 2}


def test_what_cannot_be_taken_has_a_curve_only_where_the_user_wrote_it():
    def plan_at(_):
        limits = Limits(budget_usd=5.0)
        dear = an_option(9.0, offer=an_offer("acme", "dear", gpu="A10"), limits=limits)
        return a_plan(dear, quote("mine", 8.0, limits=limits))

    (point,) = curves("x=1", plan_at).points
    assert point.costs == {"mine at acme on-demand": 8.0}


def test_kinds_are_told_apart_by_where_things_are_kept():
    option = quote("box", 1.0, keeping="images at aws")
    assert kind_of(option) == "box at acme on-demand, images at aws"


def test_as_many_curves_as_can_be_read():
    def plan_at(value):
        return a_plan(*(quote(f"box {place}", 10.0 + place) for place in range(20)))

    found = curves("x=1..3", plan_at)
    # the choice, and the nearest of the others
    assert found.named == tuple(f"box {place} at acme on-demand" for place in range(CURVES))


def test_what_is_tried_is_told():
    said = []
    curves_of(
        variation_of("sessions=1..2"),
        flat_and_steep,
        progress=lambda what, *_: said.append(what),
    )
    assert said == ["usage.sessions_per_month = 1 ...", "usage.sessions_per_month = 2 ..."]


def test_costs_of_a_kind_are_those_of_its_bill():
    option = quote("box", 3.0, cost=a_cost(3.0))
    (point,) = curves("x=1", lambda _: a_plan(option)).points
    assert (point.usd, point.costs) == (3.0, {"box at acme on-demand": 3.0})


def test_words_have_no_crossing():
    found = curves("kind=a,b", lambda word: flat_and_steep({"a": 1, "b": 9}[word]))
    assert [turn.at for turn in found.turns] == [None]


def test_a_turn_by_a_limit_is_no_equal_cost():
    def plan_at(hours):
        limits = Limits(deadline_s=hours * HOUR_S)
        slow = quote("slow", 5.0, time_s=6 * HOUR_S, limits=limits)
        return a_plan(slow, quote("fast", 9.0, time_s=HOUR_S, limits=limits))

    (turn,) = curves("deadline=4,8", plan_at).turns
    assert (turn.before, turn.after, turn.at) == (
        "fast at acme on-demand",
        "slow at acme on-demand",
        None,
    )


def test_a_curve_that_bends_is_followed():
    # 100 / x meets 20 at 5; a straight line from 1 (100) to 100 (1) would meet it near 81
    found = curves("x=1.0,100.5", lambda x: a_plan(quote("bent", 100 / x), quote("flat", 20.0)))
    (turn,) = found.turns
    assert turn.at == pytest.approx(5, rel=0.05)


def test_a_star_is_every_one_of_a_repeated_table():
    table = {"machine": [{"name": "a"}, {"name": "b", "years": 3}]}
    assert with_value(table, "machine.*.years", 2) == {
        "machine": [{"name": "a", "years": 2}, {"name": "b", "years": 2}]
    }
