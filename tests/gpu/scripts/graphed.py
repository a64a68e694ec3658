"""ResNet-50 in bf16, the whole step captured in a CUDA graph."""

import torch
import torchvision
from hand import Hand

model = torchvision.models.resnet50().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
images = torch.randn(128, 3, 224, 224, device="cuda")
labels = torch.randint(1000, (128,), device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()


aside = torch.cuda.Stream()
aside.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(aside):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(aside)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
hand = Hand()
while True:
    graph.replay()
    hand.step()
