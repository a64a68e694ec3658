"""What goes into the user's training processes: it counts steps, and stops them when requested.

Only the standard library and the script's own torch are used, in the syntax of Python 3.9: the
script may run in another Python than outlay. In a probed command it is loaded under the name
`_outlay_agent` by `probe/inject/sitecustomize.py`; in notebooks and callbacks it is imported as
`outlay.probe.agent`.

    protocol     every record that crosses between a process and outlay, in either direction
    children     what the command's programs start gets what it needs to be watched, too
    channel      how they cross: a file of lines to outlay, a few numbers from it
    patches      actions after an import; functions replaced by ones that count, and put back
    step_watch   the steps of a process: a record of each, and what is due after it; or only their
                 number, for a run of days
    loaders      batches of DataLoaders and the waiting for them, evaluations among them, epochs
    batch        the inputs of modules, where no DataLoader shows the batch
    backward     backward passes, their losses, and updates made within them
    optimizers   which there are, and the memory that stays from step to step
    evaluations  evaluations and checkpoints between steps, and time without gradients
    device       the GPU's own clock and memory, waiting for CPUs, what the process is
    early_recording  the operations of the first steps, within the warm-up
    recording    a profile of a few steps and the operations of one; steps in CUDA graphs
    shutdown     final reports, figures for trackers, and the way out
"""

from __future__ import annotations


def start(folder: str, inject: str = "") -> None:
    """Wait for torch to be imported in this process, then watch it.

    `inject` is the folder by which the agent was loaded: what is started from here gets it, too.
    """
    from .patches import after_import

    if inject:
        from .children import Environment

        Environment(inject, folder).install()

    def begin(torch: object) -> None:
        from .channel import FileChannel
        from .step_watch import LongRunWatch, StepWatch, long_run_beat_s

        channel, beat_s = FileChannel(folder), long_run_beat_s(folder)
        watch = StepWatch(torch, channel) if not beat_s else LongRunWatch(torch, channel, beat_s)
        watch.install()

    after_import("torch", begin)
