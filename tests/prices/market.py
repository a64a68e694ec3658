"""All price sources on one server: SkyPilot's files, gpuhunt's zips, live providers, Vast, AWS's
Spot Instance Advisor, the European Central Bank.

    with PriceServer() as server:
        market = Market(server)
        market.open(excerpts())              # or whole files: {"aws": csv_bytes, ...}
        for name, value in market.settings.items():
            monkeypatch.setenv(name, value)
        for module, constant, address in market.live_addresses():
            monkeypatch.setattr(module, constant, address)
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.prices.server import PriceServer, zip_of

from outlay.currency import known_rates
from outlay.hardware.gpu_names import gpu_match
from outlay.prices.skypilot import SkyPilotCatalogue
from outlay.prices.sources import Listing
from outlay.units import GIB

DATA = Path(__file__).parent / "data"
GPUHUNT = {
    "aws": "aws",
    "azure": "azure",
    "gcp": "gcp",
    "lambdalabs": "lambda",
    "nebius": "nebius",
    "oci": "oci",
    "runpod": "runpod",
    "verda": "verda",
}
"""Providers that gpuhunt publishes, and their names in SkyPilot's catalogue."""
LIVE = {
    "daytona": ("PRICING_URL", "daytona/gpu-pricing"),
    "lium": ("NODES_URL", "lium/nodes"),
    "vultr": ("API_URL", "vultr"),
}
"""Providers that gpuhunt asks without a key: the constant that says where, and the path here."""
VERSION = "20261117-901"


def excerpts() -> dict[str, bytes]:
    """Real rows of SkyPilot's file of each cloud."""
    files = {path.stem: path.read_bytes() for path in (DATA / "skypilot").glob("*.csv")}
    files.pop("jarvislabs")  # a cloud that came later
    return files


REAL_ROWS = {
    "aws": (53_961, 2_457),
    "azure": (5_969, 187),
    "gcp": (34_753, 2_508),
    "lambda": (408, 374),
    "oci": (3_038, 686),
    "runpod": (12_816, 11_376),
}
"""Rows of the largest files of 2026-08-22, and how many of them have a GPU."""


_REGIONS = 20
"""As many as a large provider has; the rest are zones."""


def whole_files(folder: Path, day: str) -> dict[str, bytes]:
    """SkyPilot's files as they stood on a day, from a folder of them."""
    paths = (folder / "skypilot" / day).glob("*.csv.gz")
    return {path.name.removesuffix(".csv.gz"): gzip.decompress(path.read_bytes()) for path in paths}


