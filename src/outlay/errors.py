"""Every error outlay raises; the command line prints its message and exits with its code.

    OutlayError                 exit 1   anything else
      InputError                exit 2   what the user wrote cannot be used
        NotKnown                exit 2   a name nobody knows, with the nearest ones
        FileNotWritten          exit 2   a file that was asked for cannot be written
      FactMissing               exit 2   a table has no value for what was asked
      NoOption                  exit 3   nothing satisfies the limits
      ExtraMissing              exit 4   an optional package or a service is not installed
      ProviderError             exit 5   a price source or provider failed
        MissingCredentials      exit 5   ... because no credentials are set
        PriceStoreFailed        exit 5   ... because what is kept of prices is out of reach
      TraceFailed               exit 2   the training step could not be traced
      ProbeFailed               exit 1   a probe gave no measurement
      LaunchFailed              exit 1   a run could not be started

A message has three parts: what, with the value; why; what to do next.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self


class OutlayError(Exception):
    """Base of all errors a user may meet: what happened, why, and what to do next."""

    exit_code = 1

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        self.what = what
        self.why = why
        self.fix = fix
        super().__init__(" ".join(part for part in (what, why, fix) if part))

    def at(self, place: str) -> Self:
        """The same error, with the place in a file where it comes from."""
        self.what = f"{place}: {self.what}"
        self.args = (" ".join(part for part in (self.what, self.why, self.fix) if part),)
        return self


class InputError(OutlayError):
    """What the user wrote (a file, a name, a number) cannot be used."""

    exit_code = 2


class NotKnown(InputError):
    """A name that is in no table, with the nearest names there are."""

    def __init__(self, noun: str, name: str, known: Iterable[str], *, fix: str = "") -> None:
        self.suggestions = _nearest(name, known)
        hint = f"Did you mean {_either(self.suggestions)}?" if self.suggestions else ""
        super().__init__(f"No {noun} is known as {name!r}.", why=hint, fix=fix)


class FileNotWritten(InputError):
    """A file that the user asked for cannot be written: no room, no right, no folder."""

    def __init__(self, path: object, error: OSError, *, fix: str = "") -> None:
        super().__init__(
            f"{path} cannot be written: {error.strerror or error}.",
            fix=fix or "Choose another place, or make room there.",
        )


class FactMissing(OutlayError):
    """A facts table has no value for what was asked."""

    exit_code = 2


class NoOption(OutlayError):
    """No option satisfies the limits: it does not fit, is over budget, or misses the deadline."""

    exit_code = 3


class ExtraMissing(OutlayError):
    """An optional package or a service is not installed."""

    exit_code = 4


def pip_command(extra: str) -> str:
    """The command that installs an extra of this outlay, from where it was installed."""
    root = Path(__file__).parents[2]
    if (root / "pyproject.toml").is_file():  # a clone, installed so that it can be edited
        return f'pip install -e "{root}[{extra}]"'
    return f'pip install "{_requirement(_installed_from(), extra)}"'


def _installed_from() -> dict[str, Any]:
    """What pip noted of a folder, a file or a repository that it installed outlay from."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        origin = json.loads(distribution("outlay").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return origin if isinstance(origin, dict) else {}


def _requirement(origin: Mapping[str, Any], extra: str) -> str:
    """What pip takes for outlay with an extra: its name, where it comes from an index."""
    from urllib.parse import unquote, urlsplit

    url, named = str(origin.get("url", "")), f"outlay[{extra}]"
    repository = origin.get("vcs_info")
    if isinstance(repository, dict):
        revision = repository.get("requested_revision") or repository.get("commit_id") or ""
        return f"{named} @ {repository.get('vcs', 'git')}+{url}{'@' if revision else ''}{revision}"
    path = Path(unquote(urlsplit(url).path))
    if url.startswith("file:") and path.exists():
        return f"{path}[{extra}]"
    return f"{named} @ {url}" if url and not url.startswith("file:") else named


class ProviderError(OutlayError):
    """A provider or a price source failed."""

    exit_code = 5


class MissingCredentials(ProviderError):
    """A provider cannot be asked because its credentials are not set."""


class PriceStoreFailed(ProviderError):
    """The file in which prices are kept cannot be read or written."""


class TraceFailed(OutlayError):
    """The user's training step could not be traced."""

    exit_code = 2


class ProbeFailed(OutlayError):
    """A probe ended without a measurement."""


class LaunchFailed(OutlayError):
    """A planned run could not be started."""


def _nearest(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Up to three known names like this one, whatever their case, spaces and dashes."""
    by_letters: dict[str, str] = {}
    for candidate in known:
        by_letters.setdefault(_letters(candidate), candidate)
    close = difflib.get_close_matches(_letters(name), by_letters, n=3, cutoff=0.6)
    return tuple(by_letters[letters] for letters in close)


def _letters(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def _either(names: tuple[str, ...]) -> str:
    quoted = [f'"{name}"' for name in names]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " or " + quoted[-1]
