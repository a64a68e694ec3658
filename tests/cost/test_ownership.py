from __future__ import annotations

import numpy as np
import pytest
from tests.builders import a_bill, a_run, a_workload, span

from outlay.cost.bill import cost_of
from outlay.cost.ownership import break_even_s, owned_usd_per_hour, resale_usd_of
from outlay.offers.candidates import workstation_offer
from outlay.offers.offer import OwnedMachine
from outlay.uncertainty import LIKELY, Draws
from outlay.units import HOUR_S, YEAR_S
from outlay.workload.workload import Usage, Workstation


def owned(**fields):
    """A machine that draws 100 W beside its GPUs, at $0.25 a kWh."""
    return OwnedMachine(**({"electricity_usd_per_kwh": 0.25, "host_w": 100} | fields))


def cost_on(machine, run=None, *, sampler=LIKELY, **fields):
    """What ten hours on it cost; its GPUs draw 300 W."""
    return cost_of(
        a_workload(**fields), a_bill(run or a_run(10 * HOUR_S), owned=machine, sampler=sampler)
    )


def amounts(machine, run=None, **fields):
    lines = cost_on(machine, run, **fields).breakdown.lines
    return {line.name: pytest.approx(line.usd) for line in lines}


# --- running it ---


def test_a_machine_one_has_costs_its_electricity():
    # 10 h x (300 + 100) W x $0.25/kWh
    assert amounts(owned()) == {"electricity": 1}


def test_electricity_of_a_machine_room_pays_for_its_cooling():
    # 10 h x 400 W x 1.5 x $0.25/kWh
    assert amounts(owned(pue=1.5)) == {"electricity": 1.5}


def test_wear_is_by_the_hour():
    # 10 h x $0.05
    assert amounts(owned(wear_usd_per_hour=0.05)) == {"electricity": 1, "wear": 0.5}


def test_several_machines_of_ones_own_all_draw_power():
    # 3 x 10 h x 400 W x $0.25/kWh; 3 x 10 h x $0.05
    usd = amounts(owned(wear_usd_per_hour=0.05), usage=Usage(machines=3))
    assert usd == {"electricity": 3, "wear": 1.5}


def test_ones_own_machine_is_paid_for_all_the_time_it_is_busy():
    run = a_run(8 * HOUR_S, setup_s=1 * HOUR_S, preparation_s=0.5 * HOUR_S, idle_s=0.5 * HOUR_S)
    # (8 + 1 + 0.5 + 0.5) h x 400 W x $0.25/kWh
    assert amounts(owned(), run) == {"electricity": 1}


def test_nobody_taxes_ones_own_machine():
    assert amounts(owned(), tax_fraction=0.2) == {"electricity": 1}


def test_owned_usd_per_hour():
    machine = owned(electricity_usd_per_kwh=0.12)
    # (350 + 100) W x $0.12/kWh
    assert owned_usd_per_hour(machine, gpu_w=350) == pytest.approx(0.054)
    ranged = owned(electricity_usd_per_kwh=span(0.10, 0.12, 0.30))
    assert owned_usd_per_hour(ranged, gpu_w=350) == pytest.approx(0.054)


# --- buying it ---

LIFE = {"purchase_usd": 2000, "lifetime_use_s": 10_000 * HOUR_S}
"""Ten hours are a thousandth of its use."""


def test_a_purchase_less_what_it_is_sold_for():
    # (2000 - 500) / 1000
    usd = amounts(owned(resale_usd=500, **LIFE))
    assert usd == {"electricity": 1, "purchase less resale": 1.5}


def test_resale_as_a_fraction_of_the_purchase():
    # (2000 - 0.4 x 2000) / 1000
    usd = amounts(owned(resale_fraction=0.4, **LIFE))
    assert usd == {"electricity": 1, "purchase less resale": 1.2}


def test_a_dearer_machine_is_sold_for_more():
    machine = owned(purchase_usd=span(1000, 2000, 4000), resale_fraction=0.4)
    assert resale_usd_of(machine, np.array([1000.0, 4000.0]), LIKELY).tolist() == [400, 1600]


def test_interest_on_what_is_tied_up():
    machine = owned(resale_usd=500, interest_per_year=0.05, life_s=4 * YEAR_S, **LIFE)
    # (2000 + 500) / 2 = $1250 tied up x 5 % x 4 years = $250, a thousandth of it
    assert amounts(machine)["interest"] == pytest.approx(0.25)


