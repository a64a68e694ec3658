from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import a_workload, an_offer
from tests.rows import for_every

from outlay.errors import NotKnown
from outlay.facts import rows_of
from outlay.offers.catalog import bundled_offers
from outlay.offers.offer import OwnedMachine
from outlay.offers.places import (
    Place,
    data_distance,
    data_route,
    place_for,
    place_of_offer,
    read_place,
    transfer_price,
    with_known_places,
)
from outlay.offers.terms import all_terms, terms_for, terms_of
from outlay.units import GB, GIB
from outlay.workload.workload import Dataset, Quote, StoredData, TermsOverride

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


# --- which places there are ---


def known(at, **more):
    workload = a_workload(data=Dataset(size_bytes=GB, at=at), **more)
    return with_known_places(workload).data.at


@pytest.mark.parametrize(
    ("at", "spelled"),
    [
        ("home", "home"),
        ("AWS", "aws"),
        ("Amazon Web Services", "aws"),
        ("aws:us-east-1", "aws:us-east-1"),
        ("AWS: US-East-1", "aws:us-east-1"),
        ("gcp:europe-west4", "gcp:europe-west4"),
        ("aws:sa-east-1", "aws:sa-east-1"),  # no GPU offers there, but data may lie there
        ("azure:westeurope", "azure:westeurope"),
        ("lambda:us-east-3", "lambda:us-east-3"),  # its offers do not tell regions apart
    ],
)
def test_places_are_spelled_as_in_the_tables(at, spelled):
    assert known(at) == spelled


def test_every_place_of_a_workload_is_checked():
    data = Dataset(size_bytes=GB, at="home", kept_at="AWS:us-east-1")
    stored = StoredData(name="x", size_bytes=GB, at="run", also_at=("GCP:us-east1",))
    workload = with_known_places(a_workload(data=data, stored=(stored,)))
    assert workload.data.kept_at == "aws:us-east-1"
    assert workload.stored[0].also_at == ("gcp:us-east1",)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("awz", "No provider is known as 'awz'. Did you mean \"aws\""),
        ("awz:us-east-1", "No provider is known as 'awz'."),
        ("aws:us-east-11", "No region of aws is known as 'us-east-11'. Did you mean \"us-east-1\""),
        ("aws:us-east1", "No region of aws is known as 'us-east1'."),
        ("gcp:us-east-1", "No region of gcp is known as 'us-east-1'. Did you mean \"us-east1\""),
        ("aws:", "No region of aws is known as ''."),
        ("ibm:nowhere", "No region of ibm is known as 'nowhere'."),
    ],
)
def test_a_place_nobody_knows_is_an_error_with_the_nearest_names(at, words):
    with pytest.raises(NotKnown) as error:
        known(at)
    assert str(error.value).startswith(words)


def test_a_quote_may_have_a_provider_and_a_region_of_its_own():
    quote = Quote(provider="a friend", instance="box", gpu="T4", gpus=1, region="cellar")
    assert known("a friend:cellar", quotes=(quote,)) == "a friend:cellar"
    with pytest.raises(NotKnown):
        known("a friend:attic", quotes=(quote,))


@for_every("row", rows_of("regions.csv"))
def test_a_region_is_of_a_known_provider_and_on_a_continent(row):
    assert row["provider"] in all_terms()
    assert row["continent"] in {
        "Africa", "Asia", "Europe", "Middle East", "North America", "Oceania", "South America",
    }  # fmt: skip
    assert row["source"].startswith(("http", "skypilot-catalog@"))


def test_the_regions_of_offers_are_known_where_prices_depend_on_them():
    listed = {(row["provider"], row["region"]) for row in rows_of("regions.csv")}
    priced = {row["provider"] for row in rows_of("region_transfers.csv")}
    for offer in bundled_offers():
        if offer.provider in priced:
            assert (offer.provider, offer.region) in listed


