from __future__ import annotations

import pytest

from outlay import facts
from outlay.errors import NotKnown
from outlay.offers.terms import Terms, all_terms, known_provider, terms_of

TABLE = """\
provider,parameter,value,unit,source,as_of,note
acme,name,Acme Cloud,text,acme.example,2026-01-01,
acme,kind,marketplace,text,acme.example,2026-01-01,
acme,billing_step,60,s,acme.example,2026-01-02,
acme,billing_minimum,,s,acme.example,2026-01-01,
acme,volume_storage,0.1,USD/GB-month,acme.example,2026-01-01,
acme,object_storage,1.073741824,USD/GiB-month,acme.example,2026-01-01,
acme,registry_storage,none,USD/GB-month,acme.example,2026-01-01,
acme,egress,0.09,USD/GB,acme.example,2026-01-01,
acme,egress_free,100,GB/month,acme.example,2026-01-01,
acme,spot_interruption_rate,2,1/month,acme.example,2026-01-01,
acme,provisioning_time,90,s,acme.example,2026-01-01,
bare,name,,text,bare.example,2026-01-01,
"""

QUALITIES = """\
provider,parameter,value,unit,source,as_of,note
acme,access,container,text,acme.example,2026-01-01,
bare,free_hours,4,h/day,bare.example,2026-01-01,
"""


@pytest.fixture
def table(tmp_path, monkeypatch):
    """The terms in a made-up table."""
    monkeypatch.setattr(facts, "DATA", tmp_path)
    (tmp_path / "providers.csv").write_text(TABLE, encoding="utf-8")
    (tmp_path / "provider_qualities.csv").write_text(QUALITIES, encoding="utf-8")
    return all_terms.__wrapped__()


def test_terms_in_bytes_and_seconds(table):
    acme = table["acme"]
    assert (acme.provider, acme.name, acme.kind) == ("acme", "Acme Cloud", "marketplace")
    assert acme.billing_step_s == 60
    assert acme.billing_minimum_s is None
    # 0.1 / 10^9 a byte
    assert acme.storage_usd_per_byte_month["volume"] == pytest.approx(1e-10)
    # 1.073741824 / 2^30 = 1 / 10^9 a byte
    assert acme.storage_usd_per_byte_month["object"] == pytest.approx(1e-9)
    assert acme.storage_usd_per_byte_month["registry"] is None
    assert acme.egress_usd_per_byte == pytest.approx(0.09e-9)
    assert acme.egress_free_bytes_per_month == 100e9
    assert acme.spot_interruptions_per_month == 2
    assert acme.provisioning_s == 90


def test_terms_say_where_a_figure_comes_from(table):
    assert table["acme"].source_of("billing_step") == "acme.example, 2026-01-02"
    assert table["acme"].source_of("no such figure") == "the workload file"


def test_a_provider_with_an_empty_row_has_unknown_terms(table):
    bare = table["bare"]
    assert (bare.name, bare.kind) == ("bare", "cloud")
    assert bare.billing_step_s is None
    assert bare.egress_usd_per_byte is None
    assert bare.storage_usd_per_byte_month == {"volume": None, "object": None, "registry": None}


def test_terms_of_somebody_in_no_table_are_unknown_not_free():
    terms = terms_of("uncle's cellar")
    assert terms == Terms(provider="uncle's cellar", name="uncle's cellar")
    assert terms.billing_step_s is None
    assert terms.egress_usd_per_byte is None


@pytest.mark.parametrize("name", ["aws", "AWS", "Aws", "Amazon Web Services"])
def test_known_provider_in_any_case_or_by_its_full_name(name):
    assert known_provider(name) == "aws"


def test_every_provider_is_known_by_its_own_name():
    assert {known_provider(name) for name in all_terms()} == set(all_terms())


def test_known_provider_may_be_one_of_the_users():
    assert known_provider("cellar", ("cellar",)) == "cellar"
    assert known_provider("my cloud", ("My Cloud",)) == "My Cloud"


def test_unknown_provider_is_refused_with_the_nearest():
    with pytest.raises(NotKnown, match="No provider is known as 'lamda'") as caught:
        known_provider("lamda")
    assert "lambda" in caught.value.suggestions
    assert caught.value.exit_code == 2


def test_qualities_beside_money(table):
    assert table["acme"].quality("access") == "container"
    assert table["acme"].quality("quota") is None
    # 4 h a day are 28 h a week
    assert table["bare"].weekly_s == 28 * 3600
