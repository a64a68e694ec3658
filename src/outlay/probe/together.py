"""Ranks of one run that are each watched from inside: what the first asks for, all do.

Told through the store that torch's process group keeps anyway: no exchange between GPUs, no
waiting. Every rank looks there as often as it looks at its own steps.
"""

from __future__ import annotations

from typing import Any

from outlay.probe.agent.channel import ASKED, Asked


class Together:
    """The ranks of this process's group; by itself where there is none."""

    def __init__(self, torch: Any, number: int) -> None:
        group = torch.distributed
        has_group = group.is_available() and group.is_initialized()
        self.ranks: int = group.get_world_size() if has_group else 1
        self.leads: bool = not has_group or group.get_rank() == 0
        """Whether this rank decides."""
        self._key = f"outlay/asked/{number}"
        self._store: Any = None
        if self.ranks > 1:
            self._store = group.distributed_c10d._get_default_store()

    def tell(self, asked: Asked) -> None:
        """Tell the others what is asked for."""
        if self._store is not None:
            self._store.set(self._key, ASKED.pack(*asked))

    def heard(self) -> Asked | None:
        """What the first rank asks for; None as long as it asks for nothing."""
        if self._store is None or not self._store.check([self._key]):
            return None
        return Asked(*ASKED.unpack(self._store.get(self._key)))
