from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import DEPOT, a_bill, a_run, a_workload, an_offer, some_terms

from outlay.cost.storage import storage_and_transfer_lines
from outlay.offers.offer import OwnedMachine
from outlay.units import DAY_S, GB, HOUR_S, MONTH_S
from outlay.workload.workload import Checkpoint, Dataset, StoredData, Usage

HOME = OwnedMachine(electricity_usd_per_kwh=0.25, host_w=100)
IMAGES = StoredData(name="images", size_bytes=100 * GB, at="depot", kind="registry")


def kept(run=None, *, terms=(), owned=None, **workload):
    """The lines of storage and transfer, by default of a run of a month in two sessions."""
    bill = a_bill(run or a_run(0.0, sessions=2, calendar_s=MONTH_S), terms=terms, owned=owned)
    lines, unpriced = storage_and_transfer_lines(
        a_workload(**workload), bill.offer, bill.run, bill.terms
    )
    return lines, tuple(item.what for item in unpriced)


def usd_of(name, *args, **workload):
    lines, unknown = kept(*args, **workload)
    assert unknown == ()
    return sum(line.usd for line in lines if line.name == name)


def with_volume(usd_per_gb_month):
    return some_terms(storage_usd_per_byte_month={"volume": usd_per_gb_month / GB})


# --- storage ---


def test_storage_is_by_the_month_of_thirty_days():
    # 100 GB x $0.10 x half a month
    run = a_run(0.0, calendar_s=15 * DAY_S)
    assert usd_of("storage", run, stored=(IMAGES,)) == pytest.approx(5)


def test_storage_is_for_as_long_as_data_is_kept():
    # 100 GB x $0.10 x two months
    run = a_run(0.0, calendar_s=DAY_S, storage_s=60 * DAY_S)
    assert usd_of("storage", run, stored=(IMAGES,)) == pytest.approx(20)


@pytest.mark.parametrize(("kind", "usd"), [("volume", 20), ("registry", 10), ("object", 5)])
def test_each_kind_of_storage_has_its_price(kind, usd):
    # 100 GB for a month at $0.20, $0.10 and $0.05
    assert usd_of("storage", stored=(replace(IMAGES, kind=kind),)) == pytest.approx(usd)


def test_the_dataset_is_kept_where_it_is_said():
    data = Dataset(size_bytes=100 * GB, kept_at="depot", storage="object")
    # 100 GB x $0.05
    assert usd_of("storage", data=data) == pytest.approx(5)


def test_the_dataset_is_kept_with_the_run():
    # 100 GB x $0.05
    usd = usd_of("storage", terms=(with_volume(0.05),), data=Dataset(size_bytes=100 * GB))
    assert usd == pytest.approx(5)


def test_checkpoints_are_kept_with_the_run():
    checkpoint = Checkpoint(size_bytes=2 * GB, kept=3)
    # 3 x 2 GB x $0.05
    usd = usd_of("storage", terms=(with_volume(0.05),), checkpoint=checkpoint)
    assert usd == pytest.approx(0.3)


@pytest.mark.parametrize(
    "workload",
    [
        {"data": Dataset(size_bytes=100 * GB, storage="none")},
        {"stored": (StoredData(name="x", size_bytes=GB, at="home"),)},
        {"owned": HOME, "data": Dataset(size_bytes=100 * GB)},
        {"owned": HOME, "checkpoint": Checkpoint(size_bytes=GB)},
    ],
)
def test_what_is_not_stored_or_lies_at_home_costs_no_storage(workload):
    assert kept(**workload) == ([], ())


def test_storage_without_a_price_is_named_and_not_counted():
    stored = (
        StoredData(name="tapes", size_bytes=GB, at="acme", kind="object"),
        StoredData(name="logs", size_bytes=GB, at="nobody"),
    )
    lines, unknown = kept(stored=stored, terms=(with_volume(0.05),))
    assert lines == []
    assert unknown == (
        "object storage of the tapes at Acme: no price known",
        "volume storage of the logs at nobody: no price known",
    )


# --- the machine's own disk ---

DISK = Dataset(size_bytes=100 * GB, storage="disk")


