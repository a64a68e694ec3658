from __future__ import annotations

import pytest

from outlay import errors
from outlay.errors import InputError, MissingCredentials, NotKnown, OutlayError, ProviderError


@pytest.mark.parametrize(
    ("name", "exit_code"),
    [
        ("OutlayError", 1),
        ("InputError", 2),
        ("NotKnown", 2),
        ("FactMissing", 2),
        ("NoOption", 3),
        ("ExtraMissing", 4),
        ("ProviderError", 5),
        ("MissingCredentials", 5),
        ("PriceStoreFailed", 5),
        ("TraceFailed", 2),
        ("ProbeFailed", 1),
        ("LaunchFailed", 1),
    ],
)
def test_exit_codes(name, exit_code):
    error = getattr(errors, name)
    assert issubclass(error, OutlayError)
    assert error.exit_code == exit_code


def test_every_error_is_drawn_in_the_docstring_with_its_exit_code():
    drawn = {
        words[0]: int(words[2])
        for line in (errors.__doc__ or "").splitlines()
        if len(words := line.split()) > 2 and words[1] == "exit"
    }
    defined = {
        name: value.exit_code
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, OutlayError)
    }
    assert drawn == defined


def test_a_message_is_what_why_and_fix():
    error = InputError("It broke.", why="It was old.", fix="Buy another.")
    assert str(error) == "It broke. It was old. Buy another."
    assert (error.what, error.why, error.fix) == ("It broke.", "It was old.", "Buy another.")


def test_a_message_leaves_out_what_is_not_said():
    assert str(InputError("It broke.")) == "It broke."
    assert str(InputError("It broke.", fix="Buy another.")) == "It broke. Buy another."


def test_missing_credentials_are_a_providers_failure():
    assert issubclass(MissingCredentials, ProviderError)


def test_not_known_names_the_nearest():
    error = NotKnown("provider", "awz", ["aws", "gcp"])
    assert str(error) == "No provider is known as 'awz'. Did you mean \"aws\"?"
    assert error.suggestions == ("aws",)


def test_not_known_joins_several_suggestions_with_or():
    error = NotKnown("profile", "resnet5", ["resnet50", "resnet51", "gpt"])
    assert set(error.suggestions) == {"resnet50", "resnet51"}
    assert '" or "' in error.why


def test_not_known_without_anything_near_suggests_nothing():
    error = NotKnown("region", "mars", ["us-east-1"], fix="Look at the list.")
    assert str(error) == "No region is known as 'mars'. Look at the list."
    assert error.suggestions == ()
