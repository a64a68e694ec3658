"""Where the data lies, in a whole plan: what it costs, what it delays, and what is said of it."""

from __future__ import annotations

import pytest
from tests.builders import a_calibration, a_profile, an_offer

from outlay.offers import candidates as chosen_from
from outlay.plan import placement
from outlay.plan.pipeline import best_offers, plan_workload
from outlay.report.documents import option_document
from outlay.report.plan import answer
from outlay.units import HOUR_S
from outlay.workload.file import parse_workload

SMALL = """
    [step]
    profile = "made up"
    batch_size = 10
    [length]
    samples = 36_000
    [usage]
    setup = "1s"
    """
OFFERS = (
    an_offer("aws", "g4", gpu="T4", region="us-east-1", usd=0.6),
    an_offer("aws", "g4", gpu="T4", region="us-east-2", usd=0.58),
    an_offer("aws", "g4", gpu="T4", region="eu-west-1", usd=0.5),
    an_offer("runpod", "pod", gpu="T4", region="any", usd=0.55),
)


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    """The same machine in several places, and a host that needs a second for each step."""
    monkeypatch.setattr(chosen_from, "bundled_offers", lambda *_: OFFERS)
    slow = a_calibration(host_view_s=1e-3, host_forward_s=1e-3)
    monkeypatch.setattr(placement, "calibration", lambda: slow)


PROFILE = a_profile(flops_per_sample=1e9, bytes_per_sample=1e6, trainable_parameters=1000)


def workload_of(text):
    return parse_workload(SMALL + text)


def planned(text):
    return plan_workload(workload_of(text), PROFILE)


def at(plan, region):
    return next(option for option in plan.options if option.offer.region == region)


def lines(option):
    return {line.name: float(line.usd) for line in option.cost.breakdown.lines}


def data(at="home", *, size="900GB", storage="volume", more=""):
    return f"[data]\nsize = '{size}'\nat = '{at}'\nstorage = '{storage}'\n{more}\n"


def test_data_draws_the_run_to_its_region():
    plan = planned(data("aws:us-east-1", storage="object"))
    assert plan.chosen.offer.region == "us-east-1"
    # 900 GB x $0.02 to Ireland and x $0.01 to Ohio, more than the machine saves in an hour
    assert lines(at(plan, "eu-west-1"))["transfer"] == pytest.approx(18)
    assert lines(at(plan, "us-east-2"))["transfer"] == pytest.approx(9)
    assert "transfer" not in lines(at(plan, "us-east-1"))
    assert planned(data("aws", storage="object")).chosen.offer.region == "eu-west-1"


def test_many_offers_are_told_apart_by_their_region():
    workload = workload_of(data("aws:us-east-1", storage="object"))
    plan = best_offers(workload, OFFERS, PROFILE)
    assert plan.chosen.offer.region == "us-east-1"
    assert lines(at(plan, "eu-west-1"))["transfer"] == pytest.approx(18)


def test_a_copy_is_no_time_of_the_machine_and_time_of_the_calendar():
    plan = planned(data("aws:us-east-1", storage="object"))
    here, there = at(plan, "us-east-1"), at(plan, "eu-west-1")
    assert there.busy_s == here.busy_s
    # 900 GB / 100 MB/s
    assert there.run.calendar_s - here.run.calendar_s == pytest.approx(9000)
    assert "data download" not in lines(there)


def test_a_bill_with_a_copying_machine_is_the_sum_of_its_lines():
    plan = planned(data("gcp:us-east1", more="download_mbit = 800"))
    option = at(plan, "us-east-1")
    # 900 GB / 100 MB/s = 2.5 h x $0.0416
    assert lines(option)["copying machine"] == pytest.approx(0.104)
    assert option.usd == pytest.approx(sum(lines(option).values()))
    document = option_document(option)
    assert (document.before_renting_s, document.data_copied_by) == (9000, "copying machine")


