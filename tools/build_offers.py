"""Build the table of offers under `src/outlay/data/` from files of SkyPilot's catalogue.

    python tools/build_offers.py --raw DIR [--out DIR] [--advisor FILE]

The raw folder is named for its day (`2026-08-22`) and holds `<cloud>.csv.gz` for each cloud, as
`catalogs/v8/<cloud>/vms.csv` was then. When each file had last changed is in
`catalogue_files.csv`; that and everything else that is known beside the files is in tables of
`src/outlay/data/` that are kept by hand. The offers are made as a refresh makes them
(`outlay.prices`). Written:

    offers_<date>.csv
    spot_interruptions_<date>.csv   with `--advisor aws_spot_interruptions_<month>.csv`

The same input gives the same bytes. What prices did before: `fit_prices.py`.

A row is never dropped for being doubtful. What is wrong with it is said in `doubts`, in the words
of `offer_doubts.csv`, and whoever ranks offers decides.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

from offer_vocabulary import AWS_REGIONS
from outlay.facts import DATA
from outlay.offers.catalog import STALE_DAYS, doubt_kinds
from outlay.offers.offer import Offer
from outlay.prices.checks import doubted_by_others
from outlay.prices.price_list import NO_SAVING_FRACTION, price_list
from outlay.prices.skypilot import SkyPilotCatalogue
from outlay.units import GB, GIB, days_between

__all__ = ["NO_SAVING_FRACTION", "STALE_DAYS"]  # other tools take them from here

KEPT = DATA
"""The tables kept by hand that price tables are built with."""
FILES = DATA / "catalogue_files.csv"
Row = dict[str, str]


class RawError(Exception):
    """A raw file holds something this tool does not know how to read."""


# --- files ---


def read_csv(path: Path) -> list[Row]:
    """The rows of a CSV file, gzipped or not."""
    return list(csv.DictReader(io.StringIO(_content(path).decode(), newline="")))


def _content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def only_file(folder: Path, pattern: str) -> Path:
    """The one file of a folder that matches."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise RawError(f"{folder} has {len(found)} files {pattern!r}; exactly one is needed.")
    return found[0]


