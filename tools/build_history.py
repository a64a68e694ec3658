"""Build `src/outlay/data/price_history.csv.gz`: what machines cost at the end of each month.

    python tools/build_history.py --raw DIR [--out DIR]

The raw folder holds `history_monthly_instances.csv.gz`: SkyPilot's public catalogue as it stood at
the end of every month, one row for each instance type, with the lowest and the middle price over
its regions. `data/instance_forms.csv` tells the form of a GPU (PCIe, SXM); the same rows
give the GPU names of the offers. The same input gives the same bytes.

No row is dropped for being doubtful, only those without any price. What is wrong with a row is said
in `doubts`, in the words of `offer_doubts.csv`, and whoever counts rows decides:

    stale                     the list was over 90 days old by then, or is known to have stood still
    suspiciously cheap        GCP's on-demand prices while a cheaper product stood in their place;
                              Hyperbolic's while one GPU's price stood for the machine's
    count or name fixed       Azure's shares of an A10, which the list counted as whole ones
    bid floor ...             what holds for all rows of a provider or an instance type
"""

from __future__ import annotations

import argparse
import calendar
import csv
import gzip
import io
from collections.abc import Iterable, Iterator
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path

from build_offers import KEPT, NO_SAVING_FRACTION, STALE_DAYS, Row, read_csv, shorten
from offer_vocabulary import DOUBTS, FAMILIES, PATTERN_DOUBTS
from outlay.currency import usd_per_unit
from outlay.facts import newest, rows_of
from outlay.hardware.gpu_names import find_gpu
from outlay.offers.catalog import snapshot_date

RAW = "history_monthly_instances.csv.gz"
TABLE = "price_history.csv.gz"
COLUMNS = (
    "provider", "instance", "gpu", "gpus", "month", "price_usd_hour", "price_usd_hour_median",
    "spot_usd_hour", "spot_usd_hour_median", "regions", "as_of", "repeated", "doubts", "source",
)  # fmt: skip

IN_EUROS = tuple(
    row["provider"]
    for row in rows_of("catalogue_quirks.csv")
    if (row["catalogue"], row["quirk"], row["value"]) == ("skypilot", "currency", "EUR")
)
"""Whose lists are in euros: they are converted at the rate of the month's last day."""

LASTING_DOUBTS = (
    *PATTERN_DOUBTS,
    ("gcp", "*", "host added"),
    # Source: flags of offers_2026-08-22 (not_sold_ondemand), which follow GCP's documentation
    ("gcp", "a4-highgpu-*", "not sold on demand"),
    ("gcp", "a3-ultragpu-*", "not sold on demand"),
    ("gcp", "a3-highgpu-[124]g", "not sold on demand"),
    ("lambda", "*", "region not verified"),
    ("runpod", "*", "region not verified"),
    ("oci", "*", "region not verified"),
    ("shadeform", "*", "aggregator"),
    ("primeintellect", "*", "aggregator"),
    ("mithril", "*", "bid floor"),
    *((provider, "*", "currency converted") for provider in IN_EUROS),
)
"""Provider, instance pattern and word, as the offers of the snapshot have them."""

FROZEN = (("aws", "2026-04", "2026-06"),)
"""Lists known to have stood still while prices moved: provider, first and last month."""

