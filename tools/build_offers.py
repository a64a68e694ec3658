"""Build the price tables under `src/outlay/data/` from raw price files.

    python tools/build_offers.py --raw DIR [--out DIR]

The raw folder holds `offers_<date>.csv.gz` (one row per instance type and region or zone, with
flags), `gpu_names.csv` and `aws_spot_interruptions_<month>.csv`. Three tables are kept by hand;
they are read and not written:

    tools/data/instance_forms.csv  which form of a GPU (PCIe, SXM) an instance type has
    tools/data/instance_disks.csv  local disk of an instance type
    instance_ends.csv              when a provider withdrew an instance type; in the output folder

Written: `offers_<date>.csv`, `offer_doubts.csv`, `spot_interruptions_<date>.csv`,
`gpu_spellings.csv`. The same input gives the same bytes. What prices did before: `fit_prices.py`.

A row is never dropped for being doubtful. What is wrong with it is said in `doubts`, in the words
of `DOUBTS` in `offer_vocabulary.py`, and whoever ranks offers decides.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from offer_vocabulary import (
    AWS_REGIONS,
    DOUBTS,
    FAMILIES,
    FLAG_DOUBTS,
    H100_ASSUMED,
    PATTERN_DOUBTS,
)
from outlay.offers.catalog import doubt_kinds
from outlay.offers.offer import Offer as ListedOffer
from outlay.prices.checks import doubted_by_others

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

KEPT = Path(__file__).parent / "data"
"""The tables kept by hand that only this tool reads."""
K = TypeVar("K")
Row = dict[str, str]

STALE_DAYS = 90
NO_SAVING_FRACTION = 0.999
"""Spot from this share of on-demand upwards saves nothing; the lists round the two differently."""
UNLIKELY_RAM_FACTOR = 1.5


class RawError(Exception):
    """A raw file holds something this tool does not know how to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One instance type in one place. `raw_gpu` is the name before its form was looked up."""

    provider: str
    instance: str
    raw_gpu: str
    gpu: str
    gpus: int
    gpu_share: float
    gpu_memory_gib: float
    vcpus: float
    ram_gib: float
    local_disk_gb: str
    region: str
    zones: int
    price: float | None
    spot: float | None
    spot_max: float | None
    as_of: str
    source: str
    doubts: frozenset[str]


# ---------------------------------------------------------------- reading


def read_csv(path: Path) -> list[Row]:
    """The rows of a CSV file, gzipped or not."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def only_file(folder: Path, pattern: str) -> Path:
    """The one file of a folder that matches."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise RawError(f"{folder} has {len(found)} files {pattern!r}; exactly one is needed.")
    return found[0]


def shorten(text: str) -> float | None:
    """A price to five significant digits, None where there is none. Zero is not a price."""
    value = float(text) if text else 0.0
    return float(f"{value:.5g}") if value > 0 else None


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


def region_of(provider: str, place: str) -> str:
    """Region of a place as the raw file names it; `unknown` where it names none."""
    readers: Mapping[str, Callable[[str], str]] = {"aws": aws_region, "gcp": gcp_region}
    if provider in readers:
        return readers[provider](place)
    return place.strip(" ,") or "unknown"


def is_local_zone(region: str) -> bool:
    """Whether an AWS region as `aws_region` names it is a local or wavelength zone group."""
    return re.fullmatch(r"[a-z]{2}-[a-z]+-\d-[a-z0-9-]+", region) is not None


def raw_doubts(row: Row, region: str, snapshot: date) -> frozenset[str]:
    """What the raw row says, or its name or place implies, about its own price."""
    flags = [flag for flag in row["flags"].split(";") if flag]
    if unknown := [flag for flag in flags if flag not in FLAG_DOUBTS]:
        raise RawError(f"Unknown flags {unknown} at {row['provider']} {row['instance_type']}.")
    doubts = {FLAG_DOUBTS[flag] for flag in flags} - {"", "stale"}
    if (snapshot - date.fromisoformat(row["last_changed"])).days > STALE_DAYS:
        doubts.add("stale")
    if region == "unknown":
        doubts.add("no stock seen")
    if row["provider"] == "aws" and is_local_zone(region):
        doubts.add("local zone")
    for provider, pattern, doubt in PATTERN_DOUBTS:
        if row["provider"] == provider and fnmatchcase(row["instance_type"], pattern):
            doubts.add(doubt)
    return frozenset(doubts)


def zone_offer(row: Row) -> Offer:
    """One raw row as an offer of one zone, before anything is looked up or merged."""
    count = float(row["gpu_count"])
    if count >= 1 and count != int(count):
        raise RawError(f"{row['instance_type']}: {count} GPUs is neither whole nor a fraction.")
    region = region_of(row["provider"], row["region"])
    price, spot = shorten(row["price_usd_hour"]), shorten(row["spot_usd_hour"])
    doubts = raw_doubts(row, region, date.fromisoformat(row["snapshot_date"]))
    if "bid floor" in doubts:  # the floor stands in both columns; nobody sells at it on demand
        price, spot = None, spot or price
    return Offer(
        provider=row["provider"],
        instance=row["instance_type"],
        raw_gpu=row["gpu"],
        gpu=row["gpu"],
        gpus=max(1, int(count)),
        gpu_share=min(1.0, count),
        gpu_memory_gib=float(row["gpu_memory_gib"]),
        vcpus=float(row["vcpus"]),
        ram_gib=float(row["ram_gib"]),
        local_disk_gb="",
        region=region,
        zones=1,
        price=price,
        spot=spot,
        spot_max=spot,
        as_of=row["last_changed"],
        source=row["source"],
        doubts=doubts,
    )


# ---------------------------------------------------------------- merging


def merge_zones(zones: list[Offer]) -> Offer:
    """One offer for a region: lowest on-demand price, cheapest and dearest zone with real spot."""
    if len({(z.raw_gpu, z.gpus, z.gpu_share, z.vcpus, z.ram_gib) for z in zones}) > 1:
        raise RawError(f"{zones[0].instance} is two machines in {zones[0].region}.")
    prices = sorted({zone.price for zone in zones if zone.price is not None})
    price = prices[0] if prices else None
    listed = [zone.spot for zone in zones if zone.spot is not None]
    spots = [spot for spot in listed if price is None or spot < NO_SAVING_FRACTION * price]
    doubts = set().union(*(zone.doubts for zone in zones))
    if len(prices) > 1:
        doubts.add("zones differ")
    if price is None:
        doubts.add("spot only")
    if listed and not spots:
        doubts.add("spot not below on-demand")
    if spots and len(spots) < len(zones):
        doubts.add("spot in some zones")
    return replace(
        zones[0],
        zones=len(zones),
        price=price,
        spot=min(spots, default=None),
        spot_max=max(spots, default=None),
        as_of=min(zone.as_of for zone in zones),
        doubts=frozenset(doubts),
    )


def merge_regions(offers: list[Offer]) -> list[Offer]:
    """One row `any` for an instance that costs the same in every region of its provider.

    Several regions, all regions the provider has, and equal in everything but the region; else
    the rows stay as they are, because `any` would claim places where it is not sold.
    """
    regions: dict[str, set[str]] = defaultdict(set)
    for offer in offers:
        regions[offer.provider].add(offer.region)
    merged: list[Offer] = []
    for (provider, _), group in grouped(offers, lambda o: (o.provider, o.instance)):
        same = len({replace(offer, region="any") for offer in group}) == 1
        if same and len(group) == len(regions[provider]) > 1:
            merged.append(replace(group[0], region="any", zones=len(group)))
        else:
            merged.extend(group)
    return merged


def grouped(offers: Iterable[Offer], key: Callable[[Offer], K]) -> Iterable[tuple[K, list[Offer]]]:
    """Offers by key, keys and offers in the order met."""
    groups: dict[K, list[Offer]] = defaultdict(list)
    for offer in offers:
        groups[key(offer)].append(offer)
    return groups.items()


# ---------------------------------------------------------------- looking up


def with_form(offer: Offer, forms: list[Row]) -> Offer:
    """The offer with the form of its GPU, from the first row of `instance_forms.csv` that fits."""
    gpu = next((row["gpu"] for row in forms if _fits(row, offer)), offer.raw_gpu)
    doubts = offer.doubts | ({"form not stated"} if gpu in FAMILIES else set())
    return replace(offer, gpu=gpu, doubts=doubts)


def _fits(row: Row, offer: Offer) -> bool:
    return (
        row["provider"] == offer.provider
        and row["raw_gpu"] == offer.raw_gpu
        and fnmatchcase(offer.instance, row["instance_pattern"])
    )


def with_disk(offer: Offer, disks: Mapping[tuple[str, str], str]) -> Offer:
    """The offer with its local disk from `instance_disks.csv`, empty where unknown."""
    return replace(offer, local_disk_gb=disks.get((offer.provider, offer.instance), ""))


def with_end(offer: Offer, ends: list[Row], snapshot: date) -> Offer:
    """The offer, doubted if `instance_ends.csv` has a day on which it is withdrawn."""
    for row in ends:
        known = row["provider"] == offer.provider
        if known and fnmatchcase(offer.instance, row["instance_pattern"]):
            gone = date.fromisoformat(row["withdrawn"]) <= snapshot
            doubt = "withdrawn" if gone else "withdrawal announced"
            return replace(offer, doubts=offer.doubts | {doubt})
    return offer


def with_ram_fixed(offers: list[Offer]) -> list[Offer]:
    """Offers with RunPod's RAM right.

    Source: sky/catalog/data_fetchers/fetch_runpod.py in skypilot-org/skypilot multiplies by the
    GPU count what RunPod already gives for the whole pod, for GPUs it has no default for. Such pods
    stand out: RAM per GPU is far above that of the same pod with one GPU.
    """
    single = {_pod(o): o.ram_gib for o in offers if o.provider == "runpod" and o.gpus == 1}

    def fixed(offer: Offer) -> Offer:
        one = single.get(_pod(offer)) if offer.provider == "runpod" else None
        if one is None or offer.ram_gib / offer.gpus <= UNLIKELY_RAM_FACTOR * one:
            return offer
        ram_gib, doubts = offer.ram_gib / offer.gpus, offer.doubts | {"ram fixed"}
        return replace(offer, ram_gib=ram_gib, doubts=doubts)

    return [fixed(offer) for offer in offers]


def _pod(offer: Offer) -> str:
    return re.sub(r"^\d+x", "", offer.instance)


# ---------------------------------------------------------------- judging


def judged(offers: list[Offer]) -> list[Offer]:
    """The offers with doubts about prices far from what others ask."""
    listed = doubted_by_others([_listed(offer) for offer in offers])
    found = [{doubt.word for doubt in offer.doubts} for offer in listed]
    return [replace(o, doubts=o.doubts | words) for o, words in zip(offers, found, strict=True)]


def _listed(offer: Offer) -> ListedOffer:
    """An offer as outlay has it, with what its price is judged by."""
    return ListedOffer(
        provider=offer.provider,
        instance=offer.instance,
        gpu=offer.raw_gpu,
        gpus=offer.gpus,
        gpu_share=offer.gpu_share,
        vcpus=offer.vcpus,
        region=offer.region,
        price_usd_per_hour=offer.price,
        spot_usd_per_hour=offer.spot,
        as_of=offer.as_of,
        source=offer.source,
        doubts=tuple(doubt_kinds()[word] for word in offer.doubts),
    )


# ---------------------------------------------------------------- the tables


def build_offers(
    raw: list[Row], forms: list[Row], disks: list[Row], ends: list[Row]
) -> list[Offer]:
    """Offers merged, looked up and judged, sorted by provider, instance and region."""
    snapshot = date.fromisoformat(raw[0]["snapshot_date"])
    disk_gb = {(row["provider"], row["instance"]): row["local_disk_gb"] for row in disks}
    if len({(r["provider"], r["instance_type"], r["region"]) for r in raw}) < len(raw):
        raise RawError("A provider lists an instance type twice in one place.")
    zones = [zone_offer(row) for row in raw]
    key = lambda o: (o.provider, o.instance, o.region)  # noqa: E731
    offers = [merge_zones(group) for _, group in grouped(zones, key)]
    offers = [with_end(with_disk(with_form(o, forms), disk_gb), ends, snapshot) for o in offers]
    return sorted(merge_regions(judged(with_ram_fixed(offers))), key=key)


def offer_row(offer: Offer) -> Row:
    """The offer as a row of the table."""
    return {
        "provider": offer.provider,
        "instance": offer.instance,
        "gpu": offer.gpu,
        "gpus": str(offer.gpus),
        "gpu_share": _text(offer.gpu_share),
        "gpu_memory_gib": _text(offer.gpu_memory_gib),
        "vcpus": _text(offer.vcpus),
        "ram_gib": _text(offer.ram_gib),
        "local_disk_gb": offer.local_disk_gb,
        "region": offer.region,
        "zones": str(offer.zones),
        "price_usd_hour": _text(offer.price),
        "spot_usd_hour": _text(offer.spot),
        "spot_usd_hour_max": _text(offer.spot_max),
        "as_of": offer.as_of,
        "source": offer.source,
        "doubts": ";".join(word for word in DOUBTS if word in offer.doubts),
    }


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"


def doubt_rows() -> list[Row]:
    """The vocabulary of `doubts` as a table."""
    return [
        {"doubt": word, "kind": kind, "about": about, "meaning": meaning}
        for word, (kind, about, meaning) in DOUBTS.items()
    ]


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


def spelling_rows(raw: list[Row]) -> list[Row]:
    """Every GPU name a provider uses, with ours."""
    rows = [
        {
            "provider": row["source_provider"],
            "spelling": row["source_name"],
            "gpu": _spelled(row),
            "note": _spelling_note(row),
        }
        for row in raw
    ]
    return sorted(rows, key=lambda row: (row["provider"], row["spelling"], row["gpu"]))


def _spelled(row: Row) -> str:
    gpu, spelling = row["canonical"], row["source_name"].upper()
    if gpu.startswith("A100"):
        gpu += " SXM" * ("SXM" in spelling) + " PCIe" * ("PCIE" in spelling)
    if gpu.startswith("H100") and "SXM" not in spelling and row["source_provider"] in H100_ASSUMED:
        return "H100"
    if gpu == "H100 NVL" and "-NVLINK" in row["instance_types_if_ambiguous"]:
        return "H100"  # NVLink names the bridge between two cards, not the NVL card
    return gpu


def _spelling_note(row: Row) -> str:
    if not row["canonical"]:
        return "not a GPU"
    types = row["instance_types_if_ambiguous"].replace("|", " ")
    return f"for instances {types}" if types else ""


def write_csv(path: Path, columns: Iterable[str], rows: list[Row]) -> None:
    """Write a table, checked for equal columns, with plain newlines."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{path.name}: {len(rows)} rows, {path.stat().st_size / 1000:.0f} KB")


