"""accelerate, with two batches a step."""

import accelerate
import own_clock
import torch

torch.set_num_threads(1)
clock = own_clock.OwnClock()
accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Linear(32, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
data = torch.utils.data.TensorDataset(torch.ones(4000, 32))
loader = torch.utils.data.DataLoader(data, batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
while True:
    for (inputs,) in loader:
        with accelerator.accumulate(model):
            own_clock.work(0.5)
            accelerator.backward(model(inputs).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            clock.step()