ONE_GPU_PRICE = (("hyperbolic", "2025-05", "2025-05"),)
"""Lists with the price of one GPU for a machine of several: provider, first and last month.

In 2025-05 a machine of eight H100 is listed at $0.99, a month later one of one at $0.99 and one of
eight at $7.92.
"""
SPOT_NAMES = (("primeintellect", "*__SPOT"),)
"""Types that are sold as spot alone; their price stood in the on-demand column at first."""
GPU_SHARES = {
    ("azure", "Standard_NV6ads_A10_v5"): 1 / 6,
    ("azure", "Standard_NV12ads_A10_v5"): 1 / 3,
    ("azure", "Standard_NV18ads_A10_v5"): 1 / 2,
}
"""Shares of a GPU that the list counts as a whole one.

Source: https://github.com/MicrosoftDocs/azure-docs/blob/main/articles/virtual-machines/nva10v5-series.md
(6 vCPUs and a sixth of an A10 up to 36 and a whole one).
"""
CHEAPER_PRODUCT = ("gcp", "2025-02", "2026-07")
"""While a cheaper product stood in GCP's list as on-demand: provider, first and last month."""
CHEAPER_FRACTION = 0.8
"""Below this share of what the same type costs once the list was mended, a price in that time is
doubted.

Assumes: 0.8. The prices in question (A2, A3 and A4 machines) are 0.49 to 0.71 of what they are
after and, where they were listed, were before; every other price of GCP in that time is exactly
what it is after.
"""


def build_rows(raw: Iterable[Row], forms: list[Row]) -> list[Row]:
    """The rows of the table, sorted by provider, instance, GPU and month."""
    priced = [row for row in raw if row["ondemand_min"] or row["spot_min"]]
    repeated = repeated_months(priced)
    rows = [history_row(row, forms, repeated) for row in priced]
    rows.sort(key=lambda row: (row["provider"], row["instance"], row["gpu"], row["month"]))
    return list(doubted_by_later(rows))


def repeated_months(raw: Iterable[Row]) -> set[tuple[str, str]]:
    """Provider and month of lists that only repeat the month before."""
    days = sorted({(row["provider"], row["month"], row["last_changed"]) for row in raw})
    return {
        (provider, month)
        for (before, _, day_before), (provider, month, day) in pairwise(days)
        if before == provider and day_before == day
    }


def history_row(row: Row, forms: list[Row], repeated: set[tuple[str, str]]) -> Row:
    """One raw row in our own form."""
    provider, instance, month = row["provider"], row["instance_type"], row["month"]
    gpu = gpu_name(row, forms)
    gpus = GPU_SHARES.get((provider, instance), float(row["gpu_count"]))
    doubts = set(row_doubts(row, gpu, gpus))
    price, middle = in_usd(row, "ondemand_min"), in_usd(row, "ondemand_median")
    spot, spot_middle = in_usd(row, "spot_min"), in_usd(row, "spot_median")
    is_spot = any(who == provider and fnmatchcase(instance, name) for who, name in SPOT_NAMES)
    if is_spot or "bid floor" in doubts:  # a floor stands in both columns; nobody sells at it
        spot, spot_middle, price, middle = spot or price, spot_middle or middle, None, None
    if price is not None and spot is not None and spot >= NO_SAVING_FRACTION * price:
        spot = spot_middle = None
        doubts.add("spot not below on-demand")
    if price is None:
        doubts.add("spot only")
    return {
        "provider": provider,
        "instance": instance,
        "gpu": gpu,
        "gpus": f"{gpus:.6g}",
        "month": month,
        "price_usd_hour": _text(price),
        "price_usd_hour_median": _text(middle),
        "spot_usd_hour": _text(spot),
        "spot_usd_hour_median": _text(spot_middle),
        "regions": row["regions"],
        "as_of": row["last_changed"],
        "repeated": "yes" if (provider, month) in repeated else "",
        "doubts": _words(doubts),
        "source": source_of(row),
    }


def in_usd(row: Row, column: str) -> float | None:
    """A price of a raw row in dollars."""
    price = shorten(row[column])
    if price is None or row["provider"] not in IN_EUROS:
        return price
    return shorten(str(price * usd_per_euro(row)[0]))


def usd_per_euro(row: Row) -> tuple[float, str]:
    """The rate of the last day of a raw row's month, and the day it is of."""
    return usd_per_unit("EUR", min(last_day(row["month"]).isoformat(), snapshot_date()))


