"""A loop in which something goes wrong: faulty.py CLOCK FAULT, after 30 steps where it matters.

Writes its process id to `pid`, and those of processes it leaves behind to `left`.
"""

import os
import signal
import sys
import threading
import time

import own_clock
import own_optimizer
import torch

torch.set_num_threads(1)
clock = own_clock.OwnClock()
fault = sys.argv[2]
weight = torch.nn.Parameter(torch.ones(10))
# Where outlay stops it within the optimizer's step, that is one of torch's.
is_stopped = fault in ("catches", "thread", "thread alone")
SGD = torch.optim.SGD if is_stopped else own_optimizer.PlainSGD
optimizer = SGD([weight], lr=1e-3)
inputs = torch.ones(4, 10)
with open("pid", "w") as file:
    file.write(str(os.getpid()))


class Hanging(torch.utils.data.Dataset):
    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        if index == 30:
            time.sleep(10**6)
        return torch.ones(10)


def step():
    own_clock.work()
    (inputs @ weight).square().sum().backward()
    optimizer.step()
    clock.step()


def go_wrong():
    if fault == "raises":
        raise ValueError("the loss went through the roof")
    if fault == "exits":
        sys.exit(7)
    if fault == "vanishes":
        os._exit(5)
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "leaves":
        leave_behind()
        sys.exit(0)


def leave_behind():
    """A child, and a daemon in a session of its own."""
    for is_daemon in (False, True):
        if os.fork() == 0:
            if is_daemon:
                os.setsid()
                if os.fork():
                    os._exit(0)
            with open("left", "a") as file:
                file.write(f"{os.getpid()}\n")
            time.sleep(10**6)
    time.sleep(0.5)


def train():
    for number in range(10**9):
        step()
        if number == 30:
            go_wrong()


def train_on():
    """Whatever happens, SystemExit included."""
    while True:
        try:
            train()
        except BaseException:
            with open("caught", "a") as file:
                file.write("x")


if __name__ == "__main__":
    if fault == "catches":
        train_on()
    elif fault == "thread":
        thread = threading.Thread(target=train)
        thread.start()
        try:
            thread.join()
            print("a model that is not finished is kept")
            sys.exit(3)
        finally:
            print("the thread has ended")
    elif fault == "thread alone":
        threading.Thread(target=train).start()
    elif fault == "hangs":
        for _ in torch.utils.data.DataLoader(Hanging(), batch_size=1, num_workers=1):
            step()
    elif fault == "no steps":
        (inputs @ weight).square().sum().backward()
    else:
        train()
