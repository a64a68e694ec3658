"""Parts by name, prices of one's own, and prices that newer ones have overtaken."""

from __future__ import annotations

import pytest
from tests.builders import a_fact
from tests.workstation.made import a_catalogue, a_part, a_price

from outlay.currency import in_usd, usd_per_unit
from outlay.errors import InputError, NotKnown
from outlay.hardware.gpu_names import find_gpu
from outlay.workstation.parts import card_of, card_price, catalogue, price_in, read_prices

CPUS = (
    a_part("cpu", "Core i7-10700K", usd=300),
    a_part("cpu", "Core i7-14700K", usd=250),
    a_part("cpu", "Ryzen 5 3600"),
    a_part("board", "Z490 PG Velocita"),
)


@pytest.mark.parametrize(
    "spelling", ["Core i7-10700K", "core i7 10700k", "i7-10700K", "Corei710700K", "10700K"]
)
def test_a_part_is_found_by_its_name_or_words_of_it(spelling):
    assert a_catalogue(*CPUS).find("cpu", spelling).name == "Core i7-10700K"


def test_words_that_several_have_are_not_enough():
    with pytest.raises(InputError, match="may be any of 2 parts"):
        a_catalogue(*CPUS).find("cpu", "i7")


def test_a_name_nobody_knows_comes_with_the_nearest():
    with pytest.raises(NotKnown) as error:
        a_catalogue(*CPUS).find("cpu", "i7-10800K")
    assert "i7-10700K" in error.value.suggestions
    assert "outlay build --list cpu" in error.value.fix


def test_a_part_is_found_among_its_kind_alone():
    with pytest.raises(NotKnown):
        a_catalogue(*CPUS).find("cpu", "Z490 PG Velocita")


def test_cheapest_first_and_unknown_prices_last():
    names = [part.name for part in a_catalogue(*CPUS).of("cpu")]
    assert names == ["Core i7-14700K", "Core i7-10700K", "Ryzen 5 3600"]


def test_a_price_in_won_is_turned_into_dollars():
    price = price_in(a_fact(1_000_000, "KRW"))
    assert price.usd == pytest.approx(1_000_000 * in_usd("KRW"))
    assert price.note == f"1,000,000 KRW at the rate of {usd_per_unit('KRW')[1]}"
    assert price_in(a_fact(None, "USD")) is None


def test_a_price_is_old_after_a_year():
    assert a_price(1, "2025-11-14").is_old("2026-11-15")
    assert not a_price(1, "2025-11-15").is_old("2026-11-15")
    assert not a_price(1, "2001-01-01").is_old("")
    # one's own price in a machine file has no date
    assert not a_price(1, "").is_old("2026-11-15")


def test_an_old_price_of_memory_is_overtaken_by_a_newer_one_of_no_more_of_it():
    old, new = {"as_of": "2025-07-01"}, {"as_of": "2026-11-01"}
    large = a_part("memory", "128 GB", usd=300, size=128, memory_type="DDR5", **old)
    other = a_part("memory", "old DDR4", usd=50, size=64, memory_type="DDR4", **old)
    small = a_part("memory", "32 GB", usd=40, size=32, memory_type="DDR5", **old)
    fresh = a_part("memory", "64 GB", usd=680, size=64, memory_type="DDR5", **new)
    known = a_catalogue(large, other, small, fresh, today="2026-11-15")
    # 64 GB cost $680 today, so 128 GB cannot be had for $300; of 32 GB and of DDR4 it says nothing
    found = {part.name: known.is_overtaken(part) for part in known.parts}
    assert found == {"128 GB": True, "old DDR4": False, "32 GB": False, "64 GB": False}


def test_prices_of_supplies_are_not_compared_by_size():
    old = a_part("psu", usd=100, power=1000, as_of="2025-07-01")
    fresh = a_part("psu", "fresh", usd=300, power=800)
    assert not a_catalogue(old, fresh, today="2026-11-15").is_overtaken(old)


