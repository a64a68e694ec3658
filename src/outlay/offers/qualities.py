"""What a provider is like besides its prices: facts that one may ask for, or be warned of."""

from __future__ import annotations

from collections.abc import Mapping

from outlay.offers.terms import Terms

_ACCESS = ("notebook", "container", "full machine")
"""What one gets, least first."""


def lacks(terms: Terms, wanted: Mapping[str, str]) -> str | None:
    """What a provider is known not to have of what is wanted, in words.

    What is not known of a provider is no reason against it. Notebooks have to be asked for.
    """
    access = terms.quality("access")
    least = wanted.get("access", "container")
    if access in _ACCESS and _ACCESS.index(access) < _ACCESS.index(least):
        asked = "" if "access" in wanted else ' (prefer.access = "notebook" takes them in)'
        return f"{terms.name} gives {_one(access)} only{asked}"
    for name, value in wanted.items():
        known = terms.quality(name)
        if name != "access" and known is not None and known != value:
            return f"{terms.name}: {name.replace('_', ' ')} is {known}, not {value}"
    return None


def _one(access: str) -> str:
    return f"a {access}"


def remarks(terms: Terms) -> list[str]:
    """What one should know of a provider before choosing it."""
    said = []
    if terms.quality("access") == "notebook":
        said.append("a notebook in the browser, packages installed anew each time")
    if terms.quality("quota") == "apply":
        said.append("GPU quota must be applied for before first use")
    if terms.quality("stops_itself") == "no":
        said.append("runs and costs until it is stopped by hand")
    if terms.quality("stop_keeps_disk") == "no":
        said.append("cannot be paused: what is not on its filesystem is lost at the end")
    if terms.quality("prepaid") == "yes":
        said.append("is paid beforehand")
    if terms.quality("driver_image") == "no":
        said.append("the driver is installed by hand")
    return said
