"""Questions about renting: shares, moving data, distance, browsers, free hours, terms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from outlay.advise.questions import Answer, Figures, QuestionContext, answer_row, quoted, sources_of
from outlay.facts import assumed_range, assumptions, rows_of
from outlay.offers.catalog import bundled_offers, reserved_offers
from outlay.offers.terms import all_terms
from outlay.uncertainty import Estimate
from outlay.units import DAY_S, GB, HOUR_S, MINUTE_S

_MBIT = 1e6 / 8
_USUAL_BYTES = 100 * GB
_FILES = 10_000
_NEAR_S, _FAR_S = 0.047, 0.072


def share(about: QuestionContext) -> Answer:
    """Which offers are shares of a GPU."""
    offers = bundled_offers(about.today)
    parts = [offer for offer in offers if offer.gpu_share != 1]
    counted = Counter((one.provider, one.gpu, f"{one.gpu_share:g}") for one in parts)
    return Answer(
        topic="share",
        question="Does a cloud give a whole GPU or a share?",
        words=(
            (
                f"A whole one: {len(offers) - len(parts):,} of the {len(offers):,} bundled offers; "
                f"{len(parts)} are shares, under names of their own."
            ),
            *quoted("share"),
        ),
        figures=Figures(
            heads=("provider", "gpu", "share", "offers"),
            rows=tuple((*key, f"{count}") for key, count in sorted(counted.items())),
        ),
        sources=sources_of("share"),
    )


def upload(about: QuestionContext) -> Answer:
    """How long data takes from home, at what is assumed and at what was measured."""
    size = about.size_bytes or _USUAL_BYTES
    home = assumed_range("home_upload_bytes_per_s")
    assert isinstance(home, Estimate)
    rates = [
        ("assumed, slow", home.low, "guess"),
        ("assumed, likely", home.likely, "guess"),
        ("assumed, fast", home.high, "guess"),
        *((one.answer, (one.value or 0.0) * _MBIT, one.as_of) for one in answer_row("upload")),
    ]
    return Answer(
        topic="upload",
        question="How long does uploading the data from home take?",
        words=(
            (
                f"{size / GB:,.0f} GB take {_time(size / home.likely)} at "
                f"{home.likely / _MBIT:.0f} Mbit/s, from {_time(size / home.high)} to "
                f"{_time(size / home.low)}. Fetch public data from the machine itself instead: "
                f"{_time(size / _rented_bytes_per_s())} there."
            ),
            'A plan counts it where data.at = "home"; data.upload_mbit takes your own rate.',
        ),
        figures=Figures(
            heads=("rate", "mbit/s", "time", "as of"),
            rows=tuple(
                (name, f"{rate / _MBIT:,.1f}", _time(size / rate), day) for name, rate, day in rates
            ),
        ),
        sources=(assumptions()["home_upload_bytes_per_s"].note, *sources_of("upload")),
    )


def _rented_bytes_per_s() -> float:
    rate = assumed_range("data_download_bytes_per_s")
    return rate.likely if isinstance(rate, Estimate) else rate


def _time(seconds: float) -> str:
    if seconds >= 2 * DAY_S:
        return f"{seconds / DAY_S:,.1f} days"
    return f"{seconds / HOUR_S:,.1f} h" if seconds >= HOUR_S else f"{seconds / MINUTE_S:,.0f} min"


def download(about: QuestionContext) -> Answer:
    """What leaving a provider costs, and how long the way home takes."""
    size = about.size_bytes or _USUAL_BYTES
    priced = sorted(_egress_usd(size))
    dearest = priced[-1][0] if priced else 0.0
    return Answer(
        topic="download",
        question="What about downloading the results, many images for example?",
        words=(
            (
                f"{size / GB:,.0f} GB cost nothing to ${dearest:,.2f} to fetch home, by provider "
                "(the free allowance of a month taken off). How fast homes download is in no "
                f"table here: at 100 Mbit/s it takes {_time(size / (100 * _MBIT))}."
            ),
            (
                "Pack many small files into one first: each one fetched by itself waits for a "
                "round trip (--ask distance). A plan counts it with data.results."
            ),
        ),
        figures=Figures(
            heads=("provider", "usd", "source"),
            rows=tuple((name, f"${usd:,.2f}", source) for usd, name, source in priced),
        ),
        sources=("providers.csv",),
    )


def _egress_usd(size: float) -> Iterator[tuple[float, str, str]]:
    for terms in all_terms().values():
        if terms.egress_usd_per_byte is not None:
            billed = max(size - (terms.egress_free_bytes_per_month or 0.0), 0.0)
            yield billed * terms.egress_usd_per_byte, terms.name, terms.source_of("egress")


def distance(about: QuestionContext) -> Answer:  # noqa: ARG001
    """What a longer round trip costs."""
    near, far = _FILES * _NEAR_S, _FILES * _FAR_S
    return Answer(
        topic="distance",
        question="Does the region's distance matter (72 ms or 47 ms)?",
        words=(
            *quoted("distance"),
            (
                f"{_FILES:,} small files one after the other: {near / MINUTE_S:.0f} min of waiting "
                f"at {_NEAR_S * 1000:.0f} ms, {far / MINUTE_S:.0f} min at {_FAR_S * 1000:.0f} ms; "
                "as one archive, nothing."
            ),
        ),
        sources=sources_of("distance"),
    )


def tablet(about: QuestionContext) -> Answer:  # noqa: ARG001
    """Which providers give something to work with in a browser."""
    known = {terms.name: terms.quality("browser") for terms in all_terms().values()}
    there = sorted(name for name, value in known.items() if value == "yes")
    unknown = sum(value is None for value in known.values())
    return Answer(
        topic="tablet",
        question="Can it be used from a tablet's browser?",
        words=(
            (
                f"Yes at {', '.join(there)}: a notebook or a terminal in the browser. Of {unknown} "
                "others it is not known. A full machine with ssh works from a tablet with an app, "
                "or with a notebook server on it."
            ),
        ),
        figures=Figures(
            heads=("provider", "browser", "gives"),
            rows=tuple(
                (terms.name, terms.quality("browser") or "", terms.quality("access") or "unknown")
                for terms in all_terms().values()
                if terms.quality("browser") is not None
            ),
        ),
        sources=("provider_qualities.csv",),
    )


_CALCULATOR = (
    ("number of machines", "usage.machines = 4", "machines that train together"),
    ("hours a day, days a week", "usage.hours_per_day = 4", "or usage.sessions_per_month"),
    ("region", 'consider.regions = ["us-east"]', "beginnings of names will do"),
    ("commitment of 1 or 3 years", 'consider.tenancies = ["reserved"]', "with usage.horizon"),
    ("GPU type and count", 'consider.gpus = ["A100-80GB:8"]', "or 24GB..48GB"),
    ("boot and local disks", "[[stored]] size, kind", "paid for while kept"),
    ("storage of the data", "data.size, data.storage", "volume, object, or none"),
    ("transfer out", "data.results", "and where things lie: data.at"),
    ("static address", "not counted", "prices of some: provider_qualities.csv"),
    ("sole tenancy", "not counted", "no price of it is in the tables"),
    ("discounts, credits", "[[provider]] discount, credit", "what you pay, not the list"),
    ("taxes", "tax", "on top where prices are without"),
)


def calculator(about: QuestionContext) -> Answer:  # noqa: ARG001
    """Where a price calculator's inputs go."""
    return Answer(
        topic="calculator",
        question="Where do a price calculator's usual inputs go?",
        words=(
            (
                "Into outlay.toml (`outlay init` writes one); `outlay plan outlay.toml` then "
                "counts what a calculator leaves out: how long the work takes on each machine."
            ),
        ),
        figures=Figures(heads=("input", "where", "note"), rows=_CALCULATOR),
        sources=("`outlay schema workload`",),
    )