def enlarged(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Excerpts with as many rows as the real files have: the same machines in more places."""
    return {
        cloud: _enlarged(data, *REAL_ROWS[cloud]) if cloud in REAL_ROWS else data
        for cloud, data in files.items()
    }


def _enlarged(data: bytes, rows: int, with_gpu: int) -> bytes:
    head, *known = csv.reader(io.StringIO(data.decode(), newline=""))
    region = head.index("Region")
    zone = head.index("AvailabilityZone") if "AvailabilityZone" in head else region
    gpu = head.index("AcceleratorName")
    have_gpu = [row for row in known if row[gpu]]
    have_none = [row for row in known if not row[gpu]] or known[:1]

    def elsewhere(row: list[str], number: int) -> list[str]:
        moved = list(row)
        if number:
            moved[region] = f"{row[region]}-{number % _REGIONS}"
            moved[zone] = f"{row[zone]}-{number}" if zone != region else moved[region]
        return moved

    def many(some: list[list[str]], count: int) -> list[list[str]]:
        return [elsewhere(some[n % len(some)], n // len(some)) for n in range(count)]

    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([head, *many(have_gpu, with_gpu), *many(have_none, rows - with_gpu)])
    return text.getvalue().encode()


class Market:
    """What every source serves; see the module."""

    def __init__(self, server: PriceServer) -> None:
        self.server = server

    @property
    def settings(self) -> dict[str, str]:
        """The variables that name each source's place."""
        return {
            "OUTLAY_SKYPILOT_CATALOG": self.server.base,
            "OUTLAY_GPUHUNT_CATALOG": self.server.url("v3"),
            "OUTLAY_VAST_API": self.server.url("vast"),
            "OUTLAY_SPOT_ADVISOR": self.server.url("spot-advisor.json"),
            "OUTLAY_RATES": self.server.url("eurofxref-hist.zip"),
            "DAYTONA_API_URL": self.server.url("daytona/api"),
        }

    def live_addresses(self) -> Iterator[tuple[ModuleType, str, str]]:
        """Where gpuhunt's modules are to ask live providers."""
        for name, (constant, path) in LIVE.items():
            yield import_module(f"gpuhunt.providers.{name}"), constant, self.server.url(path)

    def open(self, files: Mapping[str, bytes]) -> None:
        """Serve everything; `files` are SkyPilot's by cloud."""
        for cloud, data in files.items():
            if cloud == "common_accelerators":
                self.server.put("v8/common/accelerators.csv", data)
            else:
                self.put_skypilot(cloud, data)
        for name, cloud in GPUHUNT.items():
            listings = SkyPilotCatalogue().read(cloud, files[cloud]).listings
            self.server.put_gpuhunt(name, catalogue_items(name, listings), VERSION)
        self.server.put_gpuhunt("cloudrift", [_cloudrift()], VERSION)
        self._put_live()
        self.put_json("vast", (DATA / "vast_bundles.json").read_bytes())
        self.put_json("spot-advisor.json", (DATA / "spot_advisor.json").read_bytes())
        self.server.put("eurofxref-hist.zip", rates_zip(), content_type="application/zip")

    def put_skypilot(self, cloud: str, data: bytes) -> None:
        """Serve a cloud's file; AWS has none of version 8 here."""
        self.server.put_skypilot(cloud, data, schema="v7" if cloud == "aws" else "v8")

    def put_json(self, path: str, data: bytes) -> None:
        """Serve what is JSON."""
        self.server.put(path, data, content_type="application/json")

    def _put_live(self) -> None:
        replies = json.loads((DATA / "gpuhunt_replies.json").read_text(encoding="utf-8"))
        for name in LIVE:
            for path, reply in replies[name]["replies"].items():
                self.put_json(f"{name}/{path}", json.dumps(reply).encode())


def catalogue_items(name: str, listings: Sequence[Listing]) -> list[Any]:
    """SkyPilot's listings as gpuhunt would have them: a row for each tenancy."""
    from gpuhunt import AcceleratorVendor, CatalogItem

    return [
        CatalogItem(
            provider=name,
            instance_name=_instance_name(name, one),
            location=one.zone or one.region,
            price=price_usd,
            cpu=int(one.vcpus or 0),
            memory=(one.ram_bytes or 0.0) / GIB,
            gpu_count=max(1, int(one.gpus)),
            gpu_name=one.gpu.partition("-")[0],
            gpu_memory=(one.gpu_memory_bytes or 0.0) / GIB or None,
            gpu_vendor=AcceleratorVendor.NVIDIA,
            spot=spot,
            disk_size=None,
        )
        for one in listings
        for spot, price_usd in ((False, one.price_usd_per_hour), (True, one.spot_usd_per_hour))
        if price_usd
    ]


def _instance_name(name: str, listing: Listing) -> str:
    """gpuhunt has RunPod's pods by the id of their GPU."""
    match = gpu_match(listing.gpu, "runpod") if name == "runpod" else None
    return listing.instance if match is None else f"NVIDIA {match.gpu.name}"


def _cloudrift() -> Any:
    from gpuhunt import AcceleratorVendor, CatalogItem

    return CatalogItem(
        provider="cloudrift",
        instance_name="rtx49-7c-kn.1",
        location="us-east-nc-nr-1",
        price=0.39,
        cpu=7,
        memory=50.0,
        gpu_count=1,
        gpu_name="RTX4090",
        gpu_memory=24.0,
        gpu_vendor=AcceleratorVendor.NVIDIA,
        spot=False,
        disk_size=300.0,
    )


def rates_zip(day: str = "2026-11-16", **rates: float) -> bytes:
    """The rates that come with outlay and those of one more day, the same but for those given."""
    head, *lines = known_rates().text.strip().splitlines()
    codes = head.split(",")
    cells = dict(zip(codes, lines[0].split(","), strict=True))
    cells |= {"Date": day, **{code: f"{rate}" for code, rate in rates.items()}}
    newest = ",".join(cells[code] for code in codes)
    return zip_of({"eurofxref-hist.csv": "\n".join([head, newest, *lines]).encode()})
