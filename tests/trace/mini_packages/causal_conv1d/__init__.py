"""A package of a known name that is installed, and whose kernels need a GPU."""

from causal_conv1d.causal_conv1d_interface import causal_conv1d_fn

__all__ = ["causal_conv1d_fn"]
