"""ViT-B/16 in bf16: blocks that recompute (reentrant), each parameter updated within backward."""

import torch
import torchvision
from hand import Hand
from torch.utils.checkpoint import checkpoint

model = torchvision.models.vit_b_16().cuda()
for block in model.encoder.layers:
    block.forward = lambda x, forward=block.forward: checkpoint(forward, x, use_reentrant=True)
optimizers = {p: torch.optim.AdamW([p], fused=True) for p in model.parameters()}


def update(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in optimizers:
    parameter.register_post_accumulate_grad_hook(update)
images = torch.randn(384, 3, 224, 224, device="cuda")
labels = torch.randint(1000, (384,), device="cuda")
hand = Hand()
while True:
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    hand.step()
