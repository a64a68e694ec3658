from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import a_run, a_workload, an_offer, exactly, span

from outlay.cost import (
    Bill,
    billed_s,
    break_even_s,
    owned_cost,
    owned_usd_per_hour,
    rented_cost,
)
from outlay.offers.offer import Owned
from outlay.offers.terms import Terms
from outlay.units import DAY_S, GB, HOUR_S, MONTH_S
from outlay.workload import Checkpoint, Dataset, Stored, Usage

DEPOT = Terms(
    provider="depot",
    name="Depot",
    storage_usd_per_byte_month={"volume": 0.2 / GB, "registry": 0.1 / GB},
    egress_usd_per_byte=0.09 / GB,
)


def terms_from(*known):
    """Everybody's terms: these, and nothing of anybody else."""
    by_name = {terms.provider: terms for terms in known}
    return lambda name: by_name.get(name, Terms(provider=name, name=name))


def a_bill(run, *, usd=2.0, terms=(), owned=None, gpu_w=300.0):
    return Bill(
        run=run,
        offer=an_offer(usd=None if owned else 2.0, owned=owned),
        tenancy="owned" if owned else "on-demand",
        hourly_usd=usd if not isinstance(usd, float) else exactly(usd),
        terms=terms_from(DEPOT, *terms),
        gpu_w=gpu_w,
    )


def cost_of(run, *, usd=2.0, terms=(), **said):
    return rented_cost(a_workload(**said), a_bill(run, usd=usd, terms=terms))


def own_cost_of(run, owned, **said):
    return owned_cost(a_workload(**said), a_bill(run, owned=owned), owned)


def amounts(cost):
    return {line.name: pytest.approx(line.usd.likely) for line in cost.breakdown.lines}


def acme(**said):
    return Terms(provider="acme", name="Acme", **said)


# --- time ---


def test_compute_is_hours_times_the_price():
    cost = cost_of(a_run(10 * HOUR_S))
    # 10 h x $2
    assert amounts(cost) == {"compute": 20}
    assert cost.usd == exactly(20)
    assert cost.unknown == ()


def test_each_part_of_a_run_has_its_line():
    run = a_run(
        10 * HOUR_S,
        sessions=4,
        setup_s=0.5 * HOUR_S,
        preparation_s=3 * HOUR_S,
        download_s=0.25 * HOUR_S,
        checkpoint_s=1 * HOUR_S,
        repeated_s=1.5 * HOUR_S,
    )
    assert amounts(cost_of(run)) == {
        "compute": 20,  # 10 h x $2
        "checkpoints": 2,  # 1 h
        "spot repetition": 3,  # 1.5 h
        "set-up": 4,  # 4 x 0.5 h
        "data preparation": 6,  # 3 h
        "data download": 0.5,  # 0.25 h
    }


def test_several_machines_are_all_paid():
    # 3 x 10 h x $2
    assert cost_of(a_run(10 * HOUR_S), usage=Usage(machines=3)).usd.likely == pytest.approx(60)


def test_the_range_is_that_of_time_and_price():
    cost = cost_of(a_run(span(8 * HOUR_S, 10 * HOUR_S, 15 * HOUR_S)))
    # 8, 10 and 15 h x $2
    assert cost.usd.low == pytest.approx(16)
    assert cost.usd == pytest.approx(20)
    assert cost.usd.high == pytest.approx(30)
    cost = cost_of(a_run(10 * HOUR_S), usd=span(1.0, 2.0, 5.0))
    assert (cost.usd.low, cost.usd.high) == (pytest.approx(10), pytest.approx(50))


def test_a_line_says_how_it_came_about():
    line = cost_of(a_run(10 * HOUR_S), usage=Usage(machines=3)).breakdown.lines[0]
    assert line.basis == "10.00 h x $2/h x 3 machines"
    assert line.source == "made up, 2026-01-01"


# --- billing steps ---


@pytest.mark.parametrize(
    ("used_s", "step_s", "minimum_s", "charged_s"),
    [
        (3601, 3600, None, 7200),
        (3600, 3600, None, 3600),
        (3600.0000001, 3600, None, 3600),
        (61, 60, None, 120),
        (10, 1, 60, 60),
        (61.5, 1, 60, 62),
        (100, None, None, 100),
        (10, None, 60, 60),
        (100, 60, 150, 180),  # the minimum is rounded up, too
    ],
)
def test_billed_s(used_s, step_s, minimum_s, charged_s):
    terms = acme(billing_step_s=step_s, billing_minimum_s=minimum_s)
    assert billed_s(used_s, terms) == pytest.approx(charged_s)


