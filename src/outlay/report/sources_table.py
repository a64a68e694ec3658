"""Where the figures of an option come from: every row behind its price, its bill and its speed."""

from __future__ import annotations

from collections.abc import Iterator

from rich.padding import Padding
from rich.text import Text

from outlay.hardware import PEAKS, Gpu
from outlay.offers.spot import spot_risk
from outlay.option import Option
from outlay.report.console import Page, table
from outlay.trace.trace import Profile

_GPU_FACTS = ("memory_usable", "memory_bandwidth", "tdp")


def print_sources(page: Page, option: Option, profile: Profile) -> None:
    """Print the table of sources."""
    page.print()
    page.print(Text("Where these figures come from", style="bold"))
    rows = list(_rows(option, profile))
    body = table(("figure", "value", "source"), rows, page.width - 2, wrap="source")
    page.print(Padding(body, (0, 0, 0, 2)))


def _rows(option: Option, profile: Profile) -> Iterator[tuple[str, str, str]]:
    offer = option.offer
    price = offer.hourly_usd(option.tenancy)
    yield "price", "-" if price is None else f"${price:.4g}/h", f"{offer.source}, {offer.as_of}"
    for line in option.cost.breakdown.lines if option.cost else ():
        if line.source and not line.source.startswith(offer.source):
            yield line.name, f"${float(line.usd):.4g}", line.source
    if option.tenancy == "spot":
        risk = spot_risk(offer)
        rate = f"{risk.interruptions_per_month.likely:.3g} a month"
        yield "interruptions", rate, risk.source
    yield from _gpu_rows(option.step.placement.gpu)
    traced = ", ".join(f"{name} {version}" for name, version in profile.versions.items())
    yield "training step", profile.name, f"traced on {profile.traced_on} with {traced}"
    yield "efficiencies", "", "data/calibration.csv, each row with its measurements"
    yield "assumptions", "", "data/assumptions.csv, each row with its source or 'guess'"


def _gpu_rows(gpu: Gpu) -> Iterator[tuple[str, str, str]]:
    """The facts of the GPU that decide time and memory."""
    for name in (*_GPU_FACTS, *PEAKS.values()):
        fact = gpu.facts[name]
        if fact.number is not None:
            note = f" ({fact.note})" if fact.note else ""
            yield (
                f"{gpu.name} {name}",
                f"{fact.text} {fact.unit}",
                (f"{fact.source}, {fact.as_of}{note}"),
            )
