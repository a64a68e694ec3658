"""Fails in many ways, each of which prints its traceback; the last one ends the script.

Errors pass through what the agent wraps, in steps that are recorded and in others, and are printed
by Python itself, by `traceback` and by a hook of the script's own, in a thread and of a worker.
"""

import sys
import threading
import traceback

import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Broken(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 2:
            raise KeyError("no such sample")
        return torch.ones(3)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(_, values):
        return values * 2

    @staticmethod
    def backward(*_):
        raise ValueError("no gradient")


class Wrong(torch.optim.SGD):
    def step(self, _=None):
        super().step()
        raise RuntimeError("no update")


class Stubborn(torch.nn.Module):
    def train(self, mode=True):
        raise AttributeError(f"never {mode}")


model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(width=3):
    model(torch.ones(2, width)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def load(workers=0):
    for _ in DataLoader(Broken(), num_workers=workers):
        pass


def go_backward():
    Doubled.apply(torch.ones(1, requires_grad=True)).sum().backward()


def update():
    Wrong([torch.nn.Parameter(torch.ones(1))], lr=0.1).step()


def chain():
    try:
        load()
    except KeyError as error:
        raise RuntimeError("training failed") from error


def group():
    errors = []
    for action in (load, go_backward):
        try:
            action()
        except Exception as error:
            errors.append(error)
    raise ExceptionGroup("both", errors)


ACTIONS = [
    load,
    go_backward,
    update,
    chain,
    group,
    lambda: torch.save(lambda: None, "nothing.pt"),
    torch.nn.Sequential(Stubborn()).eval,
    lambda: train(4),
    lambda: torch.ones(2, 3) @ torch.ones(2, 3),
    lambda: next(iter(DataLoader([]))),
    torch.no_grad()(lambda: train(5)),
]


def print_frames(error):
    """As a hook of the script's own might."""
    trace = error.__traceback__
    while trace is not None:
        sys.stderr.write(f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}\n")
        trace = trace.tb_next


def main():
    for _ in range(3):  # the second is recorded
        train()
        for action in ACTIONS:
            try:
                action()
            except Exception as error:
                traceback.print_exc()
                print_frames(error)
    thread = threading.Thread(target=load, name="loads")
    thread.start()
    thread.join()
    load(1)


if __name__ == "__main__":
    main()