def test_a_disk_costs_one_price_running_and_another_stopped():
    terms = replace(with_volume(0.10), stopped_disk_usd_per_byte_month=0.20 / GB)
    run = a_run(180 * HOUR_S, calendar_s=MONTH_S)
    lines, unknown = kept(run, terms=(terms,), data=DISK)
    # 100 GB x $0.10 x a quarter of the month, 100 GB x $0.20 x the rest of it
    assert [line.usd for line in lines] == [pytest.approx(2.5), pytest.approx(15)]
    assert [line.basis for line in lines] == [
        "dataset: 100 GB x $0.1/GB-month x 7.5 days at Acme while running",
        "dataset: 100 GB x $0.2/GB-month x 22.5 days at Acme while stopped",
    ]
    assert unknown == ()


def test_a_disk_that_is_never_stopped_needs_no_such_price():
    run = a_run(180 * HOUR_S)
    # 100 GB x $0.10 x a quarter of a month
    assert usd_of("storage", run, terms=(with_volume(0.10),), data=DISK) == pytest.approx(2.5)


def test_a_disk_without_a_price_is_named():
    run = a_run(180 * HOUR_S, calendar_s=MONTH_S)
    lines, unknown = kept(run, terms=(with_volume(0.10),), data=DISK)
    assert [line.usd for line in lines] == [pytest.approx(2.5)]
    assert unknown == ("disk of the dataset at Acme while stopped: no price known",)


def test_a_machines_own_disk_may_have_a_price_of_its_own_while_it_runs():
    terms = some_terms(
        storage_usd_per_byte_month={"volume": 0.07 / GB},
        running_disk_usd_per_byte_month=0.10 / GB,
        stopped_disk_usd_per_byte_month=0.20 / GB,
    )
    run = a_run(6 * DAY_S, calendar_s=15 * DAY_S, storage_s=15 * DAY_S)
    data = Dataset(size_bytes=100 * GB, storage="disk")
    # 100 GB x ($0.10 x 6 of 30 days while running + $0.20 x 9 of 30 days while stopped)
    assert usd_of("storage", run, data=data, terms=(terms,)) == pytest.approx(2 + 6)


# --- transfer ---

PULLED = replace(IMAGES, size_bytes=GB, pulled_bytes=40 * GB)


def with_free(gb):
    return replace(DEPOT, egress_free_bytes_per_month=gb * GB)


def test_transfer_is_by_session_and_machine():
    # 40 GB x 2 sessions x $0.09
    assert usd_of("transfer", stored=(PULLED,)) == pytest.approx(7.2)
    # ... x 3 machines
    usd = usd_of("transfer", stored=(PULLED,), usage=Usage(machines=3))
    assert usd == pytest.approx(21.6)


@pytest.mark.parametrize(
    ("free_gb", "months", "usd"),
    [
        (100, 1, 0),
        (30, 1, 4.5),  # (80 - 30) GB x $0.09
        (30, 2, 1.8),  # (80 - 60) GB x $0.09
        (30, 0.5, 4.5),  # the month that has begun counts
    ],
)
def test_transfer_beyond_the_free_allowance_of_each_month_is_paid(free_gb, months, usd):
    run = a_run(0.0, sessions=2, calendar_s=months * MONTH_S)
    cost_usd = usd_of("transfer", run, stored=(PULLED,), terms=(with_free(free_gb),))
    assert cost_usd == pytest.approx(usd)


def test_the_free_allowance_is_shared_by_all_that_leaves_a_provider():
    tools = StoredData(name="tools", size_bytes=GB, at="depot", pulled_bytes=5 * GB)
    data = Dataset(size_bytes=20 * GB, at="depot", storage="none")
    lines, _ = kept(stored=(PULLED, tools), data=data, terms=(with_free(100),))
    moved = [line for line in lines if line.name == "transfer"]
    # 80 GB and 10 GB are free, 10 GB of the 40 are; 30 GB x $0.09
    assert [line.usd for line in moved] == [0, 0, pytest.approx(2.7)]
    assert moved[-1].basis == "dataset: 40 GB less 10 GB free x $0.09/GB out of Depot"


def test_storage_and_transfer_say_how_they_came_about():
    run = a_run(0.0, sessions=2, calendar_s=15 * DAY_S)
    lines, _ = kept(run, stored=(PULLED,), terms=(with_free(30),))
    assert [line.basis for line in lines] == [
        "images: 1 GB x $0.1/GB-month x 15.0 days at Depot",
        "images: 80 GB less 30 GB free x $0.09/GB out of Depot",
    ]
    assert {line.source for line in lines} == {"the workload file"}


