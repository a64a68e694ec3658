from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import DEPOT, a_bill, a_run, a_workload, an_offer, some_terms

from outlay.cost.storage import storage_and_transfer_lines
from outlay.offers.offer import OwnedMachine
from outlay.offers.terms import terms_for, terms_of
from outlay.units import DAY_S, GB, HOUR_S, MONTH_S
from outlay.workload.workload import Checkpoint, Dataset, StoredData, TermsOverride, Usage

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


# --- regions, and copying before a machine is rented ---


def lines_in(region, data, run=None, *, provider="aws", stored=(), usage=None, terms=terms_of):
    """Names, amounts and reasons of the lines on a machine in a region, at the tables' prices."""
    workload = a_workload(data=data, stored=stored, usage=usage or Usage())
    offer = an_offer(provider, region=region)
    run = run or a_run(0.0, sessions=2, calendar_s=MONTH_S)
    lines, unpriced = storage_and_transfer_lines(workload, offer, run, terms)
    return lines, tuple(item.what for item in unpriced)


def moved_usd(*args, **more):
    lines, unknown = lines_in(*args, **more)
    assert unknown == ()
    return [line.usd for line in lines if line.name == "transfer"]


IN_VIRGINIA = Dataset(size_bytes=500 * GB, at="aws:us-east-1", storage="object")


def test_data_in_another_region_is_copied_once_where_it_is_kept_with_the_run():
    # 500 GB x $0.02 from Virginia to Ireland, whatever the number of sessions
    assert moved_usd("eu-west-1", IN_VIRGINIA) == [pytest.approx(10)]
    # ... x $0.01 to Ohio, and nothing where it lies
    assert moved_usd("us-east-2", IN_VIRGINIA) == [pytest.approx(5)]
    assert moved_usd("us-east-1", IN_VIRGINIA) == []
    # a bare provider is the machine's region
    assert moved_usd("eu-west-1", replace(IN_VIRGINIA, at="aws")) == []


def test_data_kept_in_another_region_is_pulled_across_in_each_session():
    there = replace(IN_VIRGINIA, kept_at="aws:us-east-1")
    # 500 GB x 2 sessions x $0.02
    assert moved_usd("eu-west-1", there) == [pytest.approx(20)]
    # ... and by each of 3 machines
    assert moved_usd("eu-west-1", there, usage=Usage(machines=3)) == [pytest.approx(60)]
    assert moved_usd("us-east-1", there) == []


def test_data_that_moves_twice_pays_twice():
    brought = replace(IN_VIRGINIA, at="aws:ap-south-1", kept_at="aws:us-east-1")
    # 500 GB x $0.086 out of Mumbai, then 2 x 500 GB x $0.02 out of Virginia
    assert moved_usd("eu-west-1", brought) == [pytest.approx(43), pytest.approx(20)]


def test_data_in_another_cloud_pays_to_leave_its_region():
    mumbai = replace(IN_VIRGINIA, at="aws:ap-south-1", storage="volume")
    # (500 - 100) GB x $0.1093
    assert moved_usd("any", mumbai, provider="lambda") == [pytest.approx(43.72)]
    # (500 - 100) GB x $0.09
    virginia = replace(mumbai, at="aws:us-east-1")
    assert moved_usd("any", virginia, provider="lambda") == [pytest.approx(36)]


def test_results_leave_the_region_of_the_machine():
    results = Dataset(results_bytes=300 * GB)
    # (300 - 100) GB x $0.1093, and x $0.09
    assert moved_usd("ap-south-1", results) == [pytest.approx(21.86)]
    assert moved_usd("us-west-2", results) == [pytest.approx(18)]


def test_images_in_a_registry_of_another_region_are_pulled_by_its_rule():
    images = StoredData(
        name="images", size_bytes=GB, at="aws:us-east-1", kind="registry", pulled_bytes=10 * GB
    )
    # 10 GB x 2 sessions x $0.02
    assert moved_usd("us-west-2", Dataset(), stored=(images,)) == [pytest.approx(0.4)]
    assert moved_usd("us-east-1", Dataset(), stored=(images,)) == []


