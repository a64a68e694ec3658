"""What CUDA libraries compute, where they are not installed or have no GPU.

A training script may import kernels that no machine without a GPU can build. While a step is
traced, `stand_ins` answers such imports; `fused` makes one operator of a shape and a cost. Each
other module is a family of kernels: a table `STAND_INS` of the names under which people call them.
"""
