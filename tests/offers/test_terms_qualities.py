from __future__ import annotations

import pytest
from tests.builders import a_fact, some_terms

from outlay.offers.terms import missing_quality, remarks


def some_qualities(**known):
    return some_terms(facts={name: a_fact(value) for name, value in known.items()})


@pytest.mark.parametrize(
    ("access", "wanted", "refused"),
    [
        # What one gets, least first: notebook, container, full machine.
        ("notebook", None, True),
        ("notebook", "notebook", False),
        ("notebook", "container", True),
        ("notebook", "full machine", True),
        ("container", None, False),
        ("container", "container", False),
        ("container", "full machine", True),
        ("full machine", None, False),
        ("full machine", "notebook", False),
        ("full machine", "full machine", False),
    ],
)
def test_less_access_than_wanted_is_a_reason_against(access, wanted, refused):
    asked = {} if wanted is None else {"access": wanted}
    said = missing_quality(some_qualities(access=access), asked)
    assert (said is not None) == refused
    if refused:
        assert said.startswith(f"Acme gives a {access} only")


def test_notebooks_have_to_be_asked_for_and_it_is_said_how():
    said = missing_quality(some_qualities(access="notebook"), {})
    assert said == 'Acme gives a notebook only (prefer.access = "notebook" takes them in)'
    asked = missing_quality(some_qualities(access="notebook"), {"access": "container"})
    assert asked == "Acme gives a notebook only"


def test_what_is_not_known_of_a_provider_is_no_reason_against_it():
    assert missing_quality(some_terms(), {"access": "full machine", "quota": "none"}) is None


def test_what_is_known_to_differ_is_a_reason_against():
    terms = some_qualities(stop_keeps_disk="no", prepaid="yes")
    assert (
        missing_quality(terms, {"stop_keeps_disk": "yes"}) == "Acme: stop keeps disk is no, not yes"
    )
    assert missing_quality(terms, {"prepaid": "yes"}) is None
    assert missing_quality(terms, {"prepaid": "yes", "stop_keeps_disk": "yes"}) is not None


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("access", "notebook", "a notebook in the browser"),
        ("quota", "apply", "must be applied for"),
        ("stops_itself", "no", "until it is stopped by hand"),
        ("stop_keeps_disk", "no", "cannot be paused"),
        ("prepaid", "yes", "paid beforehand"),
        ("driver_image", "no", "driver is installed by hand"),
    ],
)
def test_remarks_tell_what_is_in_the_way(name, value, words):
    (said,) = remarks(some_qualities(**{name: value}))
    assert words in said


def test_nothing_in_the_way_is_no_remark():
    fine = some_qualities(
        access="full machine",
        quota="none",
        stops_itself="yes",
        stop_keeps_disk="yes",
        prepaid="no",
        driver_image="yes",
    )
    assert remarks(fine) == []
    assert remarks(some_terms()) == []
