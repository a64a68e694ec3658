"""`outlay probe --find-batch`: the largest batch for real."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from outlay.cli.options import live, tell
from outlay.errors import NotKnown

if TYPE_CHECKING:
    from outlay.probe.batches import BatchSearch
    from outlay.probe.hunt import Known
    from outlay.probe.run import Asking


def find(
    asking: Asking, argument: str, target: str | None, largest: int | None, json_path: str | None
) -> int:
    """Search, show and write what was found; the status to exit with."""
    from outlay.probe.find_batch import find_batch
    from outlay.report.batches import batches_document, print_batches
    from outlay.report.console import Page

    known = _known(target, largest, asking.memory_cap_mib)
    search = find_batch(asking, argument, known=known, show=live, tell=tell)
    trouble = None
    if json_path is not None:
        from outlay.cli.saving import saved
        from outlay.report.json import dumps

        data = (dumps(batches_document(search)) + "\n").encode()
        _, trouble = saved(data, Path(json_path), "search")
    print_batches(Page(to_stderr=True), search)
    if trouble is not None:
        raise trouble
    return _status_of(search)


def _status_of(search: BatchSearch) -> int:
    """0 with an answer, 3 where not one sample fits, 1 where the command fails by itself."""
    if search.is_interrupted:
        return 130
    if search.largest is not None:
        return 0
    return 3 if all(trial.outcome == "out of memory" for trial in search.trials) else 1


def _known(target: str | None, largest: int | None, cap_mib: int | None) -> Known:
    """What a trace says of the largest batch on the GPU at hand."""
    from outlay.probe.drivers import open_driver
    from outlay.probe.gpu_driver import NoDriver
    from outlay.probe.hunt import LARGEST, Known

    known = Known(largest=largest or LARGEST)
    if target is None:
        return known
    from outlay.trace.target import parse_target

    parse_target(target)  # a typo is told before anything runs
    driver = open_driver()
    if isinstance(driver, NoDriver):
        tell(f"The trace is not used: {driver}")
        return known
    from dataclasses import replace

    from outlay.gpu_names import find_gpu
    from outlay.placing import calibration
    from outlay.predict.memory import largest_batch
    from outlay.predict.step import Placement
    from outlay.trace.profile import profile_of
    from outlay.units import MIB

    tell(f"Tracing {target} ...")
    try:
        gpu = find_gpu(driver.devices[0].name).gpu
    except NotKnown as error:
        tell(f"The trace is not used: {error.what}")
        return known
    cap_bytes = None if cap_mib is None else float(cap_mib * MIB)
    room = Placement(gpu=gpu, memory_cap_bytes=cap_bytes).room
    predicted = largest_batch(profile_of(target), room, calibration())
    tell(f"By its trace the largest batch is {predicted}.")
    return replace(known, predicted=predicted or None)
