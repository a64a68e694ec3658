"""`outlay build`: put a workstation together, judge one, or upgrade one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from outlay.cli.options import (
    cache_option,
    imported_of,
    json_option,
    print_document,
    progress_option,
    tell,
    today,
)
from outlay.errors import InputError

if TYPE_CHECKING:
    from outlay.report.build import Currency
    from outlay.workstation.build import BuildReport
    from outlay.workstation.file import MachineDescription
    from outlay.workstation.machine import MachineUse
    from outlay.workstation.parts import Catalogue, Kind, Part
    from outlay.workstation.speed import Training

COUNTRIES = ("us", "eu", "kr", "jp", "gb")


@click.command("build", no_args_is_help=True)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--gpu",
    "gpu_name",
    metavar="NAME[:COUNT]",
    help="Cards, as a GPU or a card's name; A + B are two unlike ones.",
)
@click.option("--cpu", metavar="NAME", help="The CPU, by words of its name.")
@click.option("--cooler", metavar="NAME", help="The CPU's cooler.")
@click.option("--board", metavar="NAME", help="The board.")
@click.option("--ram", metavar="NAME|SIZE", help="Memory: a kit, or at least so much (64GB).")
@click.option("--ssd", metavar="NAME|SIZE", help="An SSD, or at least so much (2TB).")
@click.option("--hdd", metavar="NAME|SIZE", help="A hard disk as well.")
@click.option("--psu", metavar="NAME|WATTS", help="A supply, or at least so much (1600W).")
@click.option("--case", metavar="NAME", help="The case.")
@click.option(
    "--power-limit",
    type=click.FloatRange(50, 2000),
    metavar="W",
    help="What each GPU is held to (nvidia-smi -pl).",
)
@click.option(
    "--upgrade",
    "upgraded_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Start from the machine of this file: what to replace, and what it buys.",
)
@click.option(
    "--input",
    "preprocessed",
    type=click.Choice(["while training", "before"]),
    default="while training",
    show_default=True,
    help="When samples are preprocessed.",
)
@click.option("--country", type=click.Choice(COUNTRIES), help="Whose wall sockets.")
@click.option(
    "--prices",
    "price_list",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Your prices, CSV: part,price,currency,as_of[,source].",
)
@click.option("--used", is_flag=True, help="Take prices of used cards first.")
@click.option("--workload", type=click.Path(path_type=Path), metavar="FILE", help="What to train.")
@click.option("--profile", metavar="NAME", help="A bundled or saved profile to train instead.")
@click.option("--budget", type=click.FloatRange(0, min_open=True), help="For all parts.")
@click.option(
    "--currency", default="", metavar="CODE", help="Of the budget, and of what is printed."
)
@click.option(
    "--list",
    "listed",
    type=click.Choice(["cpu", "cooler", "board", "memory", "ssd", "hdd", "psu", "case", "card"]),
    help="List the known parts of a kind instead.",
)
@click.option("--sources", is_flag=True, help="Also say where rules and prices were read.")
@cache_option
@progress_option
@json_option
def command(
    file: Path | None,
    gpu_name: str | None,
    upgraded_file: Path | None,
    power_limit: float | None,
    preprocessed: str,
    country: str | None,
    price_list: Path | None,
    used: bool,
    workload: Path | None,
    profile: str | None,
    budget: float | None,
    currency: str,
    listed: Kind | None,
    sources: bool,
    as_json: bool,
    **named: str | None,
) -> int:
    """Put a workstation together, judge one, or upgrade one.

    Parts that are not given are chosen: the cheapest under which every rule holds. FILE describes
    a machine to be judged, its parts by name or by their figures.

    \b
    Example:
      outlay build --gpu "RTX 3090:2" --ram 64GB --country us
      outlay build --gpu "RTX 4090" --cpu "Ryzen 9 7950X" --budget 5000
      outlay build examples/desk.toml --country kr
      outlay build --upgrade examples/desk.toml --gpu "RTX 5090:2" --profile vit-b16
      outlay build --list psu

    \b
    A machine file has one table:
      [machine]
      gpu = "RTX 3090"
      gpus = 2
      cpu = "i7-10700K"                       # by name: see --list
      board = {slots = "1:x8 4:x8", socket = "LGA1200"}   # or by its figures
      ram = "64GB"
      psu = {watts = 1600, eight_pin = 9}     # also cooler, ssd, hdd, case, price, currency

    Exits with 3 when a rule is broken or the budget does not do. A rule whose figures are unknown
    is "not checked", never passed.
    """
    import os

    from outlay.currency import usd_per_unit
    from outlay.report.build import Currency
    from outlay.workstation.assembly import build_request
    from outlay.workstation.build import build_workstation, judge_workstation, upgrade_workstation
    from outlay.workstation.parts import catalogue, read_prices

    known = catalogue(
        read_prices(price_list) if price_list else None,
        today(),
        used=used,
        imported=imported_of(os.environ.get("OUTLAY_PRICES", "newest")),
    )
    if listed is not None:
        return _list(known.of(listed), as_json)
    training = _training(workload, profile)
    described = _described(file, upgraded_file, known, asks=bool(gpu_name or any(named.values())))
    unit = currency or (described.currency if described else "USD")
    day = described.currency_day if described else None
    usd, rate_day = usd_per_unit(unit, day, today=today())
    request = build_request(
        known,
        _cards(gpu_name),
        {_KINDS[option]: name for option, name in named.items() if name},
        use=_use(preprocessed, country, training),
        power_limit_w=power_limit,
        budget_usd=None if budget is None else budget * usd,
    )
    if described is None:
        report = build_workstation(request, training)
    elif upgraded_file is None:
        report = judge_workstation(described, request, training)
    else:
        report = upgrade_workstation(described, request, training)
    said = "" if day else today()
    shown = Currency(name=unit.upper(), usd_per_unit=usd, rate_as_of=rate_day, today=said)
    return _show(report, shown, as_json, sources)


_KINDS: dict[str, Kind] = {
    "cpu": "cpu",
    "cooler": "cooler",
    "board": "board",
    "ram": "memory",
    "ssd": "ssd",
    "hdd": "hdd",
    "psu": "psu",
    "case": "case",
}
"""The options that name parts, and their kinds."""


def _cards(gpu_name: str | None) -> list[tuple[str, int]]:
    """`RTX 3090:2` or `RTX 3090 + RTX 2080 Ti` as names and counts."""
    if gpu_name is None:
        return []
    from outlay.hardware.gpu_names import counted

    parts = [counted(part, gpu_name) for part in gpu_name.split("+")]
    return [(name, count or 1) for name, count in parts]


def _described(
    file: Path | None, upgraded_file: Path | None, known: Catalogue, *, asks: bool
) -> MachineDescription | None:
    """The machine of a file, where one is given."""
    from outlay.workstation.file import read_machine

    if file is not None and (upgraded_file is not None or asks):
        raise InputError(
            f"{file} is judged as it is; parts cannot be given beside it.",
            fix=f"Write --upgrade {file} to change it, or put the part into the file.",
        )
    path = upgraded_file or file
    return None if path is None else read_machine(path, known)


def _training(workload: Path | None, profile: str | None) -> Training | None:
    """What is to be trained, where that is said."""
    from outlay.plan.from_measurement import profile_for
    from outlay.workload.workload import Dataset, Step
    from outlay.workstation.speed import Training

    if workload is not None and profile is not None:
        raise InputError("--workload and --profile both say what to train.", fix="Give one.")
    if workload is not None:
        from outlay.workload.file import read_workload

        read = read_workload(workload)
        return Training(
            profile=profile_for(read.step, progress=tell), step=read.step, data=read.data
        )
    if profile is None:
        return None
    step = Step(profile=profile)
    return Training(profile=profile_for(step, progress=tell), step=step, data=Dataset())


def _use(preprocessed: str, country: str | None, training: Training | None) -> MachineUse:
    from outlay.workstation.machine import MachineUse
    from outlay.workstation.speed import power_speed

    return MachineUse(
        speed_at=power_speed(),
        while_training=preprocessed == "while training",
        country=country,
        dataset_bytes=training.data.size_bytes if training else None,
    )


def _list(parts: list[Part], as_json: bool) -> int:
    from outlay.report.build import parts_document, print_parts
    from outlay.report.console import Page

    if as_json:
        print_document(parts_document(parts))
    else:
        print_parts(Page(), parts)
    return 0


def _show(report: BuildReport, shown: Currency, as_json: bool, sources: bool) -> int:
    from outlay.report.build import build_document, print_build
    from outlay.report.console import Page
    from outlay.report.text import amounts_in

    if as_json:
        print_document(build_document(report, shown))
    else:
        with amounts_in(shown.name, shown.usd_per_unit):
            print_build(Page(), report, shown, sources=sources)
    return 0 if report.works else 3
