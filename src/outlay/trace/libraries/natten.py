"""Stand-ins of natten."""

from __future__ import annotations

from collections.abc import Mapping

STAND_INS: Mapping[str, Mapping[str, object]] = {}
