"""Parts, card prices and rules of the trade: cited, dated, plausible, and used."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import get_args

import pytest

from outlay.facts import NONE, rows_of
from outlay.hardware.gpus import gpus
from outlay.workstation.machine import State, rule_value, rulebook, slots_in
from outlay.workstation.parts import KINDS, bundled_parts
from outlay.workstation.rules_power import CIRCUITS
from outlay.workstation.rules_space import largest_form

PARTS = rows_of("parts.csv")
PRICES = rows_of("card_prices.csv")
RULES = rows_of("build_rules.csv")
SOURCE = Path(__file__).parents[2] / "src" / "outlay" / "workstation"

PARAMETERS = {
    "cpu": {"price", "cores", "threads", "pcie_lanes", "pcie_generation", "tdp", "power_max",
            "socket", "memory_type", "memory_channels", "memory_max"},
    "board": {"price", "socket", "memory_type", "memory_slots", "memory_max", "form", "slots",
              "m2_slots"},
    "memory": {"price", "size", "modules", "memory_type"},
    "psu": {"price", "power", "pcie_8pin", "pcie_16pin", "efficiency"},
    "case": {"price", "expansion_slots", "gpu_length_max", "form"},
    "ssd": {"price", "size", "read_bandwidth", "interface"},
    "hdd": {"price", "size", "read_bandwidth", "interface"},
    "cooler": {"price", "rated_power"},
    "card": {"price", "gpu", "slot_width", "length", "cooling", "power_connectors",
             "recommended_psu"},
}  # fmt: skip
RANGES = {
    "price": (5, 20_000),
    "cores": (2, 128),
    "threads": (2, 256),
    "pcie_lanes": (8, 160),
    "pcie_generation": (2, 6),
    "tdp": (15, 600),
    "power_max": (15, 600),
    "memory_channels": (1, 12),
    "memory_max": (16, 8192),
    "memory_slots": (1, 32),
    "m2_slots": (0, 10),
    "modules": (1, 16),
    "power": (300, 3500),
    "pcie_8pin": (0, 24),
    "pcie_16pin": (0, 6),
    "expansion_slots": (1, 14),
    "gpu_length_max": (150, 700),
    "read_bandwidth": (50, 20_000),
    "rated_power": (50, 600),
    "slot_width": (1, 5),
    "length": (100, 500),
    "recommended_psu": (200, 2000),
}
NOT_IN_GPUS = {"RX 9070 XT"}
"""Cards with a price whose GPU the facts table does not have yet."""
SIZES = {"memory": (4, 4096), "ssd": (100, 32_000), "hdd": (500, 40_000)}
UNITS = {
    "USD", "KRW", "EUR", "GBP", "JPY", "count", "W", "GB", "MB/s", "mm", "slots", "text",
    "ratio", "share", "share/year", "C", "Gbit/s", "days", "months", "year",
}  # fmt: skip
INFORMATIVE = re.compile(
    r"cpu_core_gain|psu_headroom_general|psu_transient|psu_atx3|psu_old_standard|psu_recommended"
    r"|gpu_power_to_plan|psu_\d_gpu|ram_\d_gpu|cpu_cores_|gap_between_cards|gpus_workstation_most"
    r"|gpu_memory_|gpus_before_lanes|pcie_lanes_per_gpu_2gpus|card_slots_3090|throttling_temperature"
    r"|gpu_temperature|connector_6pin|connector_12pin|connector_16pin|slot_power|network_gbit"
    r"|nvlink_gain|circuit_continuous|us_20a|us_15a_120v$|fan_power|hdd_power|memory_module_power"
    r"|mainboard_power|utilisation_|own_machine_|power_limit_3090|quad_3090|depreciation_|failure_"
    r"|interest_"
)
"""Rows that people may look up and other questions use, but no rule of a workstation reads."""


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_no_figure_is_there_twice():
    keys = [(row["kind"], row["part"], row["parameter"]) for row in PARTS]
    assert len(set(keys)) == len(keys)
    keys = [(row["gpu"], row["condition"], row["as_of"], row["source"]) for row in PRICES]
    assert len(set(keys)) == len(keys)
    names = [row["rule"] for row in RULES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("table", [PARTS, PRICES, RULES], ids=["parts", "prices", "rules"])
def test_every_row_has_a_source_and_a_date(table):
    for row in table:
        date.fromisoformat(row["as_of"])
        assert row["unit"] in UNITS, row
        assert row["source"].startswith("http") or row["source"] in ("guess", "not found"), row
        assert (row["source"] == "not found") == (row["value"] == ""), row
        assert (row["source"] == "guess") == row["note"].startswith("guess: "), row


def test_parts_have_the_parameters_of_their_kind():
    assert {row["kind"] for row in PARTS} == set(KINDS)
    for row in PARTS:
        assert row["parameter"] in PARAMETERS[row["kind"]], row


def test_figures_are_plausible():
    for row in PARTS:
        value, parameter = row["value"], row["parameter"]
        if not value or value == NONE or row["unit"] == "text":
            continue
        low, high = SIZES[row["kind"]] if parameter == "size" else RANGES[parameter]
        if row["unit"] in ("USD", "count", "W", "GB", "mm", "slots", "MB/s"):
            assert low <= float(value) <= high, row


def test_texts_are_ones_the_rules_can_read():
    for part in bundled_parts():
        slots, form, gpu = part.text("slots"), part.text("form"), part.text("gpu")
        if slots is not None:
            places = [slot.position for slot in slots_in(slots)]
            assert len(set(places)) == len(places), part.name
        if form is not None:
            assert largest_form(form) is not None, (part.name, form)
        if part.kind == "card":
            assert gpu in gpus(), part.name


def test_threads_are_as_many_as_cores_or_more():
    for part in bundled_parts():
        cores, threads = part.number("cores"), part.number("threads")
        if cores and threads:
            assert cores <= threads <= 2 * cores, part.name


def test_every_kind_has_parts_to_choose_from():
    for kind in KINDS:
        priced = [part for part in bundled_parts() if part.kind == kind and part.price]
        assert priced, kind


def test_card_prices_are_of_known_gpus_and_above_zero():
    for row in PRICES:
        assert row["gpu"] in gpus() or row["gpu"] in NOT_IN_GPUS, row
        assert row["condition"] in ("new", "used", "launch"), row
        if row["value"]:
            assert 20 <= float(row["value"]) <= 100_000, row


@pytest.mark.parametrize("name", sorted(CIRCUITS.values()))
def test_every_country_has_a_circuit(name):
    assert 1000 <= rule_value(name) <= 4000


def test_every_rule_that_code_reads_is_there():
    for path in SOURCE.glob("*.py"):
        for name in re.findall(r'rul(?:ed|ebook\(\))[\[(]"([a-z0-9_]+)"', path.read_text("utf-8")):
            assert name in rulebook(), (path.name, name)


def test_every_row_of_the_rules_is_read_or_informative():
    code = "".join(path.read_text("utf-8") for path in SOURCE.glob("*.py"))
    built = re.compile(
        r"psu_efficiency_|psu_headroom_(low|high)$|cpu_threads_per_gpu_|throttling_|pcie_x4_penalty"
    )
    for name in rulebook():
        if not INFORMATIVE.match(name):
            assert f'"{name}"' in code or built.match(name), name


def test_shares_are_between_nothing_and_all():
    for row in RULES:
        if row["unit"] == "share":
            assert 0 <= float(row["value"]) <= 1, row
        assert is_number(row["value"]), row


def test_states_are_four():
    assert get_args(State) == ("ok", "tight", "broken", "not checked")
