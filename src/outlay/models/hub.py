"""Configs of models: in a folder, or of a hub, of which the config alone is fetched.

    read_config("./my-model")               config.json in a folder
    read_config("Qwen/Qwen3-8B")            fetched by huggingface_hub (HF_ENDPOINT, HF_TOKEN)

huggingface_hub keeps what it has fetched. With HF_HUB_OFFLINE or OUTLAY_OFFLINE nobody is asked.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outlay.errors import ExtraMissing, InputError, MissingCredentials, OutlayError, ProviderError
from outlay.files import parsed_json, read_data

CONFIG = ("config.json",)
_ADDRESS = "https://huggingface.co"
_REPOSITORY = re.compile(r"[\w.-]+(?:/[\w.-]+)?", re.ASCII)
_LARGEST_BYTES = 2**20
_TIMEOUT_S = 10.0
_BUNDLED = "Bundled models need none: `outlay recipe models` lists them."


def read_config(place: str, names: Sequence[str] = CONFIG) -> tuple[Mapping[str, Any], str]:
    """The config in a folder or a repository of the hub, and where it came from.

    `names` are the files to look for, the first that is there counts.
    """
    folder = Path(place).expanduser()
    if folder.is_dir():
        return _config_in(folder, names)
    if folder.is_file():
        return _parsed(folder, str(folder)), str(folder)
    if place.startswith((".", "~")) or not _REPOSITORY.fullmatch(place):
        raise InputError(
            f"There is no folder {place}.",
            fix=f"Name a folder with {names[-1]} in it, or a repository: hf:OWNER/NAME.",
        )
    path = _fetched(place, names)
    address = os.environ.get("HF_ENDPOINT") or _ADDRESS
    return _parsed(path, f"{path.name} of {place}"), f"{address.rstrip('/')}/{place}"


def _config_in(folder: Path, names: Sequence[str]) -> tuple[Mapping[str, Any], str]:
    for name in names:
        if (folder / name).is_file():
            return _parsed(folder / name, str(folder / name)), str(folder / name)
    raise InputError(
        f"There is no {' or '.join(names)} in {folder}.",
        why="A model is built of its config.",
        fix="Name the folder that `save_pretrained` wrote.",
    )


def _parsed(path: Path, what: str) -> Mapping[str, Any]:
    """The config in a file, checked to be one that can be written out as Python."""
    try:
        data = read_data(path)
        if len(data) > _LARGEST_BYTES:
            raise ValueError("It has more than 1 MiB.")
        content = parsed_json(data)
        if not isinstance(content, Mapping):
            raise ValueError("It is JSON, but no object with keys.")
        if not _is_finite(content):
            raise ValueError("It has a number that is none (NaN or Infinity).")
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{what} cannot be read as the config of a model.",
            why=str(error),
            fix=f"Check that {path} is complete; delete it where it was fetched, and try again.",
        ) from error
    return content


def _is_finite(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


# The hub


def _fetched(repository: str, names: Sequence[str]) -> Path:
    """The first of these files that a repository has, from the hub or as kept from before."""
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError as error:
        raise ExtraMissing(
            f"To read the config of {repository} needs huggingface_hub.",
            fix=f"pip install huggingface_hub, or give a folder. {_BUNDLED}",
        ) from error
    for name in names:
        try:
            path: str = huggingface_hub.hf_hub_download(
                repository,
                name,
                endpoint=os.environ.get("HF_ENDPOINT") or None,
                local_files_only=_is_offline() or not _answers(repository, name),
            )
        except errors.LocalEntryNotFoundError as error:  # an EntryNotFoundError as well
            raise _not_reached(repository, error) from error
        except errors.EntryNotFoundError:
            continue
        except errors.GatedRepoError as error:
            raise _gated(repository) from error
        except errors.RepositoryNotFoundError as error:
            raise _not_there(repository, error) from error
        except errors.HFValidationError as error:
            raise _not_there(repository, error) from error
        except Exception as error:
            if isinstance(error, OutlayError):
                raise
            raise _not_reached(repository, error) from error
        return Path(path)
    raise InputError(
        f"{repository} has no {' or '.join(names)}.",
        why="A model is built of its config.",
        fix="Name the repository of the model itself, not of a quantized or merged file of it.",
    )


def _answers(repository: str, name: str) -> bool:
    """Whether the hub answers at all, asked once: its own library tries for minutes.

    What it refuses is raised as the error of huggingface_hub; where it is out of reach, what was
    kept from before will do.
    """
    from huggingface_hub import errors, get_hf_file_metadata, hf_hub_url

    address = os.environ.get("HF_ENDPOINT") or None
    try:
        url = hf_hub_url(repository, name, endpoint=address)
        get_hf_file_metadata(url, timeout=_timeout_s(), endpoint=address)
    except (errors.HfHubHTTPError, errors.HFValidationError) as error:
        if getattr(getattr(error, "response", None), "status_code", 404) >= 500:
            return False
        raise
    except Exception:
        return False
    return True


def _is_offline() -> bool:
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "OUTLAY_OFFLINE")
    return any(os.environ.get(name, "").lower() in ("1", "true", "yes", "on") for name in names)


def _timeout_s() -> float:
    text = os.environ.get("HF_HUB_ETAG_TIMEOUT", "")
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else _TIMEOUT_S


def _gated(repository: str) -> MissingCredentials:
    return MissingCredentials(
        f"The hub gives the config of {repository} only to those it knows.",
        why="The repository is gated: its terms must be accepted once, on its page.",
        fix=f"Accept them, and set HF_TOKEN (or `hf auth login`). {_BUNDLED}",
    )


def _not_there(repository: str, error: Exception) -> InputError:
    return InputError(
        f"The hub has no repository {repository} that it shows without more rights.",
        why=_first_line(error),
        fix="Check its spelling (OWNER/NAME); a private one needs HF_TOKEN.",
    )


def _not_reached(repository: str, error: Exception) -> ProviderError:
    if _is_offline():
        return ProviderError(
            f"The config of {repository} was never fetched, and outlay is told to stay offline.",
            why="HF_HUB_OFFLINE or OUTLAY_OFFLINE is set.",
            fix=f"Unset it, or give a folder: hf:FOLDER. {_BUNDLED}",
        )
    address = os.environ.get("HF_ENDPOINT") or _ADDRESS
    return ProviderError(
        f"The config of {repository} could not be fetched from {address}.",
        why=_first_line(error),
        fix=f"Try again, or give a folder: hf:FOLDER. {_BUNDLED}",
    )


def _first_line(error: Exception) -> str:
    cause = error.__cause__ or error
    lines = str(cause).strip().splitlines() or [""]
    return f"{type(cause).__name__}: {lines[0][:200]}" if lines[0] else type(cause).__name__


def config_text(config: Mapping[str, Any]) -> str:
    """A config as JSON, as `data/model_configs/` has them."""
    return json.dumps(config, indent=1, sort_keys=True) + "\n"
