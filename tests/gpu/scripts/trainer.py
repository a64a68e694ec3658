"""BERT in bf16 by the Trainer of transformers."""

import tempfile

import torch
import transformers
from hand import Hand


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, _):
        words = torch.randint(30_000, (256,))
        return {"input_ids": words, "labels": words}


class Timed(transformers.TrainerCallback):
    def __init__(self):
        self.hand = Hand()

    def on_step_end(self, *_, **__):
        self.hand.step()


arguments = transformers.TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=128,
    bf16=True,
    max_steps=100_000,
    report_to=[],
    save_strategy="no",
    logging_steps=50,
    dataloader_num_workers=6,
    disable_tqdm=True,
)
model = transformers.BertForMaskedLM(transformers.BertConfig())
transformers.Trainer(model=model, args=arguments, train_dataset=Rows(), callbacks=[Timed()]).train()
