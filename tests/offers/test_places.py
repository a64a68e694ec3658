from __future__ import annotations

import pytest
from tests.builders import a_workload, an_offer

from outlay.offers.offer import OwnedMachine
from outlay.offers.places import Place, data_distance, place_for, place_of_offer, read_place
from outlay.units import GB
from outlay.workload.workload import Dataset, StoredData

OWN = OwnedMachine(electricity_usd_per_kwh=0.25, host_w=100)


def test_a_place_is_a_provider_or_one_of_its_regions():
    assert read_place("aws") == Place(provider="aws")
    assert read_place("aws:us-east-1") == Place(provider="aws", region="us-east-1")
    assert str(read_place("aws:us-east-1")) == "aws:us-east-1"
    assert str(read_place("home")) == "home"


def test_a_bare_provider_is_the_region_of_the_machine():
    machine = place_of_offer(an_offer("aws", region="eu-west-1"))
    assert str(place_for("aws", machine)) == "aws:eu-west-1"
    assert str(place_for("run", machine)) == "aws:eu-west-1"
    assert str(place_for("aws:us-east-1", machine)) == "aws:us-east-1"
    assert str(place_for("gcp", machine)) == "gcp"


def far(at, *, kept_at="run", provider="aws", region="us-east-1", owned=None, stored=()):
    offer = an_offer(provider, region=region, owned=owned)
    data = Dataset(size_bytes=GB, at=at, kept_at=kept_at)
    return data_distance(a_workload(data=data, stored=stored), offer)


@pytest.mark.parametrize(
    ("at", "distance"),
    [
        ("aws", 0),
        ("aws:us-east-1", 0),
        ("internet", 0),
        ("run", 0),
        ("aws:eu-west-1", 1),
        ("gcp", 2),
        ("gcp:us-east1", 2),
        ("home", 2),
    ],
)
def test_data_is_near_in_the_same_region_and_farther_at_another_provider(at, distance):
    assert far(at) == distance


def test_data_that_is_kept_elsewhere_comes_from_there():
    assert far("home", kept_at="aws:us-east-1") == 0
    assert far("aws:us-east-1", kept_at="gcp") == 2


def test_data_at_home_is_near_to_a_machine_at_home():
    assert far("home", owned=OWN) == 0
    assert far("aws", owned=OWN) == 2


def test_a_machine_that_does_not_say_its_region_may_be_in_any():
    assert far("lambda:us-east-1", provider="lambda", region="any") == 0


def test_the_farthest_of_what_is_pulled_counts():
    images = StoredData(name="images", size_bytes=GB, at="gcp", pulled_bytes=GB)
    assert far("aws", stored=(images,)) == 2
    kept = StoredData(name="archive", size_bytes=GB, at="gcp")
    assert far("aws", stored=(kept,)) == 0


def test_without_data_nothing_has_to_move():
    assert data_distance(a_workload(), an_offer("aws")) == 0
