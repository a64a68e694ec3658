from __future__ import annotations

import pytest

from outlay.errors import InputError, NotKnown
from outlay.facts import assumptions
from outlay.offers.candidates import workstation_offer, workstation_offers
from outlay.units import HOUR_S
from outlay.workload.workload import Workstation


def test_a_machine_of_ones_own_has_no_hourly_price():
    offer = workstation_offer(Workstation(name="desk", gpu="rtx 3090", gpus=2))
    assert offer.identity == ("own", "desk", "here")
    assert (offer.gpu, offer.gpus) == ("RTX 3090", 2)
    assert offer.price_usd_per_hour is None
    assert offer.tenancies == ("owned",)


def test_what_is_not_said_is_taken_from_the_assumptions():
    owned = workstation_offer(Workstation(name="desk", gpu="T4", gpus=1)).owned
    assert owned is not None
    assert owned.host_w == assumptions()["desktop_host_power_w"].number
    assert owned.electricity_usd_per_kwh == assumptions()["electricity_usd_per_kwh"].number
    assert owned.purchase_usd is None


def test_what_is_said_is_kept_a_zero_included():
    machine = Workstation(
        name="desk",
        gpu="T4",
        gpus=1,
        vcpus=16,
        ram_bytes=64e9,
        host_w=0.0,
        electricity_usd_per_kwh=0.0,
        purchase_usd=2000,
        resale_usd=500,
        lifetime_use_s=3.6e6,
        wear_usd_per_hour=0.05,
        pue=1.2,
    )
    offer = workstation_offer(machine)
    assert (offer.vcpus, offer.ram_bytes) == (16, 64e9)
    owned = offer.owned
    assert owned is not None
    assert (owned.host_w, owned.electricity_usd_per_kwh) == (0.0, 0.0)
    assert (owned.purchase_usd, owned.resale_usd, owned.lifetime_use_s) == (2000, 500, 3.6e6)
    assert (owned.wear_usd_per_hour, owned.pue) == (0.05, 1.2)


def test_money_costs_what_the_machine_says_or_the_user():
    def interest(machine_says, user_says):
        machine = Workstation(name="desk", gpu="T4", gpus=1, interest_per_year=machine_says)
        return workstation_offer(machine, user_says).owned.interest_per_year

    assert interest(None, None) == 0.0
    assert interest(None, 0.05) == 0.05
    assert interest(0.04, 0.05) == 0.04
    assert interest(0.0, 0.05) == 0.0


def test_two_machines_of_one_name_are_refused():
    machine = Workstation(name="desk", gpu="T4", gpus=1)
    with pytest.raises(InputError, match="own / desk / here") as caught:
        workstation_offers([machine, machine])
    assert "`name`" in caught.value.fix


def test_an_unknown_gpu_is_refused():
    with pytest.raises(NotKnown, match="Z9000"):
        workstation_offer(Workstation(name="desk", gpu="Z9000", gpus=1))


def test_hours_of_use_are_stated_or_years_times_utilisation():
    def owned(**said):
        return workstation_offer(Workstation(name="desk", gpu="T4", gpus=1, **said)).owned

    assert owned().lifetime_use_s is None
    assert owned(lifetime_use_s=1000.0).lifetime_use_s == 1000
    # 2 years x 8760 h x 15 % = 2628 h
    by_years = owned(years=2, utilisation=0.15)
    assert by_years.lifetime_use_s == pytest.approx(2628 * HOUR_S)
    assert by_years.life_s == 2 * 8760 * HOUR_S
    # what others use comes on top
    shared = owned(lifetime_use_s=1000.0, others_use_s=500.0)
    assert shared.lifetime_use_s == 1500
    assert owned(years=2, utilisation=0.15, others_use_s=72 * HOUR_S).lifetime_use_s == (
        pytest.approx(2700 * HOUR_S)
    )
