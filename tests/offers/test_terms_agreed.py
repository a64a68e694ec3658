from __future__ import annotations

import pytest
from tests.builders import a_workload

from outlay.errors import InputError, NotKnown
from outlay.offers.terms import terms_for, terms_of
from outlay.units import GB
from outlay.workload.workload import Quote, TermsOverride


def test_what_the_user_says_takes_the_place_of_the_table():
    own = TermsOverride(
        provider="AWS", egress_usd_per_gb=0.05, discount_fraction=0.1, credit_usd=300.0
    )
    found, listed = terms_for(a_workload(terms=(own,)))("aws"), terms_of("aws")
    assert found.egress_usd_per_byte == pytest.approx(0.05 / GB)
    assert (found.discount_fraction, found.credit_usd) == (0.1, 300)
    # What is not said stays, with its source; what is said comes from the file.
    assert found.storage_usd_per_byte_month == listed.storage_usd_per_byte_month
    assert found.billing_step_s == listed.billing_step_s
    assert found.source_of("billing_step") == listed.source_of("billing_step")
    assert found.source_of("egress") == "the workload file"


def test_everybody_else_keeps_the_tables_terms():
    own = TermsOverride(provider="aws", credit_usd=300.0)
    assert terms_for(a_workload(terms=(own,)))("gcp") == terms_of("gcp")


def test_a_quotes_provider_may_have_terms():
    quote = Quote(provider="acme", instance="box", gpu="T4", gpus=1, price_usd_per_hour=1.0)
    own = TermsOverride(provider="acme", billing_step_s=60.0)
    assert terms_for(a_workload(quotes=(quote,), terms=(own,)))("acme").billing_step_s == 60
    with pytest.raises(NotKnown, match="acme"):
        terms_for(a_workload(terms=(own,)))


def test_two_tables_of_one_provider_are_refused():
    twice = (TermsOverride(provider="aws"), TermsOverride(provider="AWS"))
    with pytest.raises(InputError, match="Two .* tables are of 'aws'"):
        terms_for(a_workload(terms=twice))
