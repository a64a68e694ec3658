"""How cards sit on a board, and what a machine adds up to."""

from __future__ import annotations

import pytest
from tests.workstation.made import a_build, a_card, a_cpu, a_memory, an_ssd

from outlay.workstation.machine import Build, Slot, drives_bytes, part_of, seating, slots_in


def slots(text):
    return slots_in(text)


def positions(found):
    return None if found is None else [slot.position for slot in found.slots]


def test_slots_are_read_top_first():
    assert slots("4:x8 1:x16") == (Slot(position=1, lanes=16), Slot(position=4, lanes=8))
    assert slots("none") == ()


@pytest.mark.parametrize("text", ["", "1", "x8", "1:8", "1:x8,4:x8"])
def test_what_is_no_list_of_slots(text):
    with pytest.raises(ValueError, match="not a list of slots"):
        slots(text)


def test_cards_sit_as_far_apart_as_they_can():
    found = seating(slots("1:x16 3:x8 5:x8 7:x8"), [2, 2], None)
    # 1 and 2, 7 and 8: four free between
    assert (positions(found), found.gap, found.last_pitch) == ([1, 7], 4, 8)


def test_the_case_holds_them_together():
    found = seating(slots("1:x16 3:x8 5:x8 7:x8"), [2, 2], 7)
    assert (positions(found), found.gap) == ([1, 5], 2)


def test_of_ways_as_wide_the_one_with_most_lanes():
    assert positions(seating(slots("1:x4 2:x16 3:x1"), [1], None)) == [2]


def test_cards_that_do_not_go_in():
    assert seating(slots("1:x16 3:x8"), [3, 2], None) is None
    assert positions(seating(slots("1:x16 3:x8"), [2, 3], None)) == [1, 3]
    assert seating(slots("1:x16"), [2, 2], None) is None


def test_a_machine_adds_up_its_prices():
    build = a_build(2, memory=a_memory(usd=100), kits=2)
    # 2 x 1000 + 200 CPU + 50 cooler + 200 board + 2 x 100 + 100 SSD + 150 + 100
    assert build.known_usd == 3000
    assert build.not_priced == []


def test_what_has_no_price_is_named_and_not_counted():
    build = a_build(cpu=a_cpu(usd=None))
    assert [part.kind for part in build.not_priced] == ["cpu"]
    assert build.known_usd == 1000 + 50 + 200 + 150 + 100 + 150 + 100


def test_like_cards_are_counted_together():
    one, other = a_card("One"), a_card("Other")
    build = Build(cards=(one, other, one))
    assert [(card.name, count) for card, count in build.counted_cards] == [("One", 2), ("Other", 1)]


def test_the_cpu_draws_its_peak_or_else_its_tdp():
    assert a_build().cpu_w == 150
    assert a_build(cpu=a_cpu(power_max=None)).cpu_w == 100
    assert a_build(cpu=a_cpu(power_max=None, tdp=None)).cpu_w is None


def test_a_limit_above_what_a_card_was_shipped_with_is_none():
    assert a_build(power_limit_w=500).cards_w == 300


def test_drives_together():
    assert drives_bytes((an_ssd(), an_ssd(size=500))) == 1.5e12
    assert drives_bytes((an_ssd(), an_ssd(size=None))) is None
    assert part_of(a_build(), "ssd").name == "some ssd"
    assert part_of(a_build(), "hdd") is None
