"""Products of fp32 on a GPU: products.py matmul|conv|both [high|new|off].

high  torch.set_float32_matmul_precision("high")
new   the newer switch, torch.backends.cuda.matmul.fp32_precision = "tf32"
off   no TF32 at all: torch.backends.cudnn.allow_tf32 = False
"""

import sys

import torch

kind, switch = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
if switch == "high":
    torch.set_float32_matmul_precision("high")
elif switch == "new":
    torch.backends.cuda.matmul.fp32_precision = "tf32"
elif switch == "off":
    torch.backends.cudnn.allow_tf32 = False
linear = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(8))).cuda()
conv = torch.nn.Sequential(*(torch.nn.Conv2d(256, 256, 3, padding=1) for _ in range(8))).cuda()
optimizer = torch.optim.SGD([*linear.parameters(), *conv.parameters()], lr=1e-6)
rows = torch.randn(8192, 4096, device="cuda")
images = torch.randn(64, 256, 56, 56, device="cuda")
while True:
    loss = 0.0
    if kind in ("matmul", "both"):
        loss = loss + linear(rows).square().mean()
    if kind in ("conv", "both"):
        loss = loss + conv(images).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
