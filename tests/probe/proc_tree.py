"""A folder that looks like /proc and /sys, as far as outlay reads them."""

from __future__ import annotations

import os
from pathlib import Path

from outlay.probe.system import Roots

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class FakeKernel:
    def __init__(self, folder: Path) -> None:
        self.roots = Roots(proc=folder / "proc", sys=folder / "sys")
        self.roots.proc.mkdir()
        (self.roots.sys / "block").mkdir(parents=True)

    def write(self, name: str, text: str) -> None:
        path = self.roots.proc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def process(self, pid, *, parent=1, session=1, group=1, cpu=0, dead=0, pages=10, born=100):
        """`cpu` and `dead` in ticks, half of them in the kernel."""
        user, system = cpu - cpu // 2, cpu // 2
        fields = ["S", parent, group, session, 0, -1, 0, 0, 0, 0, 0, user, system, dead, 0]
        fields += [20, 0, 1, 0, born, 5_000_000, pages, 2**64 - 1, 0, 0]
        self.write(f"{pid}/stat", f"{pid} (pt main) (x) {' '.join(map(str, fields))}\n")

    def end(self, pid: int) -> None:
        for path in (self.roots.proc / str(pid)).iterdir():
            path.unlink()
        (self.roots.proc / str(pid)).rmdir()

    def shares(self, pid: int, *, rss_kb: int, pss_kb: int) -> None:
        head = "55d1-7ffc ---p 00000000 00:00 0      [rollup]\n"
        text = f"Rss:     {rss_kb} kB\nPss:    {pss_kb} kB\nPss_Dirty:    1 kB\n"
        self.write(f"{pid}/smaps_rollup", head + text)

    def disk(self, name: str, *, is_real: bool = True) -> None:
        (self.roots.sys / "block" / name).mkdir()
        if is_real:
            (self.roots.sys / "block" / name / "device").mkdir()

    def counters(self, *, cpu="0 0 0 0 0 0 0 0 0 0", swapped=(0, 0), disks=()) -> None:
        """Disks: name, sectors read, milliseconds with work."""
        self.write("stat", f"cpu  {cpu}\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 5\n")
        self.write("vmstat", f"nr_free 7\npswpin {swapped[0]}\npswpout {swapped[1]}\n")
        rows = (f" 254 0 {name} 9 9 {read} 9 9 9 9 9 0 {busy} 9\n" for name, read, busy in disks)
        self.write("diskstats", "".join(rows))
