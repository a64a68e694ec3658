"""GPT-2 in bf16 by accelerate, four passes of 32 a step."""

import accelerate
import torch
import transformers
from hand import Hand

accelerator = accelerate.Accelerator(mixed_precision="bf16", gradient_accumulation_steps=4)
model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
optimizer = torch.optim.AdamW(model.parameters())
words = torch.randint(50_000, (4096, 512))
loader = torch.utils.data.DataLoader(words, batch_size=32, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
hand = Hand(warm_up=8)
while True:
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(input_ids=batch, labels=batch).loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            hand.step()
