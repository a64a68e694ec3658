"""What goes into the user's training processes: counts steps, and stops them when told to.

Only the standard library and the script's own torch are used, in the syntax of Python 3.9: the
script may run in another Python than outlay. In a probed command it is loaded under the name
`_outlay_agent` by `probe/inject/sitecustomize.py`; in notebooks and callbacks it is imported as
`outlay.probe.agent`.

    imports     does something right after a module was imported
    channel     what is told to outlay (a file of lines), and what outlay asks for (a few numbers)
    watch       the steps of a process, and what happened since the last one
    optimizers  which there are, and what they hold
    holding     bytes that tensors take, and modules that no optimizer updates
    backward    backward passes, their losses, and updates made within them
    patching    functions replaced by ones that count, and put back
    gradless    time without gradients
    pausing     evaluations and checkpoints
    loaders     batches, and how long they were waited for
    epochs      which loaders are trained on, and when an epoch begins
    allocations what the allocator was asked for, where that is wanted
    device      the GPU's own clock, its memory
    cpu_queue   waiting for a CPU that others use
    phases      a profile of a few steps, and the operations of one
    ending      what is left to tell, and the way out
"""

from __future__ import annotations


def start(folder: str) -> None:
    """Wait for torch to be imported in this process, then watch it."""
    from .patches import after_import

    def begin(torch: object) -> None:
        from .channel import FileChannel
        from .step_watch import StepWatch

        watch = StepWatch(torch, FileChannel(folder))
        watch.install()

    after_import("torch", begin)
