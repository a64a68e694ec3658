"""AWS's Spot Instance Advisor. `spot_advisor.json` has the shape and the buckets of the file as
copied in alexei-led/spotinfo (commit 4105b47), cut down to a few types."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import an_offer

from outlay.offers.price_book import PriceBook
from outlay.offers.spot import bucket_risk, spot_risk
from outlay.prices import spot_advisor
from outlay.prices.sources import Reply, Unreadable, Validators
from outlay.prices.spot_advisor import (
    InterruptionBucket,
    Interruptions,
    bundled_date,
    interruption_risks,
    kept_interruptions,
    read,
    refresh_interruptions,
)

ADVISED = (Path(__file__).parent / "data" / "spot_advisor.json").read_bytes()
AT = "2026-11-16T20:15:00Z"


def a_bucket(
    instance: str = "g5.xlarge",
    region: str = "us-east-1",
    low: float = 0.05,
    high: float | None = 0.10,
) -> InterruptionBucket:
    return InterruptionBucket(
        instance=instance, region=region, low_fraction_per_month=low, high_fraction_per_month=high
    )


def kept(*buckets: InterruptionBucket, as_of: str = "2026-11-16") -> Interruptions:
    return Interruptions(as_of=as_of, validators=Validators(), buckets=buckets)


# --- reading ---


def test_the_buckets_of_gpu_machines_on_linux() -> None:
    assert read(ADVISED) == (
        a_bucket("g5.xlarge", "us-east-1", 0.05, 0.10),
        a_bucket("p3.8xlarge", "us-east-1", 0.20, None),  # open
        a_bucket("g7e.2xlarge", "us-east-1", 0.15, 0.20),  # newer than the bundled buckets
        a_bucket("g5.xlarge", "eu-west-1", 0.0, 0.05),
    )


def advised(**parts: Any) -> bytes:
    return json.dumps(json.loads(ADVISED) | parts).encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<html>", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no regions in it"),
        (advised(spot_advisor=[]), "no regions in it"),
        (advised(spot_advisor={}), "no machines"),
        (advised(ranges=[]), "no machines"),
        (advised(ranges=[{"index": 0, "label": "rarely"}]), "a bucket 'rarely', not known"),
        (
            advised(
                spot_advisor={"us-east-1": {"Linux": {f"g5.{n}x": {"r": n % 6} for n in range(12)}}}
            ),
            "2 of 12 machines have no bucket",  # 5 is none: 2 of 12 is more than a tenth
        ),
    ],
)
def test_what_is_no_such_file_is_refused_whole(data: bytes, reason: str) -> None:
    with pytest.raises(Unreadable) as refused:
        read(data)
    assert refused.value.reason == f"AWS's Spot Instance Advisor: {reason}"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 9)
    | st.floats()
    | st.sampled_from(("5-10%", ">9%")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("r", "s", "Linux", "g5.xlarge", "p9.xlarge", "label", "index")), inner
        )
    ),
    max_leaves=6,
)


@given(st.binary(max_size=100) | st.fixed_dictionaries({"spot_advisor": JSON, "ranges": JSON}))
@settings(max_examples=150, deadline=None)
def test_anything_is_read_or_refused(data: Any) -> None:
    try:
        rows = read(data if isinstance(data, bytes) else json.dumps(data).encode())
    except Unreadable as error:
        refused = error.reason
        rows = ()
    else:
        refused = ""
    assert bool(rows) != refused.startswith("AWS's Spot Instance Advisor: ")
    for row in rows:
        assert 0 <= row.low_fraction_per_month < (row.high_fraction_per_month or 0.99) < 1


# --- asking ---


class _Answers:
    def __init__(self) -> None:
        self.asked: list[tuple[str, object]] = []

    def get(self, address: str, known: Validators | None = None, **_: object) -> Reply | None:
        self.asked.append((address, known))
        return None if known else Reply(data=ADVISED)

    def post(self, *_: object, **__: object) -> Reply:
        raise AssertionError("it is a file")


# --- keeping ---


class Answering:
    """A downloader with one answer."""

    def __init__(self, reply: Reply | None) -> None:
        self.reply = reply
        self.asked: list[tuple[str, Validators | None]] = []

    def get(self, address: str, known: Validators | None = None, **_: Any) -> Reply | None:
        self.asked.append((address, known))
        return self.reply


def test_a_refresh_keeps_what_is_good_and_asks_whether_it_changed() -> None:
    validators = Validators(etag='"x"', address=spot_advisor.ADDRESS)
    answering = Answering(Reply(data=ADVISED, validators=validators, modified="2026-11-15"))
    attempt = refresh_interruptions(answering, AT)
    assert (attempt.state, attempt.offers, attempt.as_of) == ("fresh", 4, "2026-11-15")
    found = kept_interruptions()
    assert found == Interruptions(as_of="2026-11-15", validators=validators, buckets=read(ADVISED))
    answering.reply = None
    assert refresh_interruptions(answering, AT).state == "unchanged"
    assert answering.asked[1] == (spot_advisor.ADDRESS, validators)


def test_the_day_of_the_file_or_of_asking() -> None:
    attempt = refresh_interruptions(Answering(Reply(data=ADVISED, modified="2099-11-01")), AT)
    assert attempt.as_of == "2026-11-16"
    assert refresh_interruptions(Answering(Reply(data=ADVISED)), AT).as_of == "2026-11-16"


def test_what_is_no_such_file_leaves_the_last_good_one() -> None:
    refresh_interruptions(Answering(Reply(data=ADVISED)), AT)
    attempt = refresh_interruptions(Answering(Reply(data=b"<html>")), AT)
    assert (attempt.state, attempt.offers) == ("refused", 4)
    assert kept_interruptions() is not None


def test_a_damaged_file_is_none() -> None:
    refresh_interruptions(Answering(Reply(data=ADVISED)), AT)
    path = spot_advisor._path()
    path.write_bytes(path.read_bytes()[:-40])
    assert kept_interruptions() is None


# --- into plans ---


def test_newer_buckets_go_before_the_bundled_ones() -> None:
    risks = interruption_risks(kept(a_bucket()))
    risk = risks["aws", "g5.xlarge", "us-east-1"]
    # 5 to 10 % in a month, 7.5 % in the middle: -ln(1 - 0.075) = 0.07796 a month
    assert risk.interruptions_per_month.likely == pytest.approx(-math.log(0.925))
    assert risk.interruptions_per_month.low == pytest.approx(-math.log(0.95))
    assert risk.interruptions_per_month.high == pytest.approx(-math.log(0.90))
    assert risk.source == "AWS Spot Instance Advisor, 2026-11-16"
    assert not risk.is_assumption


def test_a_book_with_them_is_what_a_plan_goes_by() -> None:
    offer = an_offer(provider="aws", instance="g5.xlarge", region="us-east-1", spot_usd=0.4)
    risks = interruption_risks(kept(a_bucket(low=0.0, high=0.05)))
    book = PriceBook(
        name="b", kind="past", as_of="2026-11-16", listed=(offer,), risks=risks, day="2026-11-16"
    )
    (seen,) = book.offers_on("2026-11-16")
    assert spot_risk(seen).source == "AWS Spot Instance Advisor, 2026-11-16"
    assert spot_risk(offer).source != spot_risk(seen).source


def test_what_is_no_newer_than_the_bundled_ones_adds_nothing() -> None:
    assert bundled_date() == "2025-06-28"
    assert interruption_risks(None) == {}
    assert interruption_risks(kept()) == {}
    assert interruption_risks(kept(a_bucket(), as_of="2025-06-28")) == {}


def test_an_open_bucket_ends_where_it_is_assumed_to_or_later() -> None:
    # assumed to end at 40 %; one that begins above that, half way to all
    assert bucket_risk(0.2, None, "").interruptions_per_month.high == pytest.approx(-math.log(0.6))
    assert bucket_risk(0.5, None, "").interruptions_per_month.high == pytest.approx(-math.log(0.25))
