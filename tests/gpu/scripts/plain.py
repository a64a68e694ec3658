"""ResNet-50 in bf16, a plain loop: the GPU is the limit."""

import torch
import torchvision
from hand import Hand

model = torchvision.models.resnet50().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
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
