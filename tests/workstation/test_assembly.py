"""Choosing parts: the cheapest that keeps every rule, what mends a broken one, and upgrades."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import exactly
from tests.workstation.made import (
    a_board,
    a_build,
    a_card,
    a_case,
    a_catalogue,
    a_cooler,
    a_cpu,
    a_memory,
    a_part,
    a_psu,
    a_use,
    an_ssd,
)

from outlay.workstation.assembly import Choice, Order, assemble, cheapest_fix, with_fixes
from outlay.workstation.build import build_report
from outlay.workstation.machine import Build
from outlay.workstation.rules import broken, judge
from outlay.workstation.upgrade import TrainingSpeed, upgrades_of

SHELF = (
    a_cpu("small cpu", usd=100, threads=4),
    a_cpu("cpu", usd=200),
    a_cpu("other socket", usd=50, socket="S2"),
    a_board("board", usd=200),
    a_board("one slot", usd=90, slots="1:x16"),
    a_memory("16 GB", usd=40, size=16),
    a_memory("32 GB", usd=80, size=32),
    a_memory("wrong type", usd=10, memory_type="DDR5"),
    an_ssd("1 TB", usd=100),
    an_ssd("2 TB", usd=180, size=2000),
    a_psu("650 W", usd=80, power=650),
    a_psu("1100 W", usd=180, power=1100),
    a_case("case", usd=100),
    a_case("small case", usd=50, expansion_slots=3),
    a_cooler("cooler", usd=40),
)
SHOP = a_catalogue(*SHELF)


def around(cards, **changes):
    return Build(cards=(a_card(),) * cards, use=a_use(country="us"), **changes)


def names(build):
    return {kind: part.name for kind, part, _ in build.parts if kind != "card"}


def test_one_card_gets_the_cheapest_that_keeps_every_rule():
    build = assemble(around(1), SHOP)
    # 4 threads do for one card; 300 + 150 + 150 W x 1.15 = 690 W
    assert names(build) == {
        "cpu": "small cpu",
        "cooler": "cooler",
        "board": "one slot",
        "memory": "32 GB",
        "ssd": "1 TB",
        "psu": "1100 W",
        "case": "small case",
    }
    # RAM of 32 GB is tight beside 24 of the card, 2 kits of it cost $80 more, less than a flaw
    assert build.kits == 2
    # 1000 + 100 + 40 + 90 + 2 x 80 + 100 + 180 + 50
    assert build.known_usd == 1720


def test_two_cards_get_more_threads_slots_watts_and_room():
    build = assemble(around(2), SHOP)
    assert names(build) == {
        "cpu": "cpu",
        "cooler": "cooler",
        "board": "board",
        "memory": "32 GB",
        "ssd": "1 TB",
        "psu": "1100 W",
        "case": "case",
    }
    assert not broken(judge(build))


def test_what_is_given_stays():
    mine = a_cpu("mine", usd=None)
    assert assemble(around(1, cpu=mine), SHOP).cpu is mine


def test_a_size_is_the_least():
    build = assemble(around(1), SHOP, Order(least={"ssd": 1500, "memory": 100}))
    assert build.ssds[0].name == "2 TB"
    assert build.ram_bytes >= 100 * 2**30


def test_over_the_budget_rules_may_hold_tightly():
    # with one kit of 32 GB, which is tight, it costs $80 less
    build = assemble(around(1), SHOP, Order(budget_usd=1700))
    assert (build.memory.name, build.kits) == ("32 GB", 1)
    assert build.known_usd == 1640


def test_a_price_that_is_unknown_is_not_a_low_one():
    free = a_case("no price", usd=None)
    assert assemble(around(1), a_catalogue(*SHELF, free)).case.name == "small case"


def test_an_unknown_figure_is_worth_some_money_but_not_any():
    cheap = a_psu("plugs unknown", usd=70, power=1100, pcie_8pin=None)
    assert assemble(around(1), a_catalogue(*SHELF, cheap)).psu.name == "plugs unknown"
    near = a_psu("plugs unknown", usd=90, power=1100, pcie_8pin=None)
    # $90 and a flaw of $100 against $180
    assert assemble(around(1), a_catalogue(*SHELF, near)).psu.name == "1100 W"


def test_where_nothing_does_the_least_broken_is_left():
    build = assemble(around(4), SHOP)
    assert {one.rule for one in broken(judge(build))} >= {"slots", "PSU watts"}


def test_without_parts_to_choose_from_they_are_missing():
    build = assemble(around(1), a_catalogue())
    assert names(build) == {}


# Mending


def test_a_broken_rule_is_mended_by_the_cheapest_part():
    build = a_build(2, psu=a_psu("old", power=650))
    verdict = next(one for one in judge(build) if one.rule == "PSU watts")
    assert cheapest_fix(build, verdict, SHOP).part.name == "1100 W"


def test_no_part_mends_what_it_would_break_elsewhere():
    # the supply with enough watts has no plugs for the cards
    build = a_build(2, psu=a_psu("old", power=650))
    verdict = next(one for one in judge(build) if one.rule == "PSU watts")
    without = a_catalogue(a_psu("no plugs", power=2000, pcie_8pin=0, usd=10))
    assert cheapest_fix(build, verdict, without) is None


def test_fixes_stand_with_the_broken_rules_alone():
    build = a_build(2, psu=a_psu("old", power=650))
    parts = {one.rule: one.part for one in with_fixes(build, judge(build), SHOP)}
    assert parts.pop("PSU watts").name == "1100 W"
    assert set(parts.values()) == {None}


def test_a_judged_machine_says_what_it_is_worth():
    found = build_report(a_build(cpu=a_cpu(usd=None)), SHOP, budget_usd=1000.0)
    assert found.not_priced == ["CPU"]
    # 1000 + 50 + 200 + 150 + 100 + 150 + 100 = 1750
    assert found.over_budget_usd == 750
    assert not found.works
    assert any("W from the wall while training" in note for note in found.notes)


# Upgrades


def speed(build):
    """A machine trains ten samples a second with each card."""
    rate = 10.0 * len(build.cards) * (2 if build.cards[0].name == "New" else 1)
    return TrainingSpeed(samples_per_s=exactly(rate), bound="memory")


def test_a_stronger_card_takes_its_supply_along_and_then_speeds_up():
    have = a_build(psu=a_psu("old", power=700))
    new = (a_card("New", watts=500, usd=2000),)
    changes = upgrades_of(have, new, [], SHOP, speed)
    # 500 + 150 + 150 = 800 W x 1.1 = 880 W
    assert [(one.new.name, one.usd) for one in changes] == [("1100 W", 180), ("New", 2000)]
    supply, card = changes
    assert supply.old == "old"
    assert supply.why.startswith("must go along; PSU watts: needs 880")
    assert "hold each GPU to" in supply.instead
    assert supply.before.samples_per_s == supply.after.samples_per_s
    assert (card.before.samples_per_s.likely, card.after.samples_per_s.likely) == (10, 20)
    assert changes[-1].build.psu.name == "1100 W"


def test_a_second_card_is_bought_once():
    have = a_build(psu=a_psu("large", power=1600))
    changes = upgrades_of(have, have.cards * 2, [], SHOP, speed)
    (card,) = changes
    assert (card.pieces, card.usd, card.old) == (1, 1000, "")


def test_what_was_short_before_comes_after_the_card():
    have = a_build(psu=a_psu("large", power=1600), memory=a_memory("little", size=8))
    changes = upgrades_of(have, (a_card("New"),), [], SHOP, speed)
    assert [one.kind for one in changes] == ["card", "memory"]
    assert changes[1].why.startswith("short already; RAM")


def test_a_board_that_is_too_small_takes_cpu_and_memory_along():
    have = a_build(
        psu=a_psu("large", power=1600),
        board=a_board("old", slots="1:x16", socket="S0"),
        cpu=a_cpu("old cpu", socket="S0"),
    )
    changes = upgrades_of(have, have.cards * 2, [], SHOP, speed)
    assert [one.kind for one in changes] == ["board", "cpu", "cooler", "memory", "card"]
    assert changes[1].why == "goes with the new board"
    assert not broken(judge(changes[-1].build))


def test_what_is_asked_for_besides_comes_after_the_card():
    have = a_build(psu=a_psu("large", power=1600))
    more = [("memory", Choice(part=SHELF[6], pieces=2))]
    changes = upgrades_of(have, (a_card("New"),), more, SHOP, speed)
    assert [(one.kind, one.why) for one in changes] == [
        ("card", "asked for"),
        ("memory", "asked for"),
    ]
    assert changes[1].usd == 160


def test_more_of_the_same_memory_is_added():
    kit = SHELF[6]
    have = a_build(psu=a_psu("large", power=1600), memory=kit)
    (change,) = upgrades_of(have, (), [("memory", Choice(part=kit, pieces=2))], SHOP, speed)
    assert (change.pieces, change.usd, change.old) == (1, 80, "")
    assert change.build.ram_bytes == 64 * 2**30


def test_what_is_asked_for_is_not_replaced_where_it_breaks_a_rule():
    have = a_build(psu=a_psu("large", power=1600))
    more = [("memory", Choice(part=SHELF[6], pieces=3))]
    changes = upgrades_of(have, (), more, SHOP, speed)
    # six modules in four places
    assert [one.why for one in changes] == ["asked for"]
    assert [one.rule for one in broken(judge(changes[-1].build))] == ["memory size"]


def test_an_upgrade_costs_its_changes_alone():
    have = a_build(psu=a_psu("old", power=700))
    changes = upgrades_of(have, (a_card("New", watts=500, usd=2000),), [], SHOP, speed)
    found = build_report(changes[-1].build, SHOP, changes=changes, had=have)
    assert found.cost_usd == 2180
    nothing = replace(found, changes=(), had=have)
    assert nothing.cost_usd == 0


def test_cards_too_wide_for_any_board_are_mended_by_narrower_ones():
    card = a_card("RTX 3090", figures={"slot_width": 3})
    build = a_build(2, card=card, board=a_board("close", slots="1:x8 3:x8"))
    verdict = next(one for one in judge(build) if one.rule == "slots")
    figures = {"gpu": "RTX 3090", "power_connectors": "2x 8-pin"}
    wide = a_part("card", "Wide", usd=10, slot_width=2.5, **figures)
    narrow = a_part("card", "Narrow", usd=900, slot_width=2, **figures)
    found = cheapest_fix(build, verdict, a_catalogue(wide, narrow))
    assert (found.part.name, found.pieces, found.usd) == ("Narrow", 2, 1800)
    assert cheapest_fix(build, verdict, a_catalogue(wide)) is None