@for_every("row", rows_of("region_transfers.csv"))
def test_a_rule_is_between_regions_or_continents_that_are_known(row):
    regions = [one for one in rows_of("regions.csv") if one["provider"] == row["provider"]]
    ends = {one["region"] for one in regions} | {one["continent"] for one in regions}
    assert row["origin"] in ends | {"any"}
    assert row["destination"] in ends | {"any", "internet"}
    assert row["unit"] in ("USD/GB", "USD/GiB")
    assert 0 <= float(row["value"]) < 0.2


# --- what moving something costs ---


def price(origin, destination, terms=None):
    start = read_place(origin)
    return transfer_price(start, read_place(destination), terms or terms_of(start.provider))


def usd_per_gb(*args, **more):
    found = price(*args, **more)
    assert found is not None
    assert found.usd_per_byte is not None
    return found.usd_per_byte * GB


@pytest.mark.parametrize(
    ("origin", "destination"),
    [
        ("aws:us-east-1", "aws:us-east-1"),
        ("aws:us-east-1", "aws:us-east-1-atl-2"),  # a Local Zone is its region: zones are not told
        ("aws", "aws:us-east-1"),
        ("home", "aws:us-east-1"),
        ("internet", "gcp"),
    ],
)
def test_within_a_region_and_into_a_cloud_nobody_charges(origin, destination):
    assert price(origin, destination) is None


@pytest.mark.parametrize(
    ("origin", "destination", "usd"),
    [
        # AWS: two cents from most regions, one between the US East regions, more from some
        ("aws:us-east-1", "aws:eu-west-1", 0.02),
        ("aws:us-east-1", "aws:us-west-2", 0.02),
        ("aws:us-east-1", "aws:us-east-2", 0.01),
        ("aws:us-east-2", "aws:us-east-1", 0.01),
        ("aws:ap-south-1", "aws:us-east-1", 0.086),
        ("aws:sa-east-1", "aws:us-east-1", 0.138),
        # Google counts GiB: two cents within North America and within Europe, eight beyond
        ("gcp:us-central1", "gcp:us-east1", 0.02 * GB / GIB),
        ("gcp:us-central1", "gcp:northamerica-northeast1", 0.02 * GB / GIB),
        ("gcp:europe-west1", "gcp:europe-west4", 0.02 * GB / GIB),
        ("gcp:us-central1", "gcp:europe-west4", 0.08 * GB / GIB),
        ("gcp:asia-northeast1", "gcp:asia-northeast3", 0.08 * GB / GIB),
        # Azure: two cents within a continent, five to another, eight from Asia
        ("azure:eastus", "azure:westus", 0.02),
        ("azure:eastus", "azure:westeurope", 0.05),
        ("azure:japaneast", "azure:koreacentral", 0.08),
        # those that charge for nothing that leaves them
        ("hyperstack:NORWAY-1", "hyperstack:CANADA-1", 0.0),
        ("coreweave:a", "coreweave:b", 0.0),
    ],
)
def test_another_region_costs_what_the_providers_rule_says(origin, destination, usd):
    assert usd_per_gb(origin, destination) == pytest.approx(usd)


def test_another_region_without_a_rule_is_unknown_and_never_free():
    found = price("gcp:us-central1", "gcp:africa-south1")
    assert found is not None
    assert found.usd_per_byte is None
    assert found.usual_usd_per_byte is not None
    assert 0.02 / GB <= found.usual_usd_per_byte <= 0.1 / GB


def test_another_region_has_no_share_in_the_free_allowance():
    between, out = price("aws:us-east-1", "aws:eu-west-1"), price("aws:us-east-1", "gcp")
    assert between is not None
    assert out is not None
    assert (between.to_internet, out.to_internet) == (False, True)


@pytest.mark.parametrize(
    ("origin", "usd"),
    [("aws", 0.09), ("aws:us-east-1", 0.09), ("aws:ap-south-1", 0.1093), ("azure:japaneast", 0.12)],
)
def test_leaving_a_provider_costs_what_its_region_asks(origin, usd):
    assert usd_per_gb(origin, "lambda") == pytest.approx(usd, rel=1e-3)
    assert usd_per_gb(origin, "home") == pytest.approx(usd, rel=1e-3)


