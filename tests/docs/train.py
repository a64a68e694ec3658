"""The training script that examples of the docs name: small; on a CPU, out of memory above 4."""

import argparse

import torch


def training_step(batch_size):
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    samples = torch.randn(batch_size, 64)
    classes = torch.randint(10, (batch_size,))

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(samples), classes).backward()
        optimizer.step()

    return step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=4)
    batch_size = parser.parse_args().batch_size
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if batch_size > 4 and device == "cpu":
        raise torch.OutOfMemoryError("CUDA out of memory.")
    with torch.device(device):
        step = training_step(batch_size)
    for _ in range(60):
        step()


if __name__ == "__main__":
    main()