def test_maintenance_of_every_year():
    machine = owned(maintenance_usd_per_year=100, life_s=4 * YEAR_S, **LIFE)
    # 4 x $100 / 1000
    assert amounts(machine)["maintenance"] == pytest.approx(0.4)


def test_idle_electricity_of_a_machine_that_stays_on():
    machine = owned(idle_w=50, pue=1.2, life_s=4 * YEAR_S, **LIFE)
    # 4 x 8760 h - 10,000 h = 25,040 h x 50 W x 1.2 x $0.25/kWh = $375.60, a thousandth of it
    assert amounts(machine)["idle electricity"] == pytest.approx(0.3756)


def test_a_machine_that_is_switched_off_draws_nothing():
    machine = owned(life_s=4 * YEAR_S, **LIFE)
    assert "idle electricity" not in amounts(machine)


def test_without_a_life_it_is_used_all_the_while():
    machine = owned(idle_w=50, maintenance_usd_per_year=876, **LIFE)
    usd = amounts(machine)
    # 10,000 h are 10,000 / 8760 years: $1000 of maintenance
    assert usd["maintenance"] == pytest.approx(1)
    assert "idle electricity" not in usd


def test_what_others_use_takes_its_share():
    def bought(**fields):
        machine = Workstation(
            name="desk",
            gpu="RTX 3090",
            gpus=1,
            electricity_usd_per_kwh=0.25,
            host_w=100,
            purchase_usd=2000,
            **fields,
        )
        return workstation_offer(machine).owned

    alone = bought(lifetime_use_s=10_000 * HOUR_S)
    shared = bought(lifetime_use_s=10_000 * HOUR_S, others_use_s=30_000 * HOUR_S)
    # $2000 x 10 h / 10,000 h; / 40,000 h
    assert amounts(alone)["purchase less resale"] == pytest.approx(2)
    assert amounts(shared)["purchase less resale"] == pytest.approx(0.5)
    # 4 years x 8760 h x 25 % = 8760 h
    by_years = bought(years=4, utilisation=0.25)
    assert by_years.lifetime_use_s == pytest.approx(8760 * HOUR_S)
    assert by_years.life_s == 4 * YEAR_S


def test_lines_of_ones_own_machine_say_how_they_came_about():
    machine = owned(
        pue=1.5,
        wear_usd_per_hour=0.05,
        resale_usd=500,
        interest_per_year=0.05,
        maintenance_usd_per_year=100,
        life_s=4 * YEAR_S,
        idle_w=50,
        **LIFE,
    )
    of_life = " over 10,000 h of use, 10.0 h of them"
    # (300 + 100) W x 1.5 = 600 W, 50 W x 1.5 = 75 W
    assert [line.basis for line in cost_on(machine).breakdown.lines] == [
        "10.0 h x 600 W x $0.250/kWh",
        "10.0 h x $0.050/h",
        "$1,500" + of_life,
        "$1,250 tied up x 5.0% x 4 y" + of_life,
        "$100 a year x 4 y" + of_life,
        "25,040 h x 75 W while nothing runs" + of_life,
    ]


def test_prices_of_electricity_and_machines_are_drawn():
    machine = owned(
        electricity_usd_per_kwh=span(0.20, 0.25, 0.40),
        purchase_usd=span(1500, 2000, 3000),
        resale_fraction=0.0,
        lifetime_use_s=10_000 * HOUR_S,
    )
    breakdown = cost_on(machine, sampler=Draws()).breakdown
    ends = [10, 50, 90]
    # 4 kWh; a thousandth
    assert np.percentile(breakdown.line_usd("electricity"), ends) == pytest.approx(
        [0.8, 1.0, 1.6], rel=0.01
    )
    assert np.percentile(breakdown.line_usd("purchase less resale"), ends) == pytest.approx(
        [1.5, 2.0, 3.0], rel=0.01
    )


# --- rent or buy ---


@pytest.mark.parametrize(
    ("rented", "running", "use", "hours"),
    [
        (1.10, 0.10, 1.0, 2000),  # 2000 / 1.00
        (1.10, 0.10, 0.5, 4000),
        (0.10, 0.10, 1.0, None),
        (0.05, 0.10, 1.0, None),
    ],
)
def test_break_even_s(rented, running, use, hours):
    time_s = break_even_s(
        2000, rented_usd_per_hour=rented, owned_usd_per_hour=running, use_fraction=use
    )
    assert time_s == (None if hours is None else pytest.approx(hours * HOUR_S))