def write_csv(path: Path, columns: Iterable[str], rows: list[Row]) -> None:
    """Write a table, checked for equal columns, with plain newlines."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{path.name}: {len(rows)} rows, {path.stat().st_size / 1000:.0f} KB")


def shorten(text: str) -> float | None:
    """A price to five significant digits, None where there is none. Zero is not a price."""
    value = float(text) if text else 0.0
    return float(f"{value:.5g}") if value > 0 else None


# --- regions in files that name zones alone ---


def aws_region(zone_id: str) -> str:
    """Region of an AWS zone id, or the zone group of a local or wavelength zone.

    `apne1-az1` is in `ap-northeast-1`, `usw2-lax1-az1` in the local zone group `us-west-2-lax-1`,
    `use1-wl1-bos-wlz1` in the wavelength zone group `us-east-1-wl1`.
    """
    prefix, _, rest = zone_id.partition("-")
    if prefix not in AWS_REGIONS:
        raise RawError(f"AWS zone id {zone_id!r} has no region in AWS_REGIONS.")
    region = AWS_REGIONS[prefix]
    if re.fullmatch(r"az\d", rest):
        return region
    if local := re.fullmatch(r"([a-z]{3})(\d)-az\d", rest):
        return f"{region}-{local[1]}-{local[2]}"
    if wavelength := re.fullmatch(r"(wl\d)-[a-z]{3}-wlz\d", rest):
        return f"{region}-{wavelength[1]}"
    raise RawError(f"AWS zone id {zone_id!r} is not of a known form.")


def gcp_region(zone: str) -> str:
    """Region of a GCP zone: `us-central1` for `us-central1-a`."""
    match = re.fullmatch(r"([a-z]+-[a-z]+\d+)-[a-z]", zone)
    if match is None:
        raise RawError(f"GCP zone {zone!r} is not of a known form.")
    return match[1]


# --- offers ---


def build_offers(raw: Path, snapshot: str, files: Iterable[Row]) -> list[Offer]:
    """The offers in a folder of raw files, sorted by provider, instance and region."""
    catalogue = SkyPilotCatalogue(rate_day=snapshot)
    offers: list[Offer] = []
    for row in (row for row in files if row["snapshot"] == snapshot):
        provider = row["provider"]
        read = catalogue.read(provider, _content(only_file(raw, f"{provider}.csv*")))
        made = price_list(read.listings, source=row["source"], as_of=row["changed"], today=snapshot)
        if read.failed or made.unknown:
            raise RawError(f"{provider}: {[*read.failed, *made.notes]}")
        offers += made.offers
        for note in (*read.notes, *made.notes):
            print(f"{provider}: {note}")
    if not offers:
        raise RawError(f"{FILES.name} says nothing of {snapshot}.")
    judged = doubted_by_others([_aged(offer, snapshot) for offer in offers])
    return sorted(judged, key=lambda offer: offer.identity)


def _aged(offer: Offer, snapshot: str) -> Offer:
    """The offer, doubted where its price was old at the snapshot."""
    if days_between(offer.as_of, snapshot) <= STALE_DAYS:
        return offer
    return replace(offer, doubts=(doubt_kinds()["stale"], *offer.doubts))


def offer_row(offer: Offer) -> Row:
    """The offer as a row of the table."""
    return {
        "provider": offer.provider,
        "instance": offer.instance,
        "gpu": offer.gpu,
        "gpus": str(offer.gpus),
        "gpu_share": _text(offer.gpu_share),
        "gpu_memory_gib": _text(offer.gpu_memory_bytes, GIB),
        "vcpus": _text(offer.vcpus),
        "ram_gib": _text(offer.ram_bytes, GIB),
        "local_disk_gb": _text(offer.local_disk_bytes, GB),
        "region": offer.region,
        "zones": str(offer.zones),
        "price_usd_hour": _text(offer.price_usd_per_hour),
        "spot_usd_hour": _text(offer.spot_usd_per_hour),
        "spot_usd_hour_max": _text(offer.spot_high_usd_per_hour),
        "as_of": offer.as_of,
        "source": offer.source,
        "doubts": ";".join(_in_order(doubt.word for doubt in offer.doubts)),
    }


def _text(value: float | None, unit: float = 1.0) -> str:
    return "" if value is None else f"{value / unit:.5g}"


def _in_order(words: Iterable[str]) -> Iterator[str]:
    held = set(words)
    return (word for word in doubt_kinds() if word in held)


# --- how often spot machines are taken away ---


BUCKETS = {
    "<5%": ("0", "0.05"),
    "5-10%": ("0.05", "0.1"),
    "10-15%": ("0.1", "0.15"),
    "15-20%": ("0.15", "0.2"),
    ">20%": ("0.2", ""),
}
"""Bucket of the AWS Spot Instance Advisor to the fraction interrupted per month."""


def interruption_rows(raw: list[Row]) -> list[Row]:
    """Share of spot instances interrupted in a month, as a range; the top bucket is open."""
    rows = [
        {
            "provider": "aws",
            "instance": row["instance_type"],
            "region": row["region"],
            "low_fraction_per_month": BUCKETS[row["interruption_per_month"]][0],
            "high_fraction_per_month": BUCKETS[row["interruption_per_month"]][1],
            "as_of": row["as_of"],
            "source": row["source"],
        }
        for row in raw
    ]
    return sorted(rows, key=lambda row: (row["instance"], row["region"]))


# --- the command ---


def build(raw: Path, out: Path, advisor: Path | None = None, files: Path = FILES) -> None:
    """Read every raw file, write every table."""
    snapshot = date.fromisoformat(raw.resolve().name).isoformat()
    offers = [offer_row(offer) for offer in build_offers(raw, snapshot, read_csv(files))]
    write_csv(out / f"offers_{snapshot}.csv", offers[0], offers)
    if advisor is not None:
        rows = interruption_rows(read_csv(advisor))
        write_csv(out / f"spot_interruptions_{rows[0]['as_of']}.csv", rows[0], rows)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Build outlay's price tables from raw files.")
    parser.add_argument("--raw", type=Path, required=True, help="folder of a day's catalogue files")
    parser.add_argument("--out", type=Path, default=DATA, help="folder of the tables")
    parser.add_argument("--advisor", type=Path, help="file of the AWS Spot Instance Advisor")
    arguments = parser.parse_args()
    build(arguments.raw, arguments.out, arguments.advisor)


if __name__ == "__main__":
    main()
