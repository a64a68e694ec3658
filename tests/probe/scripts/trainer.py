"""The Trainer of transformers, whose library looks for torch before it imports it.

With a third argument it evaluates after each so many steps.
"""

import sys

import transformers
import own_clock
import torch

torch.set_num_threads(1)
clock = own_clock.OwnClock()


class Net(transformers.PreTrainedModel):
    config_class = transformers.PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(32, 16)
        self.post_init()

    def forward(self, x=None, labels=None):
        own_clock.work(0.5)
        return {"loss": (self.layer(x) - labels).square().mean()}


class Steps(transformers.TrainerCallback):
    def on_optimizer_step(self, *_, **__):
        clock.step()


class Data(torch.utils.data.Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return {"x": torch.full((32,), float(index)), "labels": torch.zeros(16)}


evaluated = {"eval_strategy": "steps", "eval_steps": int(sys.argv[3])} if sys.argv[3:] else {}
transformers.Trainer(
    Net(transformers.PretrainedConfig()),
    transformers.TrainingArguments(
        sys.argv[2],
        use_cpu=True,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        max_steps=100_000,
        learning_rate=1e-6,
        logging_strategy="no",
        **evaluated,
    ),
    train_dataset=Data(4000),
    eval_dataset=Data(80),
    callbacks=[Steps()],
).train()