def free(about: QuestionContext) -> Answer:  # noqa: ARG001
    """Free hours and credits, as far as they are known."""
    rows = [*_free_hours(), *_credits()]
    return Answer(
        topic="free",
        question="What is free: hours, trials, credits?",
        words=(
            (
                "Hours that cost nothing are in notebooks only; credits are for new customers, and "
                "GPUs often need an upgraded account first. What is not listed is not known."
            ),
        ),
        figures=Figures(
            heads=("provider", "free", "as of", "condition"), rows=tuple(rows), drop=("as of",)
        ),
        sources=("provider_qualities.csv", "providers.csv", "credits.csv"),
    )


def _free_hours() -> Iterator[tuple[str, str, str, str]]:
    for terms in all_terms().values():
        fact = terms.facts.get("free_hours")
        if fact is not None and fact.text:
            unit = "" if fact.unit == "text" else f" {fact.unit}"
            yield terms.name, f"{fact.text}{unit}", fact.as_of, fact.note


def _credits() -> Iterator[tuple[str, str, str, str]]:
    """The credits table, and what only the providers table knows."""
    listed = [row for row in rows_of("credits.csv") if row["amount"]]
    for row in listed:
        days = f", {row['valid_days']} days" if row["valid_days"] else ""
        yield (
            row["provider"],
            f"{row['amount']} {row['unit']}",
            row["as_of"],
            row["condition"] + days,
        )
    known = {row["provider"] for row in listed}
    for provider, terms in all_terms().items():
        fact = terms.facts.get("free_credit")
        if fact is not None and fact.text and provider not in known:
            yield provider, f"{fact.text} {fact.unit}", fact.as_of, fact.note


def reserved(about: QuestionContext) -> Answer:
    """H100 for a term, what terms take off, and where one pays beforehand."""
    offers = [one for one in bundled_offers(about.today) if one.gpu.startswith("H100")]
    terms = [term for offer in offers for term in reserved_offers(offer)]
    rows = {
        (one.provider, one.instance, one.commitment.name): (
            one.price_usd_per_hour,
            one.commitment.price_usd_per_hour,
            one.as_of,
        )
        for one in sorted(terms, key=lambda one: -(one.price_usd_per_hour or 0.0))
        if one.commitment is not None
    }
    prepaid = [one.name for one in all_terms().values() if one.quality("prepaid") == "yes"]
    discounts = [float(row["discount"]) for row in rows_of("commitments.csv")]
    return Answer(
        topic="reserved",
        question="H100 reserved, commitments, and balance that must be prepaid?",
        words=(
            (
                f"Terms of which a price is known take off {min(discounts):.0%} to "
                f"{max(discounts):.0%}, and every hour of the term is paid: with "
                f"{max(discounts):.0%} off a term pays from {1 - max(discounts):.0%} of all hours, "
                f"with {min(discounts):.0%} from {1 - min(discounts):.0%}. A plan tries them where "
                "usage.horizon is given."
            ),
            f"Paid beforehand at: {', '.join(sorted(prepaid))}.",
        ),
        figures=Figures(
            heads=("provider", "instance", "term", "on demand", "reserved", "as of"),
            rows=tuple(
                (*key, f"${usual or 0:,.2f}/h", f"${less:,.2f}/h", day)
                for key, (usual, less, day) in rows.items()
            ),
            drop=("as of",),
        ),
        sources=tuple(
            dict.fromkeys(one.commitment.source for one in terms if one.commitment is not None)
        ),
    )
