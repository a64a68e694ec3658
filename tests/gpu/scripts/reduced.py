"""ResNet-50 in bf16 and channels_last, model and optimizer compiled into CUDA graphs."""

import torch
import torchvision
from hand import Hand

model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
compiled = torch.compile(model, mode="reduce-overhead")
optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
update = torch.compile(optimizer.step)
images = torch.randn(256, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
labels = torch.randint(1000, (256,), device="cuda")
hand = Hand()
while True:
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(compiled(images), labels)
    loss.backward()
    update()
    optimizer.zero_grad()
    hand.step()
