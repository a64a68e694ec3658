"""Fails in many ways, each of which prints its traceback; the last one ends the script.

fails.py: errors that pass through what the agent wraps, printed by Python itself, by `traceback`
and by a hook of the script's own, in threads and in workers of loaders.
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
    def forward(ctx, values):
        return values * 2

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("no gradient")


class Wrong(torch.optim.SGD):
    def step(self, closure=None):
        super().step()
        raise RuntimeError("no update")


class Odd(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, inputs):
        return self.layer(inputs)

    def train(self, mode=True):
        if not mode:
            raise AttributeError("no evaluation")
        return super().train(mode)


class Inner(torch.nn.Module):
    def train(self, mode=True):
        raise AttributeError("never evaluated")


model = Odd()
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


def save():
    torch.save(lambda: None, "nothing.pt")


def group():
    errors = []
    for action in (load, go_backward):
        try:
            action()
        except Exception as error:
            errors.append(error)
    raise ExceptionGroup("both", errors)


def evaluate():
    torch.nn.Sequential(torch.nn.Linear(1, 1), Inner()).eval()


ACTIONS = [
    load,
    lambda: load(1),
    go_backward,
    update,
    chain,
    group,
    save,
    evaluate,
    lambda: train(4),
    lambda: next(iter(DataLoader([]))),
    torch.no_grad()(lambda: train(5)),
]


def own_hook(kind, error, trace):
    sys.stderr.write("own hook\n")
    while trace is not None:
        sys.stderr.write(f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}\n")
        trace = trace.tb_next


def main():
    for _ in range(6):  # some of them recorded
        train()
        for action in ACTIONS:
            try:
                action()
            except Exception:
                traceback.print_exc()
        optimizer.zero_grad()
    try:
        load()
    except KeyError as error:
        own_hook(type(error), error, error.__traceback__)
    thread = threading.Thread(target=load, name="loads")
    thread.start()
    thread.join()
    chain()


if __name__ == "__main__":
    main()
