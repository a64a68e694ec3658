"""A classifier as people write it: options, a loader, evaluation, checkpoints, a log."""

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--out", default="runs")
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"


class Vectors(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((64,), float(index)), index % 10


os.makedirs(args.out, exist_ok=True)
log = open(os.path.join(args.out, "log.txt"), "w")
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Vectors(), args.batch_size, shuffle=True, num_workers=2, drop_last=True)
held_out = DataLoader(Vectors(), 4)
for epoch in range(2):
    model.train()
    for inputs, labels in loader:
        inputs, labels = inputs.to(device), labels.to(device)
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.write(f"{loss:.4f}\n")
    model.eval()
    with torch.no_grad():
        right = sum((model(x.to(device)).argmax(1).cpu() == y).sum().item() for x, y in held_out)
    os.remove(os.path.join(args.out, "log.txt"))
    torch.save(model.state_dict(), os.path.join(args.out, f"{epoch}.pt"))
    print(f"epoch {epoch}: {right} right")
