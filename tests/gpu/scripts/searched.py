"""Convolutions with `cudnn.benchmark`, whose search takes more memory than any step needs.

Where HAND names a file, it writes what torch had at most in the first steps, and in later ones
after a reset of the peaks, and leaves. Where PEAKS names one, it goes on, and writes in every
twentieth step what torch tells it of the whole run.
"""

import json
import os
import sys
from pathlib import Path

import torch

torch.backends.cudnn.benchmark = True
torch.manual_seed(0)
cuda = torch.cuda
channels = 192
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, channels, 3, padding=1),
    *(
        part
        for _ in range(4)
        for part in (torch.nn.ReLU(), torch.nn.Conv2d(channels, channels, 3, padding=1))
    ),
    torch.nn.ReLU(),
    torch.nn.ConvTranspose2d(channels, 3, 5, padding=2),
).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
images = torch.randn(16, 3, 256, 256, device="cuda")
step = 0
while True:
    model(images).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    if "HAND" in os.environ and step == 20:
        cuda.synchronize()
        whole = {"allocated": cuda.max_memory_allocated(), "reserved": cuda.max_memory_reserved()}
        cuda.reset_peak_memory_stats()
    if "HAND" in os.environ and step == 40:
        cuda.synchronize()
        later = {"allocated": cuda.max_memory_allocated(), "reserved": cuda.memory_reserved()}
        Path(os.environ["HAND"]).write_text(json.dumps({"whole": whole, "later": later}))
        sys.exit(0)
    if "PEAKS" in os.environ and step % 20 == 0:
        peaks = {"allocated": cuda.max_memory_allocated(), "reserved": cuda.max_memory_reserved()}
        Path(os.environ["PEAKS"]).write_text(json.dumps(peaks))
