"""Functions that launch kernels of a compiler that is only where a GPU is."""

from __future__ import annotations

from torch import nn


def swirl(x):
    raise RuntimeError("no driver to launch a kernel with")


class Swirl(nn.Module):
    def forward(self, x):
        raise RuntimeError("no driver to launch a kernel with")
