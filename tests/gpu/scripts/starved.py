"""ResNet-50 behind a loader that sleeps: the input is the limit."""

import time

import torch
import torchvision
from hand import Hand


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, number):
        time.sleep(0.01)
        return torch.randn(3, 224, 224), number % 1000


model = torchvision.models.resnet50().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
hand = Hand(warm_up=5)
for images, labels in torch.utils.data.DataLoader(Slow(), batch_size=32, num_workers=1):
    loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    hand.step()
