"""FCN in fp16 with a gradient scaler, evaluations and checkpoints (not while timed by hand)."""

import os
import tempfile
from pathlib import Path

import torch
import torchvision
from hand import Hand

model = torchvision.models.segmentation.fcn_resnet50(weights_backbone=None).cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-4)
scaler = torch.amp.GradScaler("cuda")
images = torch.randn(32, 3, 512, 512, device="cuda")
labels = torch.randint(21, (32, 512, 512), device="cuda")
folder = Path(tempfile.mkdtemp())
hand = Hand()
steps = 0
while True:
    with torch.autocast("cuda", torch.float16):
        loss = torch.nn.functional.cross_entropy(model(images)["out"], labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    steps += 1
    hand.step()
    if steps % 40 == 0 and "HAND" not in os.environ:
        model.eval()
        with torch.no_grad():
            for _ in range(10):
                model(images)
        model.train()
        torch.save(model.state_dict(), folder / "model.pt")
