from __future__ import annotations

import pytest
from tests.builders import a_plan, an_offer, an_option

from outlay.cost.lines import Breakdown, Cost, Line
from outlay.plan.difference import LineChange, difference
from outlay.workload.workload import Limits


def billed(instance="box", *, tenancy="on-demand", limits=None, **lines):
    """An option with these lines; `set_up` is called `set-up`."""
    bill = tuple(Line(name=name.replace("_", "-"), usd=usd) for name, usd in lines.items())
    return an_option(
        offer=an_offer(instance=instance),
        cost=Cost(breakdown=Breakdown(lines=bill)),
        tenancy=tenancy,
        limits=limits,
    )


PLAN = a_plan(billed(compute=10.0))


def inputs(before, after):
    found = difference((before, after), (PLAN, PLAN)).inputs
    return [(one.key, one.before, one.after) for one in found]


# --- inputs ---


def test_keys_that_differ_are_named_with_both_values():
    before = {"name": "a", "length": {"samples": 1000}, "usage": {"setup": "1h"}}
    after = {"name": "a", "length": {"samples": 2000}, "usage": {"setup": "1h"}}
    assert inputs(before, after) == [("length.samples", 1000, 2000)]


def test_a_key_that_one_file_has_not_is_nothing_there():
    assert inputs({"limits": {"budget": 5}}, {}) == [("limits.budget", 5, None)]
    assert inputs({}, {"limits": {"budget": 5}}) == [("limits.budget", None, 5)]


def test_equal_files_differ_in_nothing():
    table = {"machine": [{"name": "a", "gpus": 1}], "consider": {"gpus": ["T4", "A10"]}}
    assert inputs(table, {**table}) == []


def test_lists_of_values_are_values():
    before, after = {"consider": {"gpus": ["T4"]}}, {"consider": {"gpus": ["T4", "A10"]}}
    assert inputs(before, after) == [("consider.gpus", ["T4"], ["T4", "A10"])]


def test_repeated_tables_go_by_their_names_whatever_their_order():
    one, other = {"name": "desk", "purchase": 1}, {"name": "node", "purchase": 2}
    changed = {"name": "node", "purchase": 3}
    assert inputs({"machine": [one, other]}, {"machine": [changed, one]}) == [
        ("machine.node.purchase", 2, 3)
    ]


def test_repeated_tables_without_names_go_by_their_places():
    before = {"offer": [{"gpu": "T4"}, {"gpu": "A10"}]}
    after = {"offer": [{"gpu": "T4"}, {"gpu": "L4"}]}
    assert inputs(before, after) == [("offer.2.gpu", "A10", "L4")]


def test_offers_go_by_their_instances():
    before = {"offer": [{"instance": "p3", "price_per_hour": 3.0}]}
    after = {"offer": [{"instance": "p3", "price_per_hour": 2.0}]}
    assert inputs(before, after) == [("offer.p3.price_per_hour", 3.0, 2.0)]


def test_tables_within_tables():
    before, after = {"machine": [{"parts": {"card": 1}}]}, {"machine": [{"parts": {"card": 2}}]}
    assert inputs(before, after) == [("machine.1.parts.card", 1, 2)]


# --- lines ---


def lines(before, after):
    found = difference(({}, {}), (a_plan(*before), a_plan(*after))).lines
    return [(one.mark, one.name, one.usd) for one in found]


def test_every_line_of_both_bills_with_how_it_changed():
    before = billed(compute=10.0, set_up=1.0, storage=2.0)
    after = billed(compute=8.0, set_up=1.0, transfer=3.0)
    assert lines([before], [after]) == [
        ("~", "compute", -2.0),
        ("=", "set-up", 0.0),
        ("-", "storage", -2.0),
        ("+", "transfer", 3.0),
    ]


def test_changes_of_lines_sum_to_the_change_of_the_total():
    before = billed(compute=10.0, set_up=1.5, storage=2.0)
    after = billed(compute=8.0, set_up=1.0, transfer=3.0)
    found = difference(({}, {}), (a_plan(before), a_plan(after)))
    # 8 + 1 + 3 less 10 + 1.5 + 2
    assert sum(line.usd for line in found.lines) == pytest.approx(12 - 13.5)
    assert found.after.usd - found.before.usd == pytest.approx(12 - 13.5)


def test_lines_of_one_name_are_one():
    bill = (Line(name="storage", usd=1.0), Line(name="storage", usd=2.0))
    before = an_option(cost=Cost(breakdown=Breakdown(lines=bill)))
    assert lines([before], [billed(storage=5.0)]) == [("~", "storage", 2.0)]


@pytest.mark.parametrize(
    ("before", "after", "mark"),
    [(1.0, 1.004, "="), (1.0, 1.006, "~"), (0.0, 1.0, "+"), (1.0, 0.0, "-"), (-2.0, -3.0, "~")],
)
def test_what_rounds_to_the_same_cent_is_the_same(before, after, mark):
    assert LineChange(name="x", before_usd=before, after_usd=after).mark == mark


# --- choices ---


def test_both_choices_and_what_became_of_the_first():
    first = a_plan(billed("a", compute=1.0), billed("b", compute=2.0))
    second = a_plan(billed("a", compute=4.0), billed("b", compute=2.0))
    found = difference(({}, {}), (first, second))
    assert found.before.offer.instance == "a"
    assert found.after.offer.instance == "b"
    assert found.stayed.offer.instance == "a"
    # 4 - 2
    assert found.stayed.why_not.startswith("costs $2.00 more")


def test_a_choice_that_is_gone_did_not_stay():
    found = difference(
        ({}, {}), (a_plan(billed("a", compute=1.0)), a_plan(billed("b", compute=2.0)))
    )
    assert found.stayed is None


def test_another_tenancy_is_another_choice():
    first = a_plan(billed("a", tenancy="spot", compute=1.0))
    found = difference(({}, {}), (first, a_plan(billed("a", compute=2.0))))
    assert found.stayed is None


def test_where_one_has_no_choice_its_side_is_empty():
    nothing = a_plan(billed(compute=5.0, limits=Limits(budget_usd=1.0)))
    something = a_plan(billed(compute=5.0))
    lost = difference(({}, {}), (something, nothing))
    assert lost.after is None
    assert [(one.mark, one.usd) for one in lost.lines] == [("-", -5.0)]
    assert lost.stayed.why_not == "over budget by $4.00"
    won = difference(({}, {}), (nothing, something))
    assert (won.before, won.stayed) == (None, None)
    assert [(one.mark, one.usd) for one in won.lines] == [("+", 5.0)]