def test_machines_that_replace_others_pull_again():
    there = replace(IN_VIRGINIA, kept_at="aws:us-east-1")
    run = a_run(0.0, sessions=2, calendar_s=MONTH_S, interruptions=1.5)
    # 500 GB x (2 sessions + 1.5 interruptions) x $0.02
    assert moved_usd("eu-west-1", there, run) == [pytest.approx(35)]
    disk = Dataset(size_bytes=500 * GB, at="gcp:us-east1", storage="disk")
    # 500 GB x (once + 1.5 interruptions) x $0.12 a GiB
    lines, _ = lines_in("eu-west-1", disk, run, terms=no_allowance)
    (line,) = (line for line in lines if line.name == "transfer")
    assert line.usd == pytest.approx(1250 * 0.12 * GB / 2**30)


def no_allowance(provider):
    return replace(terms_of(provider), egress_free_bytes_per_month=None)


def test_a_line_says_from_where_to_where():
    lines, _ = lines_in("eu-west-1", IN_VIRGINIA)
    (line,) = (line for line in lines if line.name == "transfer")
    assert line.basis == (
        "dataset: 500 GB x $0.02/GB from us-east-1 to eu-west-1 of Amazon Web Services"
    )
    assert line.source.startswith("https://github.com/infracost/")
    assert line.payee == "aws"


def test_a_region_without_a_rule_is_named_and_not_counted():
    far = Dataset(size_bytes=100 * GB, at="gcp:africa-south1", storage="none")
    lines, unknown = lines_in("us-central1", far, provider="gcp")
    assert lines == []
    assert unknown == (
        "transfer of the dataset from africa-south1 to us-central1 of Google Cloud: no price known",
    )


@pytest.mark.parametrize(
    ("provider", "region", "data", "usd"),
    [
        # 900 GB at 2.5 MB/s are 100 h; t3.medium at $0.0416
        ("aws", "us-east-1", Dataset(size_bytes=900 * GB, at="home"), 4.16),
        # object storage takes uploads, RunPod's volumes do
        ("aws", "us-east-1", Dataset(size_bytes=900 * GB, at="home", storage="object"), None),
        ("runpod", "any", Dataset(size_bytes=900 * GB, at="home"), None),
        # the machine's own disk is filled by the machine
        ("aws", "us-east-1", Dataset(size_bytes=900 * GB, at="home", storage="disk"), None),
        # a provider whose small machines are not known: $0.08, a guess
        ("verda", "any", Dataset(size_bytes=900 * GB, at="home"), 8.0),
    ],
)
def test_a_volume_is_filled_by_a_machine_that_costs_little(provider, region, data, usd):
    run = a_run(0.0, calendar_s=MONTH_S, upload_s=100 * HOUR_S)
    lines, _ = lines_in(region, data, run, provider=provider)
    copying = [line for line in lines if line.name == "copying machine"]
    assert [line.usd for line in copying] == ([] if usd is None else [pytest.approx(usd)])


def test_a_copying_machine_says_what_it_does():
    run = a_run(0.0, calendar_s=MONTH_S, copy_s=2.5 * HOUR_S)
    data = Dataset(size_bytes=900 * GB, at="gcp:us-east1")
    lines, _ = lines_in("us-east-1", data, run)
    (line,) = (line for line in lines if line.name == "copying machine")
    # 2.5 h x $0.0416
    assert line.usd == pytest.approx(0.104)
    assert line.basis == "900 GB from gcp:us-east1 to aws:us-east-1: 2.50 h x $0.0416/h"
    assert line.source == "skypilot-catalog@f2624ac05:catalogs/v7/aws/vms.csv, 2026-08-22"


def test_the_user_may_say_what_a_copying_machine_costs():
    own = TermsOverride(provider="aws", copying_machine_usd_per_hour=0.01)
    run = a_run(0.0, calendar_s=MONTH_S, upload_s=100 * HOUR_S)
    data = Dataset(size_bytes=900 * GB, at="home")
    lines, _ = lines_in("us-east-1", data, run, terms=terms_for(a_workload(terms=(own,))))
    (line,) = (line for line in lines if line.name == "copying machine")
    assert (line.usd, line.source) == (pytest.approx(1.0), "the workload file")
