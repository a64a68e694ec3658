"""Sixty tiny layers: the host is the limit."""

import torch
from hand import Hand
from torch import nn

blocks = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(60)]
model = nn.Sequential(*blocks).cuda()
optimizer = torch.optim.AdamW(model.parameters())
inputs = torch.randn(8, 64, device="cuda")
hand = Hand(warm_up=200)
while True:
    model(inputs).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    hand.step()
