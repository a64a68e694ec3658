from __future__ import annotations

import pytest
from tests.builders import an_offer, exactly, span

from outlay.offers import instances
from outlay.offers.instances import disk_of, feed_rates
from outlay.offers.offer import OwnedMachine
from outlay.workload.workload import Dataset, Feed

MB = 1e6
LIMITS = (
    ("acme", "*", "volume_bandwidth", "100"),
    ("acme", "small.*", "instance_limit", "40"),
    ("acme", "large.*", "instance_limit", "500"),
)
RATES = {
    "disk_nvme": (1000e6, 3000e6, 7000e6),
    "disk_sata": (500e6, 530e6, 550e6),
    "disk_hdd": (15e6, 30e6, 50e6),
    "disk_volume": (80e6, 125e6, 400e6),
    "disk_object": (100e6, 400e6, 2000e6),
    "disk_network": (50e6, 117e6, 1000e6),
}
TABLES = {
    "disk_rates.csv": [
        dict(zip(("provider", "instance_pattern", "parameter", "value"), row, strict=True))
        for row in LIMITS
    ],
    "feed_rates.csv": [
        {"name": name, "low": str(low), "value": str(likely), "high": str(high)}
        for name, (low, likely, high) in RATES.items()
    ],
}


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    """Made-up tables: volumes of 100 MB/s at acme, instances that take 40 and 500 MB/s."""
    monkeypatch.setattr(instances, "rows_of", TABLES.__getitem__)
    _forget()
    yield
    _forget()


def _forget():
    feed_rates.cache_clear()
    instances._disk_rows.cache_clear()


def owned():
    return OwnedMachine(electricity_usd_per_kwh=0.1, host_w=100.0)


def data_of(storage="volume", **feed):
    return Dataset(storage=storage, feed=Feed(**feed))


def test_rates_come_with_their_range():
    assert feed_rates()["disk_hdd"] == span(15e6, 30e6, 50e6)


def test_what_the_user_said_of_the_offer_s_disk_comes_first():
    offer = an_offer(disk="nvme", disk_bytes_per_s=1500 * MB)
    found = disk_of(offer, data_of(disk="hdd", disk_bytes_per_s=20 * MB))
    assert (found.name, found.bytes_per_s) == ("nvme", 1500 * MB)
    unnamed = disk_of(an_offer(disk_bytes_per_s=1500 * MB), data_of(disk="hdd"))
    assert (unnamed.name, unnamed.bytes_per_s) == ("its disk", 1500 * MB)


def test_then_what_the_user_said_of_the_data_s_disk():
    found = disk_of(an_offer(), data_of(disk="sata", disk_bytes_per_s=200 * MB))
    assert (found.name, found.bytes_per_s) == ("sata", 200 * MB)
    assert disk_of(an_offer(), data_of(disk_bytes_per_s=exactly(200 * MB))).name == "the disk"


@pytest.mark.parametrize("kind", ["nvme", "sata", "hdd", "object", "network"])
def test_then_what_such_disks_read(kind):
    found = disk_of(an_offer(), data_of(disk=kind))
    assert (found.name, found.bytes_per_s) == (kind, span(*RATES[f"disk_{kind}"]))


def test_the_offer_s_kind_of_disk_comes_before_the_data_s():
    assert disk_of(an_offer(disk="sata"), data_of(disk="hdd")).name == "sata"


@pytest.mark.parametrize(
    ("offer", "storage", "name"),
    [
        (an_offer(), "volume", "a network volume"),
        (an_offer(local_disk_bytes=1e12), "volume", "a network volume"),
        (an_offer(local_disk_bytes=1e12), "disk", "nvme"),
        (an_offer(local_disk_bytes=1e12), "none", "nvme"),
        (an_offer(local_disk_bytes=0.0), "none", "a network volume"),
        (an_offer(local_disk_bytes=None), "disk", "a network volume"),
        (an_offer(local_disk_bytes=1e12), "object", "object"),
        (an_offer(owned=owned()), "volume", "nvme"),
        (an_offer(owned=owned()), "object", "nvme"),
    ],
)
def test_where_nobody_said_data_is_read_from_where_it_is_kept(offer, storage, name):
    assert disk_of(offer, data_of(storage)).name == name
    assert disk_of(offer, Dataset(storage=storage)).name == name


def test_a_volume_reads_as_its_provider_says():
    found = disk_of(an_offer(instance="other.1"), data_of())
    # 100 MB/s; a fifth less at the low end, twice as much can be bought
    assert found.bytes_per_s == span(80 * MB, 100 * MB, 200 * MB)


def test_a_volume_is_held_to_what_the_instance_takes():
    found = disk_of(an_offer(instance="small.1"), data_of()).bytes_per_s
    # min(100, 40); a fifth less
    assert (found.low, found.likely) == pytest.approx((32 * MB, 40 * MB))


def test_more_of_a_volume_can_be_bought_up_to_what_the_instance_takes():
    found = disk_of(an_offer(instance="large.1"), data_of()).bytes_per_s
    assert (found.likely, found.high) == pytest.approx((100 * MB, 500 * MB))


def test_a_volume_of_a_provider_that_says_nothing_is_a_usual_one():
    found = disk_of(an_offer(provider="other"), data_of())
    assert (found.name, found.bytes_per_s) == ("a network volume", span(80e6, 125e6, 400e6))
