"""ResNet-50 in bf16 and channels_last, compiled."""

import torch
import torchvision
from hand import Hand

model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
images = torch.randn(256, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
labels = torch.randint(1000, (256,), device="cuda")
hand = Hand()
while True:
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(compiled(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    hand.step()
