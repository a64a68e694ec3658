"""A step of the reference workloads, over and over, at a batch size."""

import argparse
import importlib
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "reference" / "workloads" / "calibration"))
parser = argparse.ArgumentParser()
parser.add_argument("target")
parser.add_argument("--batch-size", type=int)
given = parser.parse_args()
module, _, function = given.target.partition(":")
with torch.device("cuda"):
    step = getattr(importlib.import_module(module), function)(given.batch_size)
while True:
    step()