def test_transfer_within_a_provider_is_free():
    terms = some_terms(
        storage_usd_per_byte_month={"registry": 0.1 / GB}, egress_usd_per_byte=0.09 / GB
    )
    lines, unknown = kept(terms=(terms,), stored=(replace(PULLED, at="acme"),))
    assert {line.name: line.usd for line in lines} == {"storage": pytest.approx(0.1)}
    assert unknown == ()


@pytest.mark.parametrize(
    ("data", "usd"),
    [
        # kept with the run: fetched once, 100 GB x $0.09
        (Dataset(size_bytes=100 * GB, at="depot", storage="object"), 9),
        # kept nowhere: in each of two sessions
        (Dataset(size_bytes=100 * GB, at="depot", storage="none"), 18),
        # kept elsewhere: brought there for nothing, then fetched in each session
        (Dataset(size_bytes=100 * GB, at="home", kept_at="depot"), 18),
        # it is there already
        (Dataset(size_bytes=100 * GB, at="depot", kept_at="depot"), 18),
        (Dataset(size_bytes=100 * GB, at="home", storage="none"), 0),
        (Dataset(size_bytes=100 * GB, at="internet", storage="none"), 0),
        (Dataset(size_bytes=100 * GB, at="acme", storage="none"), 0),
    ],
)
def test_the_dataset_is_fetched_as_often_as_it_is_not_there(data, usd):
    terms = some_terms(storage_usd_per_byte_month={"object": 0.0})
    assert usd_of("transfer", data=data, terms=(terms,)) == pytest.approx(usd)


def test_the_dataset_moves_from_one_provider_to_another_and_then_to_the_run():
    far = some_terms("far", egress_usd_per_byte=0.02 / GB)
    data = Dataset(size_bytes=100 * GB, at="far", kept_at="depot")
    # 100 GB x $0.02 once, 2 x 100 GB x $0.09
    assert usd_of("transfer", data=data, terms=(far,)) == pytest.approx(20)


def test_results_are_fetched_home_from_where_the_run_is():
    terms = some_terms(egress_usd_per_byte=0.12 / GB, egress_free_bytes_per_month=10 * GB)
    data = Dataset(results_bytes=60 * GB)
    # (60 - 10) GB x $0.12
    assert usd_of("transfer", data=data, terms=(terms,)) == pytest.approx(6)


def test_results_of_ones_own_machine_are_home():
    assert kept(owned=HOME, data=Dataset(results_bytes=60 * GB)) == ([], ())


def test_data_fetched_to_ones_own_machine_is_paid():
    # 100 GB x $0.09
    usd = usd_of("transfer", owned=HOME, data=Dataset(size_bytes=100 * GB, at="depot"))
    assert usd == pytest.approx(9)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (Dataset(size_bytes=GB, at="nobody", storage="none"), "dataset out of nobody"),
        (Dataset(results_bytes=GB), "results out of acme"),
    ],
)
def test_transfer_without_a_price_is_named_and_not_counted(data, words):
    assert kept(data=data) == ([], (f"transfer of the {words}: no price known",))


@given(st.lists(st.floats(0, 1e14), min_size=1, max_size=4), st.floats(0, 1e5))
@settings(deadline=None)
def test_sharing_an_allowance_costs_what_one_heap_would(sizes, free_gb):
    heaps = [StoredData(name="x", size_bytes=0.0, at="depot", pulled_bytes=size) for size in sizes]
    run = a_run(0.0, calendar_s=MONTH_S)
    apart = usd_of("transfer", run, stored=tuple(heaps), terms=(with_free(free_gb),))
    # (all - free) x $0.09
    expected = max(sum(sizes) - free_gb * GB, 0.0) * 0.09 / GB
    assert apart == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_a_run_at_the_depot_pays_no_transfer_from_it():
    bill = a_bill(a_run(0.0, calendar_s=MONTH_S))
    offer = an_offer("depot")
    lines, _ = storage_and_transfer_lines(a_workload(stored=(PULLED,)), offer, bill.run, bill.terms)
    assert [line.name for line in lines] == ["storage"]