def build(raw: Path, out: Path, kept: Path = KEPT) -> None:
    """Read every raw file, write every table."""
    offers_raw = read_csv(only_file(raw, "offers_*.csv.gz"))
    names = read_csv(raw / "gpu_names.csv")
    interruptions = interruption_rows(read_csv(only_file(raw, "aws_spot_interruptions_*.csv")))
    forms, disks = (read_csv(kept / f"instance_{name}.csv") for name in ("forms", "disks"))
    ends = read_csv(out / "instance_ends.csv")
    snapshot, advised = offers_raw[0]["snapshot_date"], interruptions[0]["as_of"]
    offers = [offer_row(o) for o in build_offers(offers_raw, forms, disks, ends)]
    tables = {
        f"offers_{snapshot}.csv": offers,
        "offer_doubts.csv": doubt_rows(),
        f"spot_interruptions_{advised}.csv": interruptions,
        "gpu_spellings.csv": spelling_rows(names),
    }
    for name, rows in tables.items():
        write_csv(out / name, rows[0], rows)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Build outlay's price tables from raw files.")
    parser.add_argument("--raw", type=Path, required=True, help="folder of the raw price files")
    data = Path(__file__).parents[1] / "src" / "outlay" / "data"
    parser.add_argument("--out", type=Path, default=data, help="folder of the tables")
    arguments = parser.parse_args()
    build(arguments.raw, arguments.out)


if __name__ == "__main__":
    main()