@given(
    st.floats(0, 1e8),
    st.none() | st.sampled_from([1.0, 60.0, 600.0, 3600.0]),
    st.none() | st.floats(0, 1e4),
)
@settings(deadline=None)
def test_billed_s_is_enough_in_whole_steps_and_not_a_step_too_much(used_s, step_s, minimum_s):
    charged_s = billed_s(used_s, acme(billing_step_s=step_s, billing_minimum_s=minimum_s))
    needed_s = max(used_s, minimum_s or 0.0)
    # A hair below is allowed for: a billionth of a step.
    assert charged_s >= needed_s - 1e-9 * (step_s or 0.0) - 1e-9 * needed_s
    if step_s is None:
        assert charged_s == needed_s
    else:
        assert charged_s % step_s == 0
        assert charged_s < needed_s + step_s


def test_a_session_is_rounded_up_to_the_billing_step():
    run = a_run(1.5 * HOUR_S)
    cost = cost_of(run, terms=(acme(billing_step_s=HOUR_S),))
    # 1.5 h x $2, and half an hour more
    assert amounts(cost) == {"compute": 3, "billing step": 1}


def test_each_session_is_rounded_up():
    run = a_run(15 * HOUR_S, sessions=10)
    cost = cost_of(run, terms=(acme(billing_step_s=HOUR_S),), usage=Usage(machines=2))
    # ten of 1.5 h: half an hour more each, x $2 x 2 machines
    assert cost.breakdown.line_usd("billing step") == pytest.approx(20)
    # 10 x 2 h x $2 x 2 machines
    assert cost.usd == pytest.approx(80)


def test_a_short_session_is_charged_the_minimum():
    cost = cost_of(a_run(0.25 * HOUR_S), terms=(acme(billing_minimum_s=HOUR_S),))
    # an hour at $2
    assert cost.usd == pytest.approx(2)


# --- storage ---


def test_storage_is_by_the_month_of_thirty_days():
    images = Stored(name="images", size_bytes=100 * GB, at="depot", kind="registry")
    cost = cost_of(a_run(0.0, period_s=15 * DAY_S), stored=(images,))
    # 100 GB x $0.10 x half a month
    assert amounts(cost) == {"storage": 5}


def test_storage_is_for_as_long_as_data_is_kept():
    images = Stored(name="images", size_bytes=100 * GB, at="depot", kind="registry")
    cost = cost_of(a_run(0.0, period_s=DAY_S, kept_s=60 * DAY_S), stored=(images,))
    # 100 GB x $0.10 x two months
    assert amounts(cost) == {"storage": 20}


def test_the_dataset_is_kept_where_it_is_said():
    data = Dataset(size_bytes=100 * GB, kept_at="depot", storage="volume")
    cost = cost_of(a_run(0.0, period_s=MONTH_S), data=data)
    # 100 GB x $0.20
    assert cost.breakdown.line_usd("storage") == pytest.approx(20)


def test_the_dataset_is_kept_with_the_run():
    terms = acme(storage_usd_per_byte_month={"volume": 0.05 / GB})
    data = Dataset(size_bytes=100 * GB)
    cost = cost_of(a_run(0.0, period_s=MONTH_S), terms=(terms,), data=data)
    # 100 GB x $0.05
    assert cost.breakdown.line_usd("storage") == pytest.approx(5)


def test_checkpoints_are_kept_with_the_run():
    terms = acme(storage_usd_per_byte_month={"volume": 0.05 / GB})
    checkpoint = Checkpoint(size_bytes=2 * GB, kept=3)
    cost = cost_of(a_run(0.0, period_s=MONTH_S), terms=(terms,), checkpoint=checkpoint)
    # 3 x 2 GB x $0.05
    assert cost.breakdown.line_usd("storage") == pytest.approx(0.3)


def test_a_dataset_that_is_not_stored_costs_no_storage():
    data = Dataset(size_bytes=100 * GB, storage="none")
    cost = cost_of(a_run(0.0, period_s=MONTH_S), data=data)
    assert cost.breakdown.lines == ()
    assert cost.unknown == ()


def test_what_lies_at_home_costs_no_storage():
    cost = cost_of(
        a_run(0.0, period_s=MONTH_S), stored=(Stored(name="x", size_bytes=GB, at="home"),)
    )
    assert cost.breakdown.lines == ()
    assert cost.unknown == ()


def test_storage_without_a_price_is_named_and_not_counted():
    stored = (
        Stored(name="images", size_bytes=GB, at="depot", kind="object"),
        Stored(name="logs", size_bytes=GB, at="nobody"),
    )
    cost = cost_of(a_run(HOUR_S, period_s=MONTH_S), stored=stored)
    assert cost.unknown == (
        "object storage of the images at Depot: no price known",
        "volume storage of the logs at nobody: no price known",
    )
    # an hour at $2, nothing else
    assert amounts(cost) == {"compute": 2}