def test_the_users_own_prices_come_before_the_rules():
    own = TermsOverride(provider="aws", between_regions_usd_per_gb=0.005, egress_usd_per_gb=0.04)
    terms = terms_for(a_workload(terms=(own,)))("aws")
    assert usd_per_gb("aws:us-east-1", "aws:eu-west-1", terms) == pytest.approx(0.005)
    assert usd_per_gb("aws:ap-south-1", "home", terms) == pytest.approx(0.04)


# --- how data gets to the machine ---

SIZED = Dataset(size_bytes=GB)


def route(*, provider="aws", region="us-east-1", owned=None, **data):
    offer = an_offer(provider, region=region, owned=owned)
    workload = a_workload(data=replace(SIZED, **data))
    return data_route(workload, offer, terms_of)


@pytest.mark.parametrize(
    ("data", "copied_by"),
    [
        # object storage takes uploads, and copies from region to region
        ({"at": "home", "storage": "object"}, "no machine"),
        ({"at": "aws:eu-west-1", "storage": "object"}, "no machine"),
        # a volume needs a machine to write to it, and so does another cloud
        ({"at": "home", "storage": "volume"}, "copying machine"),
        ({"at": "aws:eu-west-1", "storage": "volume"}, "copying machine"),
        ({"at": "gcp", "storage": "object"}, "copying machine"),
        ({"at": "internet", "storage": "volume"}, "copying machine"),
        # RunPod and Lambda take uploads to their volumes
        ({"at": "home", "storage": "volume", "provider": "runpod", "region": "any"}, "no machine"),
        ({"at": "home", "storage": "volume", "provider": "lambda", "region": "any"}, "no machine"),
        ({"at": "aws", "provider": "runpod", "region": "any"}, "copying machine"),
        # it is there already
        ({"at": "aws", "storage": "object"}, ""),
        ({"at": "aws:us-east-1", "storage": "object"}, ""),
        ({"at": "aws:us-east-1", "kept_at": "aws:us-east-1"}, ""),
        ({"at": "run"}, ""),
        # from the object store beside it onto a volume
        ({"at": "aws:us-east-1", "storage": "volume"}, "copying machine"),
        # the user says how long preparing it takes, fetching included
        ({"at": "internet", "preparation_s": 60.0}, ""),
    ],
)
def test_lasting_storage_is_filled_before_a_machine_is_rented(data, copied_by):
    found = route(**data)
    assert found.copied_by == copied_by
    assert found.fetched_from is None


@pytest.mark.parametrize("storage", ["disk", "none"])
@pytest.mark.parametrize("at", ["home", "aws:us-east-1", "gcp"])
def test_what_lies_on_the_machines_own_disk_it_fetches_itself(storage, at):
    found = route(at=at, storage=storage)
    assert found.copied_by == ""
    assert str(found.fetched_from) == at


def test_a_notebook_fetches_its_data_itself():
    found = route(at="home", storage="volume", provider="colab", region="any")
    assert (found.copied_by, str(found.fetched_from)) == ("", "home")


def test_data_kept_in_another_region_is_pulled_from_there():
    found = route(at="home", kept_at="aws:eu-west-1", storage="object")
    assert (found.copied_by, str(found.fetched_from)) == ("no machine", "aws:eu-west-1")
    assert found.fetched_each_session
    there = route(at="home", kept_at="aws:us-east-1", storage="object")
    assert there.fetched_from is None


def test_a_machine_at_home_needs_nothing_that_lies_at_home():
    found = route(at="home", storage="none", owned=OWN)
    assert (found.copied_by, found.fetched_from) == ("", None)
    assert str(route(at="aws", owned=OWN).fetched_from) == "aws"
