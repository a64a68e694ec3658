"""A step timed by hand: warm up, synchronize, run many steps, synchronize; three series, median.

Where ALONG is set, series go on as long as the script does, and their median is kept: what the
script itself sees while it is probed (the last has the profile in it).
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch


class Hand:
    """Call `step` after each training step; where HAND names a file, it is written and we leave."""

    def __init__(self, warm_up=20, series_s=2.0, series=3):
        self.path, self.along = os.environ.get("HAND"), "ALONG" in os.environ
        self.warm_up, self.series_s, self.series = warm_up, series_s, series
        self.steps, self.first, self.started_s = 0, 0, 0.0
        self.times_s = []

    def step(self):
        if not self.path:
            return
        self.steps += 1
        counted = self.steps - self.first
        if self.steps == self.warm_up:
            self._begin()
        elif self.first and counted >= 8 and time.perf_counter() - self.started_s > self.series_s:
            torch.cuda.synchronize()
            self.times_s.append((time.perf_counter() - self.started_s) / counted)
            self._write()
            if not self.along and len(self.times_s) == self.series:
                sys.stdout.flush()
                os._exit(0)
            self._begin()

    def _begin(self):
        torch.cuda.synchronize()
        self.first, self.started_s = self.steps, time.perf_counter()

    def _write(self):
        result = {"step_s": statistics.median(self.times_s), "series_s": self.times_s}
        Path(self.path).write_text(json.dumps(result))
