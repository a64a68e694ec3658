"""What is there and what is missing: extras, sources that answer, keys, and how old prices are."""

from __future__ import annotations

import importlib.metadata
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from outlay.currency import usd_per_unit
from outlay.errors import OutlayError, ProviderError, pip_command
from outlay.files import data_folder
from outlay.offers.price_book import PriceBook
from outlay.prices import gpuhunt_catalog, own_lists, skypilot, spot_advisor, vast
from outlay.prices.price_store import Attempt, PriceStore
from outlay.units import days_between

Answers = Callable[[str], None]
"""Asks an address and reads nothing of the reply; a `ProviderError` where it does not answer."""

EXTRAS: Mapping[str, tuple[str, str]] = {
    "torch": ("torch", "tracing and probing your own code"),
    "matplotlib": ("plot", "pictures as .png"),
    "apprise": ("notify", "messages when a price falls"),
    "nvidia-ml-py": ("nvidia", "memory, power and use of NVIDIA GPUs in a probe"),
    "amdsmi": ("amd", "the same of AMD GPUs"),
}
"""Packages that outlay can do without: the extra that brings each, and what it is for."""
PROGRAMS: Mapping[str, str] = {
    "nvidia-smi": "NVIDIA's driver: a GPU of this machine can be probed",
    "rocm-smi": "AMD's driver: a GPU of this machine can be probed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A package or a program, and what it is for."""

    name: str
    version: str | None
    """None where it is not there; empty where it does not say."""
    purpose: str
    fix: str | None
    """The command that installs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """Whether a price source answers."""

    source: str
    address: str
    answers: bool | None
    """None where nobody was asked."""
    seconds: float | None
    reason: str | None
    """Why it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAge:
    """How old the prices are that plans use of one provider."""

    provider: str
    as_of: str
    """The day of the middle one of its offers."""
    newest: str
    age_days: int
    """Of the middle one."""
    offers: int
    last_attempts: tuple[Attempt, ...]
    """Of each source that was asked about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStatus:
    """Whether what a provider asks for is set; never its value."""

    provider: str
    missing: str | None
    """The variable that is not set; None where all are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUp:
    """Everything `outlay check` shows."""

    version: str
    data_folder: str
    kept_bytes: int | None
    """Of refreshed prices and their history; None where nothing was refreshed."""
    installed: tuple[Installed, ...]
    sources: tuple[SourceStatus, ...]
    providers: tuple[ProviderAge, ...]
    keys: tuple[KeyStatus, ...]
    rates_as_of: str | None
    """The day of the newest exchange rate."""
    own_lists: tuple[str, ...]


def set_up(
    version: str,
    prices: PriceBook,
    today: str,
    answers: Answers | None,
    warn: Callable[[str], None],
) -> SetUp:
    """What is there and what is missing. `answers`: None asks nobody."""
    store = PriceStore()
    try:
        with store as kept:
            attempts = kept.attempts()
    except OutlayError as error:
        warn(str(error))
        attempts = []
    return SetUp(
        version=version,
        data_folder=str(data_folder()),
        kept_bytes=_size(store.path),
        installed=tuple(installed()),
        sources=tuple(source_statuses(answers)),
        providers=tuple(provider_ages(prices, attempts, today)),
        keys=tuple(key_statuses()),
        rates_as_of=_rates_day(),
        own_lists=tuple(_own_list_names(today)),
    )


def installed() -> Iterable[Installed]:
    """Packages and programs that outlay can do without."""
    for package, (extra, purpose) in EXTRAS.items():
        yield Installed(
            name=package,
            version=_version(package),
            purpose=purpose,
            fix=pip_command(extra),
        )
    for program, purpose in PROGRAMS.items():
        there = "" if shutil.which(program) else None
        yield Installed(name=program, version=there, purpose=purpose, fix=None)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def source_addresses() -> Mapping[str, str]:
    """An address of each source that tells whether it answers."""
    return {
        "skypilot": skypilot.check_address(),
        "gpuhunt": gpuhunt_catalog.check_address(),
        "vast": vast.address(),
        "spot-advisor": spot_advisor.address(),
        "rates": own_lists.rates_address(),
    }


def source_statuses(answers: Answers | None) -> list[SourceStatus]:
    """Whether each source answers, all asked at once."""
    addresses = source_addresses()
    with ThreadPoolExecutor(len(addresses)) as threads:
        return list(threads.map(lambda name: _status(name, addresses[name], answers), addresses))


def _status(source: str, address: str, answers: Answers | None) -> SourceStatus:
    from outlay.prices.download import redacted

    shown = redacted(address)
    if answers is None:
        return SourceStatus(source=source, address=shown, answers=None, seconds=None, reason=None)
    started_s, reason = time.monotonic(), None
    try:
        answers(address)
    except ProviderError as error:
        reason = error.why or error.what
    seconds = time.monotonic() - started_s
    return SourceStatus(
        source=source,
        address=shown,
        answers=reason is None,
        seconds=seconds if reason is None else None,
        reason=reason,
    )


def provider_ages(
    prices: PriceBook, attempts: Iterable[Attempt], today: str
) -> Iterable[ProviderAge]:
    """How old the prices of each provider are, oldest first."""
    days: dict[str, list[str]] = {}
    for offer in prices.offers_on(today):
        days.setdefault(offer.provider, []).append(offer.as_of)
    middle = {
        provider: sorted(of_offers)[len(of_offers) // 2] for provider, of_offers in days.items()
    }
    by_provider: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        by_provider.setdefault(attempt.provider, []).append(attempt)
    return [
        ProviderAge(
            provider=provider,
            as_of=day,
            newest=max(days[provider]),
            age_days=max(days_between(day, today), 0),
            offers=len(days[provider]),
            last_attempts=tuple(by_provider.get(provider, ())),
        )
        for provider, day in sorted(middle.items(), key=lambda item: (item[1], item[0]))
    ]


def key_statuses() -> Iterable[KeyStatus]:
    """Providers that are asked directly, and the key that is missing for it."""
    for provider in gpuhunt_catalog.live_providers():
        try:
            missing = gpuhunt_catalog.missing_variable(provider)
        except OutlayError:
            continue
        yield KeyStatus(provider=provider, missing=missing)


def _rates_day() -> str | None:
    try:
        return usd_per_unit("EUR")[1] or None
    except OutlayError:
        return None


def _own_list_names(today: str) -> list[str]:
    return [kept.name for kept in own_lists.kept_summaries(today)]


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None
