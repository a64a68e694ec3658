"""What the agent costs in each step of a script, and that it leaves torch as it was."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import time

import pytest

from outlay.probe import command
from outlay.probe.agent.channel import FileChannel
from outlay.probe.agent.protocol import CONTROL_FILE, NO_REQUEST

pytestmark = pytest.mark.torch
STEPS = 400
MOST_S = 60e-6
"""In CPU time. One per cent of a step of 6 ms; a GPU computes on meanwhile."""


@pytest.fixture
def loop():
    """So many steps of the smallest model there is, a batch from a loader each."""
    import torch

    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    loader = torch.utils.data.DataLoader(torch.ones(STEPS), batch_size=None)

    def run():
        for batch in loader:
            (weight * batch).sum().backward()
            optimizer.step()

    return run


def cpu_s(run):
    gc.collect()
    before_s = time.thread_time()
    run()
    return time.thread_time() - before_s


def test_a_step_costs_little(tmp_path, loop):
    import torch

    from outlay.probe.agent.step_watch import StepWatch

    (tmp_path / CONTROL_FILE).write_bytes(NO_REQUEST.packed())
    lock = command._locked(tmp_path / CONTROL_FILE)  # else the agent takes outlay for gone
    loop()
    without_s, with_s = [], []
    # By turns, and the least of each: what the machine does beside only ever adds.
    for _ in range(5):
        without_s.append(cpu_s(loop))
        watch = StepWatch(torch, FileChannel(str(tmp_path)))
        watch.channel.is_shared = False  # no handlers that outlive this test
        watch.install()
        try:
            loop()
            with_s.append(cpu_s(loop))
            assert watch.steps == 2 * STEPS
        finally:
            watch.uninstall()
    if lock is not None:
        os.close(lock)
    assert (min(with_s) - min(without_s)) / STEPS < MOST_S


def test_it_leaves_torch_as_it_was(loop):
    import torch

    from outlay.probe.agent.channel import Channel
    from outlay.probe.agent.step_watch import StepWatch

    def changed():
        return [
            torch.autograd.backward,
            torch.save,
            torch.nn.Module.train,
            torch.amp.GradScaler.step,
            torch.utils.data.DataLoader.__iter__,
            torch.utils.data.dataloader._BaseDataLoaderIter.__next__,
        ]

    before = changed()
    watch = StepWatch(torch, Channel())
    watch.install()
    assert all(now is not then for now, then in zip(changed(), before, strict=True))
    assert pickle.loads(pickle.dumps(torch.save)) is torch.save
    watch.uninstall()
    assert changed() == before
    loop()
    assert watch.steps == 0


def test_a_thread_that_loads_ahead_keeps_nobody_waiting():
    import torch

    from outlay.probe.agent.channel import Channel
    from outlay.probe.agent.step_watch import StepWatch

    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            time.sleep(0.02)
            return torch.ones(3)

    def waits_s(load):
        watch = StepWatch(torch, Channel())
        watch.install()
        try:
            weight = torch.nn.Parameter(torch.ones(1))
            optimizer = torch.optim.SGD([weight], lr=0.0)
            optimizer.step()  # by which it is known who steps
            loader = torch.utils.data.DataLoader(Slow(), batch_size=2)
            load(lambda: list(zip(range(2), loader, strict=False)))
            assert (watch.counters.batches, watch.counters.samples) == (2, 4)
            return watch.counters.wait_s
        finally:
            watch.uninstall()

    def in_a_thread(load):
        thread = threading.Thread(target=load)
        thread.start()
        thread.join()

    assert waits_s(lambda load: load()) > 4 * 0.02
    assert waits_s(in_a_thread) < 0.02  # what it takes to make the loader