def source_of(row: Row) -> str:
    """The file a raw row was read in; of a converted price what stands there, and the rate."""
    file = f"skypilot-catalog:catalogs/{row['catalog']}/{row['provider']}/vms.csv"
    if row["provider"] not in IN_EUROS:
        return file
    rate, day = usd_per_euro(row)
    return f"{file}: {row['ondemand_min']} EUR at {rate:g} USD of {day}"


def gpu_name(row: Row, forms: list[Row]) -> str:
    """Our name of a GPU: with its form where the instance type tells, else perhaps a family."""
    for form in forms:
        if (
            form["provider"] == row["provider"]
            and form["raw_gpu"] == row["gpu"]
            and fnmatchcase(row["instance_type"], form["instance_pattern"])
        ):
            return form["gpu"]
    own = find_gpu(row["gpu"])
    listed = offered_gpus().get((row["provider"], row["instance_type"]))
    if listed is not None and find_gpu(listed).gpu in own.candidates:
        return listed  # the offers are told apart by their memory, too
    return own.meaning


@cache
def offered_gpus() -> dict[tuple[str, str], str]:
    """The GPU of every instance type of the bundled offers."""
    return {(row["provider"], row["instance"]): row["gpu"] for row in rows_of(newest("offers"))}


def row_doubts(row: Row, gpu: str, gpus: float) -> Iterator[str]:
    """What is doubtful about a row by itself."""
    provider, month = row["provider"], row["month"]
    for owner, pattern, word in LASTING_DOUBTS:
        if owner == provider and fnmatchcase(row["instance_type"], pattern):
            yield word
    if gpu in FAMILIES:
        yield "form not stated"
    if gpus < 1 or "MIG" in gpu:
        yield "fraction of a GPU"
    if gpus != float(row["gpu_count"]):
        yield "count or name fixed"
    if gpus > 1 and any(who == provider and a <= month <= b for who, a, b in ONE_GPU_PRICE):
        yield "suspiciously cheap"
    is_frozen = any(who == provider and a <= month <= b for who, a, b in FROZEN)
    age = last_day(month) - date.fromisoformat(row["last_changed"])
    if is_frozen or age.days > STALE_DAYS:
        yield "stale"


def last_day(month: str) -> date:
    """The last day of a month, YYYY-MM."""
    year, number = int(month[:4]), int(month[5:])
    return date(year, number, calendar.monthrange(year, number)[1])


def doubted_by_later(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows with a doubt where the list is known to have had a cheaper product as on-demand."""
    provider, first, last = CHEAPER_PRODUCT
    for _, group in groupby(rows, key=lambda row: (row["provider"], row["instance"], row["gpu"])):
        series = list(group)
        mended = [r["price_usd_hour"] for r in series if r["month"] > last and r["price_usd_hour"]]
        for row in series:
            concerned = row["provider"] == provider and first <= row["month"] <= last
            if concerned and mended and row["price_usd_hour"]:
                fraction = float(row["price_usd_hour"]) / float(mended[0])
                words = {*row["doubts"].split(";")}
                if fraction < CHEAPER_FRACTION:
                    row = {**row, "doubts": _words(words | {"suspiciously cheap"})}
            yield row


def _words(words: set[str]) -> str:
    """Doubts in the order of the vocabulary."""
    return ";".join(word for word in DOUBTS if word in words)


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"


def written(rows: Iterable[Row]) -> bytes:
    """The table as it is bundled: the same rows give the same bytes."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return gzip.compress(text.getvalue().encode(), compresslevel=9, mtime=0)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Build outlay's table of past prices.")
    parser.add_argument("--raw", type=Path, required=True, help="folder of the raw price files")
    data = Path(__file__).parents[1] / "src" / "outlay" / "data"
    parser.add_argument("--out", type=Path, default=data, help="folder of the table")
    arguments = parser.parse_args()
    rows = build_rows(read_csv(arguments.raw / RAW), read_csv(KEPT / "instance_forms.csv"))
    table = arguments.out / TABLE
    table.write_bytes(written(rows))
    print(f"{table.name}: {len(rows)} rows, {table.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