@pytest.mark.parametrize(
    ("text", "region", "note"),
    [
        (
            data("home", storage="object", more="upload_mbit = 20"),
            "us-east-1",
            (
                "The 900 GB are uploaded to aws:us-east-1 before the machine is rented, by no "
                "machine (object storage takes them directly): 100 h."
            ),
        ),
        (
            data("home", more="upload_mbit = 20"),
            "us-east-1",
            (
                "The 900 GB are uploaded to aws:us-east-1 before the machine is rented, by a "
                "copying machine without GPU (a volume needs one; a line of the bill): 100 h."
            ),
        ),
        (
            data("aws:us-east-2", storage="object"),
            "us-east-1",
            (
                "The 900 GB are copied from aws:us-east-2 to aws:us-east-1 before the machine is "
                "rented, by no machine (its object stores copy among themselves): 2.5 h."
            ),
        ),
        (
            data("home", more="upload_mbit = 20"),
            "any",
            (
                "The 900 GB are uploaded to runpod before the machine is rented, by no machine "
                "(its volumes take uploads directly): 100 h."
            ),
        ),
        (
            data("home", storage="none", more="upload_mbit = 20"),
            "us-east-1",
            (
                "The 900 GB are fetched from home by the machine itself in each session, which is "
                "billed: 100 h."
            ),
        ),
    ],
)
def test_the_plan_says_what_brings_the_data(text, region, note, monkeypatch):
    only = tuple(offer for offer in OFFERS if offer.region == region)
    monkeypatch.setattr(chosen_from, "bundled_offers", lambda *_: only)
    assert note in planned(text).assumptions


def test_data_that_lies_beside_the_machine_is_said_to():
    note = "The 900 GB lie at aws:us-east-1, where the machine is: nothing is moved."
    assert note in planned(data("aws:us-east-1", storage="object")).assumptions


def headline(text):
    workload = workload_of(text)
    return [line.plain for line in answer(plan_workload(workload, PROFILE), workload)]


def test_a_hundred_hours_of_upload_are_in_the_headline():
    text = data("home", storage="object", more="upload_mbit = 20")
    assert (
        "Before that: 100 h of upload from home (900 GB at 20 Mbit/s: data.upload_mbit); "
        "no machine is rented for it."
    ) in headline(text)


def test_an_upload_speed_that_was_assumed_is_called_so():
    (before,) = (line for line in headline(data("home")) if line.startswith("Before that"))
    assert "(900 GB at 20 Mbit/s, assumed: data.upload_mbit)" in before


def test_a_long_copy_is_in_the_headline_too():
    text = (
        data("gcp:us-east1", size="9TB", storage="object")
        + "[consider]\nproviders = ['aws']\nregions = ['us-east-1']"
    )
    # 9 TB / 100 MB/s = 25 h
    assert (
        "Before that: 25 h of copying from gcp:us-east1 to aws:us-east-1 (9,000 GB at 800 Mbit/s, "
        "assumed: data.download_mbit); a small machine is rented for it."
    ) in headline(text)


def test_an_upload_that_decides_nothing_is_not_in_the_headline():
    # 10 MB / 2.5 MB/s are 4 s of more than an hour
    assert not any("Before that" in line for line in headline(data("home", size="10MB")))


def test_who_misses_the_deadline_for_its_upload_is_told_so():
    text = data("home", storage="object", more="upload_mbit = 20") + "[limits]\ndeadline = '{}'\n"
    late = planned(text.format("4d"))
    assert late.chosen is None
    # 100 h of upload and an hour of training in 96 h
    for option in late.options:
        why = ": 100.0 h of upload from home alone, without which it would be in time"
        assert option.why_not.startswith("misses the deadline by")
        assert option.why_not.endswith(why)
    tight = planned(text.format("100.5h"))
    assert ": 100.0 h of upload from home, without which" in tight.options[0].why_not
    hopeless = planned(text.format("30m"))
    assert "upload" not in hopeless.options[0].why_not
    assert planned(text.format("5d")).chosen is not None


def test_images_in_the_machines_own_region_are_not_compared_with_themselves():
    text = (
        "[[stored]]\nname = 'images'\nsize = '10GB'\nkind = 'registry'\npulled = '10GB'\n"
        "at = ['run', 'aws:us-east-1']\n[consider]\nproviders = ['aws']\n"
    )
    plan = planned(text)
    keeping = [(option.offer.region, option.keeping) for option in plan.options]
    assert sorted(keeping) == [
        ("eu-west-1", "images at aws"),
        ("eu-west-1", "images at aws:us-east-1"),
        ("us-east-1", "images at aws"),
        ("us-east-2", "images at aws"),
        ("us-east-2", "images at aws:us-east-1"),
    ]


def test_data_on_ones_own_machine_is_not_brought_anywhere():
    desk = "[[machine]]\nname = 'desk'\ngpu = 'T4'\nhost_watts = 50\nelectricity_per_kwh = 0.25\n"
    option = at(planned(data("home") + desk), "here")
    assert (option.run.before_s, option.run.download_s) == (0, 0)
    assert option.run.calendar_s < 2 * HOUR_S
