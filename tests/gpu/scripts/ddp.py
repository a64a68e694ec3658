"""ViT-B/16 in bf16 under DistributedDataParallel, started by torchrun."""

import os

import torch
import torchvision
from hand import Hand

torch.distributed.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
model = torchvision.models.vit_b_16().cuda()
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
images = torch.randn(128, 3, 224, 224, device="cuda")
labels = torch.randint(1000, (128,), device="cuda")
hand = Hand()
while True:
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    hand.step()
