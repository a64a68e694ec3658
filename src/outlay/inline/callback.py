"""What callbacks share: a session that lasts as long as a fit, and what is done with its result."""

from __future__ import annotations

import sys
from pathlib import Path

from outlay.files import check_folder
from outlay.inline.block import check_above_zero, probe_limits
from outlay.measurement.measurement import Ending, Measurement
from outlay.probe.saving import save_measurement
from outlay.probe.session import Session
from outlay.report.console import Page
from outlay.report.probe import print_probe


class FitProbe:
    """Measures each fit it is part of; the last one's measurement stays.

    `steps`, `seconds`, `precision`, `batch_size`, `samples_per_step`, `price` (US dollars an hour),
    `stop` and `operations` are as in `outlay.probing`; `json` is where to write the measurement,
    `report` whether to print it. With several ranks, the first one prints and writes.
    """

    def __init__(
        self,
        *,
        steps: int | None = None,
        seconds: float | None = None,
        precision: float | None = None,
        batch_size: int | None = None,
        samples_per_step: int | None = None,
        price: float | None = None,
        stop: bool = False,
        operations: bool = True,
        json: Path | str | None = None,
        report: bool = True,
    ) -> None:
        super().__init__()
        self._limits = probe_limits(
            steps, seconds, precision, price, stop=stop, operations=operations
        )
        check_above_zero(batch_size=batch_size, samples_per_step=samples_per_step)
        self._batch_size = batch_size
        self._samples_per_step = samples_per_step
        if json is not None:
            check_folder(Path(json))
        self._json = json
        self._prints = report
        self._session: Session | None = None

    @property
    def measurement(self) -> Measurement:
        """The measurement of the last fit, once it has ended."""
        return (self._session or Session(self._limits)).measurement

    @property
    def is_running(self) -> bool:
        """Whether a fit is being watched."""
        return self._session is not None and self._session.is_running

    def close(self) -> None:
        """Stop watching, where a fit was left by an error that callbacks do not get."""
        if self._session is not None:
            self._session.end("failed", 1)

    def _start(self, batch_size: int | None = None) -> None:
        self.close()
        self._session = Session(
            self._limits,
            batch_size=self._batch_size or batch_size,
            samples_per_step=self._samples_per_step,
        )
        self._session.start()

    def _set_total_steps(self, steps: float) -> None:
        if self._session is not None and 0 < steps < float("inf"):
            self._session.total_steps = round(steps)

    @property
    def _wants_stop(self) -> bool:
        session = self._session
        return session is not None and session.is_done and not self._limits.to_end

    def _end(
        self, *, reports: bool, ending: Ending | None = None, status: int = 0
    ) -> dict[str, float]:
        """End the session; gives the numbers for loggers, none where nothing was measured.

        With `reports`, the measurement is written and printed, as the user has it.
        """
        session = self._session
        if session is None or not session.is_running:  # or `outlay probe` watches the process
            return {}
        session.end(ending or ("stopped" if self._wants_stop else "finished"), status)
        if reports:
            self._save_and_print(session)
        figures = session.figures.items()
        return {name: value for name, value in figures if not isinstance(value, str)}

    def _save_and_print(self, session: Session) -> None:
        saved_as = None
        if self._json is not None:  # after a long fit: elsewhere rather than not at all
            saved = save_measurement(session.measurement, Path(self._json), keep=True)
            saved_as = saved.path
            if saved.error is not None:
                sys.stderr.write(f"outlay: {saved.error}\n")
        if self._prints:
            print_probe(Page(), session.measurement, saved_as=saved_as, saved_by='json="OUT.json"')
