"""Machines in TOML files: by name, by figures, and what is wrong with them, by line."""

from __future__ import annotations

import pytest

from outlay.currency import in_usd
from outlay.errors import InputError
from outlay.workstation.file import read_machine
from outlay.workstation.parts import catalogue


@pytest.fixture
def described(tmp_path):
    def read(*lines):
        path = tmp_path / "machine.toml"
        path.write_text("\n".join(("[machine]", *lines)) + "\n", encoding="utf-8")
        return read_machine(path, catalogue())

    return read


def test_parts_by_name(described):
    build = described(
        'gpu = "RTX 3090"', "gpus = 2", 'cpu = "i7-10700K"', 'ssd = "980 Pro 1 TB"'
    ).build  # fmt: skip
    assert [card.gpu.name for card in build.cards] == ["RTX 3090", "RTX 3090"]
    assert build.cpu.name == "Core i7-10700K"
    assert build.ssds[0].number("size") == 1000
    assert build.board is None


def test_parts_by_figures(described):
    build = described(
        'gpu = {name = "RTX 3090", slots = 2, cooling = "blower", length_mm = 270}',
        "cpu = {threads = 16, lanes = 16, watts = 125}",
        'board = {slots = "1:x8 4:x8", socket = "LGA1200", form = "ATX"}',
        'ram = "64GB"',
        'ssd = ["1TB", {size = "500GB", interface = "SATA"}]',
        "psu = {watts = 1600, eight_pin = 9, price = 400}",
        "case = {slots = 7, card_length_mm = 350}",
    ).build
    (card,) = build.cards
    assert (card.slot_pitches, card.cooling, card.length_mm) == (2, "blower", 270)
    assert (build.cpu.number("threads"), build.cpu_w) == (16, 125)
    assert [slot.position for slot in build.slots] == [1, 4]
    assert build.ram_bytes == 64 * 2**30
    assert [part.number("size") for part in build.ssds] == [1000, 500]
    assert (build.psu.number("power"), build.psu.price.usd) == (1600, 400)
    assert build.psu.facts["power"].source == "your file"
    assert build.psu.name == "power supply, 1600 W"


def test_figures_in_a_table_of_their_own(described):
    build = described('gpu = "RTX 3090"', "[machine.cpu]", "threads = 8").build
    assert build.cpu.number("threads") == 8


def test_figures_go_before_the_table_s(described):
    cpu = described('gpu = "RTX 3090"', 'cpu = {name = "i7-10700K", watts = 90}').build.cpu
    assert (cpu.number("power_max"), cpu.number("threads")) == (90, 16)


def test_a_part_nobody_knows_is_kept_and_told_of(described):
    found = described('gpu = "RTX 3090"', 'cpu = "i7-10800K"')
    assert found.build.cpu.name == "i7-10800K"
    (note,) = found.notes
    assert "Did you mean" in note
    assert "not checked" in note


def test_a_part_nobody_knows_with_its_figures_is_fine(described):
    found = described('gpu = "RTX 3090"', 'cpu = {name = "of my own", threads = 4}')
    assert found.notes == ()


def test_unlike_cards_and_money(described):
    found = described(
        'gpu = ["RTX 3090", "RTX 2080 Ti"]', "price = 10_000_000", 'currency = "krw"'
    )  # fmt: skip
    assert [card.gpu.name for card in found.build.cards] == ["RTX 3090", "RTX 2080 Ti"]
    assert found.build.paid_usd == pytest.approx(1e7 * in_usd("KRW"))
    assert found.currency == "KRW"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["cpu = {thraeds = 16}"], "line 3: there is no key 'machine.cpu.thraeds'.*'threads'"),
        (["", 'cppu = "x"'], "line 4: there is no key 'machine.cppu'.*Did you mean 'cpu'"),
        (['board = {slots = "one"}'], "line 3: machine.board.slots = 'one': 'one' is not a list"),
        (["psu = 5"], "line 3: machine.psu = 5: it should be a name in quotes"),
        (["psu = {watts = -5}"], "line 3: machine.psu.watts = -5: it should be greater than 0"),
        (["ram = {size = 64}"], "line 3: machine.ram.size = 64: a size needs a unit"),
        (['ram = "0GB"'], "line 3: .*above zero"),
        (["gpus = 0"], "line 3: machine.gpus = 0: it should be at least 1"),
        (["[machine.psu]", "wats = 1"], "line 4: there is no key 'machine.psu.wats'"),
        (['currency = "XYZ"'], "No currency is known as 'XYZ'"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(described, lines, words):
    with pytest.raises(InputError, match=words):
        described('gpu = "RTX 3090"', *lines)


def test_a_machine_needs_a_gpu(described):
    with pytest.raises(InputError, match="line 1: 'machine.gpu' is missing"):
        described('cpu = "i7-10700K"')
    with pytest.raises(InputError, match="has no name"):
        described("gpu = {slots = 2}")
    with pytest.raises(InputError, match="do not agree"):
        described('gpu = ["RTX 3090", "RTX 2080 Ti"]', "gpus = 3")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="There is no machine file"):
        read_machine(tmp_path / "none.toml", catalogue())
    with pytest.raises(InputError, match="cannot be read"):
        read_machine(tmp_path, catalogue())
    broken = tmp_path / "broken.toml"
    broken.write_text("[machine\ngpu", encoding="utf-8")
    with pytest.raises(InputError, match="not valid TOML"):
        read_machine(broken, catalogue())
    broken.write_text('gpu = "RTX 3090"', encoding="utf-8")
    with pytest.raises(InputError, match="line 1: there is no key 'gpu'"):
        read_machine(broken, catalogue())