# --- transfer ---

PULLED = Stored(name="images", size_bytes=GB, at="depot", kind="registry", pulled_bytes=40 * GB)


def transfer_usd(run=None, *, terms=(), **said):
    run = run or a_run(0.0, sessions=2, period_s=MONTH_S)
    return cost_of(run, terms=terms, **said).breakdown.line_usd("transfer")


def test_transfer_is_by_session_and_machine():
    # 40 GB x 2 sessions x $0.09
    assert transfer_usd(stored=(PULLED,)) == pytest.approx(7.2)
    # ... x 3 machines
    assert transfer_usd(stored=(PULLED,), usage=Usage(machines=3)) == pytest.approx(21.6)


def test_storage_and_transfer_say_how_they_came_about():
    run = a_run(0.0, sessions=2, period_s=15 * DAY_S)
    cost = cost_of(run, stored=(PULLED,), terms=(depot_with_free(30 * GB),))
    assert [line.basis for line in cost.breakdown.lines] == [
        "images: 1 GB x $0.1/GB-month x 15.0 days at Depot",
        "images: 80 GB less 30 GB free x $0.09/GB out of Depot",
    ]


def depot_with_free(free_bytes):
    return Terms(
        provider="depot",
        name="Depot",
        storage_usd_per_byte_month=DEPOT.storage_usd_per_byte_month,
        egress_usd_per_byte=0.09 / GB,
        egress_free_bytes_per_month=free_bytes,
    )


def test_transfer_within_the_free_allowance_is_free():
    assert transfer_usd(stored=(PULLED,), terms=(depot_with_free(100 * GB),)) == 0


def test_transfer_beyond_the_free_allowance_is_paid():
    # (80 - 30) GB x $0.09
    usd = transfer_usd(stored=(PULLED,), terms=(depot_with_free(30 * GB),))
    assert usd == pytest.approx(4.5)


def test_the_free_allowance_is_there_each_month():
    # over two months: (80 - 60) GB x $0.09
    run = a_run(0.0, sessions=2, period_s=2 * MONTH_S)
    usd = transfer_usd(run, stored=(PULLED,), terms=(depot_with_free(30 * GB),))
    assert usd == pytest.approx(1.8)


def test_transfer_within_a_provider_is_free():
    terms = acme(storage_usd_per_byte_month={"registry": 0.1 / GB}, egress_usd_per_byte=0.09 / GB)
    at_home = Stored(name="images", size_bytes=GB, at="acme", kind="registry", pulled_bytes=40 * GB)
    cost = cost_of(a_run(0.0, sessions=2, period_s=MONTH_S), terms=(terms,), stored=(at_home,))
    assert amounts(cost) == {"storage": 0.1}
    assert cost.unknown == ()


def test_the_dataset_is_fetched_once_where_it_is_kept_with_the_run():
    data = Dataset(size_bytes=100 * GB, at="depot")
    # 100 GB x $0.09
    assert transfer_usd(data=data) == pytest.approx(9)


def test_the_dataset_is_fetched_each_session_where_it_is_not_kept():
    data = Dataset(size_bytes=100 * GB, at="depot", storage="none")
    # 2 x 100 GB x $0.09
    assert transfer_usd(data=data) == pytest.approx(18)


@pytest.mark.parametrize("place", ["home", "internet"])
def test_the_dataset_comes_free_from_home_and_the_internet(place):
    data = Dataset(size_bytes=100 * GB, at=place, storage="none")
    cost = cost_of(a_run(0.0, period_s=MONTH_S), data=data)
    assert cost.breakdown.lines == ()
    assert cost.unknown == ()


def test_transfer_without_a_price_is_named_and_not_counted():
    data = Dataset(size_bytes=100 * GB, at="nobody", storage="none")
    cost = cost_of(a_run(HOUR_S), data=data)
    assert cost.unknown == ("transfer of the dataset out of nobody: no price known",)
    assert amounts(cost) == {"compute": 2}


# --- one's own machine ---


def test_a_machine_one_has_costs_its_electricity():
    owned = Owned(electricity_usd_per_kwh=0.25, host_w=100)
    cost = own_cost_of(a_run(10 * HOUR_S), owned)
    # 10 h x (300 + 100) W x $0.25/kWh
    assert amounts(cost) == {"electricity": 1}


def test_several_machines_of_ones_own_all_draw_power():
    owned = Owned(electricity_usd_per_kwh=0.25, host_w=100, wear_usd_per_hour=0.05)
    cost = own_cost_of(a_run(10 * HOUR_S), owned, usage=Usage(machines=3))
    # 3 x 10 h x 400 W x $0.25/kWh; 3 x 10 h x $0.05
    assert amounts(cost) == {"electricity": 3, "wear": 1.5}


