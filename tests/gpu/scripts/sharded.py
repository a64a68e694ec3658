"""ViT-B/16 in bf16 under fully_shard, one process started by torchrun."""

import os

import torch
import torchvision
from hand import Hand
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.distributed.init_process_group("nccl")
model = torchvision.models.vit_b_16().cuda()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
for block in model.encoder.layers:
    fully_shard(block, mp_policy=policy)
fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters())
images = torch.randn(256, 3, 224, 224, device="cuda")
labels = torch.randint(1000, (256,), device="cuda")
hand = Hand()
while True:
    loss = torch.nn.functional.cross_entropy(model(images).float(), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    hand.step()