def test_a_card_s_price_is_the_newest_of_a_new_one():
    gpu = find_gpu("RTX 5090").gpu
    assert card_price(gpu).note == ""
    assert card_price(gpu, used=True).note == "used"


def test_an_old_price_of_a_new_card_stands_back_for_a_used_one():
    gpu = find_gpu("RTX 3090").gpu
    assert card_price(gpu, "2026-11-15").note == "used"
    # without a day nothing is old
    assert card_price(gpu).note == ""


def test_a_card_without_any_price_has_none():
    assert card_price(find_gpu("RTX 3090").gpu).usd > 0
    assert card_price(find_gpu("A16").gpu) is None


def test_a_card_is_a_gpu_or_a_named_one():
    known = catalogue()
    assert card_of(known, "rtx3090").name == "RTX 3090"
    named = card_of(known, "Gigabyte RTX 3090 Gaming OC")
    assert named.gpu.name == "RTX 3090"
    assert named.length_mm == 315
    with pytest.raises(NotKnown, match="No GPU is known as 'RTX 9999'"):
        card_of(known, "RTX 9999")


def test_a_named_card_does_not_take_the_reference_board_s_figures():
    founders = card_of(catalogue(), "RTX 3090")
    named = card_of(catalogue(), "EVGA RTX 3090 FTW3")
    assert founders.connectors == "1x 12-pin"
    assert named.connectors != "1x 12-pin"


@pytest.mark.parametrize("name", ["H100 SXM", "RTX 4090 Laptop", "GH200"])
def test_what_is_no_card_is_refused(name):
    with pytest.raises(InputError, match="no card for a workstation"):
        card_of(catalogue(), name)


# Price lists


@pytest.fixture
def price_list(tmp_path):
    def write(*lines, head="part,price,currency,as_of"):
        path = tmp_path / "prices.csv"
        path.write_text("\n".join((head, *lines)) + "\n", encoding="utf-8")
        return path

    return write


def test_own_prices_take_the_table_s_place(price_list):
    path = price_list("i7-10700K,100,USD,2026-11-01", 'rtx3090,"900,000",KRW,2026-11-02')
    known = catalogue(read_prices(path))
    assert known.find("cpu", "i7-10700K").price.usd == 100
    card = card_of(known, "RTX 3090")
    assert card.price.usd == pytest.approx(900_000 * in_usd("KRW"))
    assert card.price.source == "your price list"
    assert card.price.as_of == "2026-11-02"


def test_a_price_list_may_name_its_sources(price_list):
    path = price_list("X,1,USD,2026-11-01,a shop", head="part,price,currency,as_of,source")
    assert read_prices(path)["X"].source == "a shop"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("X,700,USD", "line 2: 3 cells where the first line has 4"),
        ("X,1,299,USD,2026-11-01", "line 2: 5 cells"),
        ("X,abc,USD,2026-11-01", "line 2: the price 'abc' is not a number"),
        ("X,-5,USD,2026-11-01", "line 2: the price '-5'"),
        ("X,nan,USD,2026-11-01", "line 2: the price 'nan'"),
        ("X,5,XYZ,2026-11-01", "line 2: No currency is known as 'XYZ'"),
        ("X,5,USD,yesterday", "line 2: the date 'yesterday'"),
        (",5,USD,2026-11-01", "line 2: the part has no name"),
        ("X,5,USD,2026-11-01\nx,6,USD,2026-11-01", "line 3: 'x' stands there twice"),
    ],
)
def test_a_bad_line_is_named(price_list, line, words):
    with pytest.raises(InputError, match=words):
        read_prices(price_list(line))


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("part,price,as_of", "no column 'currency'"),
        ("part,price,currency,as_of,colour", "a column 'colour'"),
        ("", "no column 'part'"),
    ],
)
def test_a_bad_head_is_named(price_list, head, words):
    with pytest.raises(InputError, match=f"line 1: the price list has {words}"):
        read_prices(price_list(head=head))


def test_a_price_list_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="There is no price list"):
        read_prices(tmp_path / "none.csv")
    with pytest.raises(InputError, match="cannot be read"):
        read_prices(tmp_path)