def test_wear_and_cooling_are_added_where_stated():
    owned = Owned(electricity_usd_per_kwh=0.25, host_w=100, pue=1.5, wear_usd_per_hour=0.05)
    cost = own_cost_of(a_run(10 * HOUR_S), owned)
    # 10 h x 400 W x 1.5 x $0.25/kWh; 10 h x $0.05
    assert amounts(cost) == {"electricity": 1.5, "wear": 0.5}


def test_a_machine_to_be_bought_costs_its_share_of_the_purchase():
    owned = Owned(
        electricity_usd_per_kwh=0.25,
        host_w=100,
        purchase_usd=2000,
        resale_usd=500,
        lifetime_use_s=10_000 * HOUR_S,
    )
    cost = own_cost_of(a_run(10 * HOUR_S), owned)
    # (2000 - 500) x 10 h / 10,000 h
    assert amounts(cost) == {"electricity": 1, "purchase less resale": 1.5}


def test_ones_own_machine_is_paid_for_all_the_time_it_is_busy():
    owned = Owned(electricity_usd_per_kwh=0.25, host_w=100)
    cost = own_cost_of(a_run(8 * HOUR_S, sessions=4, setup_s=0.5 * HOUR_S), owned)
    # (8 + 4 x 0.5) h x 400 W x $0.25/kWh
    assert cost.usd == pytest.approx(1)


def test_data_fetched_to_ones_own_machine_is_paid():
    owned = Owned(electricity_usd_per_kwh=0.25, host_w=100)
    cost = own_cost_of(a_run(0.0), owned, data=Dataset(size_bytes=100 * GB, at="depot"))
    # 100 GB x $0.09
    assert cost.breakdown.line_usd("transfer") == pytest.approx(9)


def test_owned_usd_per_hour():
    owned = Owned(electricity_usd_per_kwh=0.12, host_w=100)
    # (350 + 100) W x $0.12/kWh
    assert owned_usd_per_hour(owned, gpu_w=350) == pytest.approx(0.054)


def test_lines_of_ones_own_machine_say_how_they_came_about():
    owned = Owned(
        electricity_usd_per_kwh=0.25,
        host_w=100,
        pue=1.5,
        wear_usd_per_hour=0.05,
        purchase_usd=2000,
        resale_usd=500,
        lifetime_use_s=10_000 * HOUR_S,
    )
    lines = own_cost_of(a_run(10 * HOUR_S), owned).breakdown.lines
    # (300 + 100) W x 1.5 = 600 W
    assert [line.basis for line in lines] == [
        "10.0 h x 600 W x $0.250/kWh",
        "10.0 h x $0.050/h",
        "$1,500 over 10,000 h of use, 10.0 h of them",
    ]


@pytest.mark.parametrize(
    ("rented", "owned", "use", "hours"),
    [
        (1.10, 0.10, 1.0, 2000),  # 2000 / 1.00
        (1.10, 0.10, 0.5, 4000),
        (0.10, 0.10, 1.0, None),
        (0.05, 0.10, 1.0, None),
    ],
)
def test_break_even_s(rented, owned, use, hours):
    time_s = break_even_s(
        2000, rented_usd_per_hour=rented, owned_usd_per_hour=owned, use_fraction=use
    )
    assert time_s == (None if hours is None else pytest.approx(hours * HOUR_S))


# --- whatever the run ---

hours = st.floats(0, 1000).map(lambda number: number * HOUR_S)


@given(
    training_s=hours,
    setup_s=hours,
    repeated_s=hours,
    sessions=st.integers(1, 30),
    machines=st.integers(1, 8),
    usd=st.floats(0.01, 100),
    step_s=st.none() | st.sampled_from([1.0, 60.0, 3600.0]),
    size_bytes=st.none() | st.floats(0, 1e13),
)
@settings(deadline=None)
def test_lines_sum_to_the_total_and_none_is_negative(
    training_s, setup_s, repeated_s, sessions, machines, usd, step_s, size_bytes
):
    run = a_run(training_s, sessions=sessions, setup_s=setup_s, repeated_s=repeated_s)
    cost = cost_of(
        run,
        usd=usd,
        terms=(acme(billing_step_s=step_s),),
        usage=Usage(machines=machines),
        data=Dataset(size_bytes=size_bytes, at="depot", kept_at="depot"),
    )
    lines = cost.breakdown.lines
    assert sum(line.usd.likely for line in lines) == pytest.approx(cost.usd)
    assert all(line.usd.low >= 0 for line in lines)
    # Never less than the hours at their price.
    held_usd = run.busy_s / HOUR_S * usd * machines
    assert cost.usd >= held_usd * (1 - 1e-9) - 1e-9
