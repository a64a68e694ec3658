"""Pretrains a BERT encoder by masked language modelling, masks drawn anew for each batch."""

import argparse
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

PAD, CLS, SEP, MASK, FIRST = 0, 1, 2, 3, 5


class LineByLine(Dataset):
    """Lines of token ids of any length up to the longest that fits."""

    def __init__(self, path, vocab_size, max_length, lines, seed):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not os.path.exists(path):
            rng = np.random.default_rng(seed)
            with open(path, 'w') as f:
                for _ in range(512):
                    length = int(rng.integers(max_length // 2, max_length - 1))
                    f.write(json.dumps(((rng.zipf(1.4, length) - 1) % (vocab_size - FIRST) + FIRST).tolist()) + '\n')
        with open(path) as f:
            self.examples = [json.loads(line)[:max_length - 2] for line in f]
        self.lines = lines

    def __len__(self):
        return self.lines

    def __getitem__(self, i):
        return torch.tensor([CLS, *self.examples[i % len(self.examples)], SEP])


class DataCollatorForMLM:
    def __init__(self, vocab_size, max_length, probability=0.15):
        self.vocab_size, self.max_length, self.probability = vocab_size, max_length, probability

    def __call__(self, examples):
        ids = torch.full((len(examples), self.max_length), PAD)
        for row, example in zip(ids, examples):
            row[:len(example)] = example
        attention_mask = ids != PAD
        labels = ids.clone()
        masked = torch.bernoulli(torch.full(ids.shape, self.probability)).bool() & (ids >= FIRST)
        labels[~masked] = -100
        replaced = torch.bernoulli(torch.full(ids.shape, 0.8)).bool() & masked
        ids[replaced] = MASK
        swapped = torch.bernoulli(torch.full(ids.shape, 0.5)).bool() & masked & ~replaced
        ids[swapped] = torch.randint(FIRST, self.vocab_size, ids.shape)[swapped]
        return {'input_ids': ids, 'attention_mask': attention_mask, 'labels': labels}


class BertForMaskedLM(nn.Module):
    def __init__(self, args):
        super().__init__()
        h = args.hidden_size
        self.word, self.position = nn.Embedding(args.vocab_size, h, padding_idx=PAD), nn.Embedding(args.max_seq_length, h)
        self.LayerNorm, self.dropout = nn.LayerNorm(h, eps=1e-12), nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(h, args.heads, 4 * h, dropout=0.1, activation='gelu', batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, args.layers, enable_nested_tensor=False)
        self.transform = nn.Sequential(nn.Linear(h, h), nn.GELU(), nn.LayerNorm(h, eps=1e-12))
        self.bias = nn.Parameter(torch.zeros(args.vocab_size))
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, input_ids, attention_mask, labels=None):
        position = torch.arange(input_ids.size(1), device=input_ids.device)
        x = self.dropout(self.LayerNorm(self.word(input_ids) + self.position(position)))
        x = self.encoder(x, src_key_padding_mask=~attention_mask)
        logits = nn.functional.linear(self.transform(x), self.word.weight, self.bias)
        return nn.functional.cross_entropy(logits.view(-1, logits.size(-1)).float(), labels.view(-1)), logits


def get_linear_schedule_with_warmup(optimizer, warmup, total):
    def f(step):
        return step / max(1, warmup) if step < warmup else max(0.0, (total - step) / max(1, total - warmup))
    return LambdaLR(optimizer, f)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--data_dir', default='data/lines')
    parser.add_argument('--output_dir', default='out/bert')
    parser.add_argument('--vocab_size', type=int, default=30522)
    parser.add_argument('--hidden_size', type=int, default=768)
    parser.add_argument('--layers', type=int, default=12)
    parser.add_argument('--heads', type=int, default=12)
    parser.add_argument('--max_seq_length', type=int, default=512)
    parser.add_argument('--train_lines', type=int, default=100000)
    parser.add_argument('--validation_lines', type=int, default=512)
    parser.add_argument('--per_device_train_batch_size', type=int, default=8)
    parser.add_argument('--gradient_accumulation_steps', type=int, default=1)
    parser.add_argument('--learning_rate', type=float, default=1e-4)
    parser.add_argument('--weight_decay', type=float, default=0.01)
    parser.add_argument('--max_grad_norm', type=float, default=1.0)
    parser.add_argument('--num_train_epochs', type=int, default=3)
    parser.add_argument('--num_warmup_steps', type=int, default=100)
    parser.add_argument('--logging_steps', type=int, default=10)
    parser.add_argument('--checkpointing_steps', type=int, default=None)
    parser.add_argument('--resume_from_checkpoint', default=None)
    parser.add_argument('--num_workers', type=int, default=2)
    parser.add_argument('--bf16', action='store_true')
    parser.add_argument('--seed', type=int, default=42)
    args = parser.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    os.makedirs(args.output_dir, exist_ok=True)

    model = BertForMaskedLM(args).to(device)
    no_decay = ('bias', 'LayerNorm.weight', 'norm1.weight', 'norm2.weight')
    groups = [
        {'params': [p for n, p in model.named_parameters() if not n.endswith(no_decay)], 'weight_decay': args.weight_decay},
        {'params': [p for n, p in model.named_parameters() if n.endswith(no_decay)], 'weight_decay': 0.0},
    ]
    optimizer = AdamW(groups, lr=args.learning_rate)
    collate = DataCollatorForMLM(args.vocab_size, args.max_seq_length)
    shape = (args.vocab_size, args.max_seq_length)
    train_dataset = LineByLine(f'{args.data_dir}/train_{args.max_seq_length}.jsonl', *shape, args.train_lines, 0)
    eval_dataset = LineByLine(f'{args.data_dir}/eval_{args.max_seq_length}.jsonl', *shape, args.validation_lines, 1)
    train_dataloader = DataLoader(train_dataset, shuffle=True, collate_fn=collate, num_workers=args.num_workers,
                                  batch_size=args.per_device_train_batch_size)
    eval_dataloader = DataLoader(eval_dataset, collate_fn=collate, batch_size=args.per_device_train_batch_size)
    num_update_steps_per_epoch = math.ceil(len(train_dataloader) / args.gradient_accumulation_steps)
    max_train_steps = args.num_train_epochs * num_update_steps_per_epoch
    lr_scheduler = get_linear_schedule_with_warmup(optimizer, args.num_warmup_steps, max_train_steps)
    completed_steps = starting_epoch = 0
    if args.resume_from_checkpoint:
        state = torch.load(args.resume_from_checkpoint, map_location=device)
        model.load_state_dict(state['model'])
        optimizer.load_state_dict(state['optimizer'])
        lr_scheduler.load_state_dict(state['scheduler'])
        completed_steps, starting_epoch = state['step'], state['epoch']
    print('***** Running training *****')
    print(f'  Num examples = {len(train_dataset)}')
    print(f'  Total optimization steps = {max_train_steps}')

    for epoch in range(starting_epoch, args.num_train_epochs):
        model.train()
        for step, batch in enumerate(train_dataloader):
            batch = {k: v.to(device) for k, v in batch.items()}
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.bf16):
                loss, _ = model(**batch)
            (loss / args.gradient_accumulation_steps).backward()
            if (step + 1) % args.gradient_accumulation_steps == 0 or step == len(train_dataloader) - 1:
                torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
                completed_steps += 1
                if completed_steps % args.logging_steps == 0:
                    print(f'step {completed_steps}/{max_train_steps} loss {loss.item():.4f} '
                          f'lr {lr_scheduler.get_last_lr()[0]:.2e} mem {torch.cuda.max_memory_allocated() / 2**20:.0f}MiB')
                if args.checkpointing_steps and completed_steps % args.checkpointing_steps == 0:
                    torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'step': completed_steps,
                                'epoch': epoch, 'scheduler': lr_scheduler.state_dict()},
                               os.path.join(args.output_dir, f'step_{completed_steps}.pt'))
                    print(f'saved step_{completed_steps}')
        model.eval()
        losses = []
        for batch in eval_dataloader:
            with torch.no_grad():
                loss, _ = model(**{k: v.to(device) for k, v in batch.items()})
            losses.append(loss.repeat(len(batch['input_ids'])))
        eval_loss = torch.cat(losses).mean().item()
        print(f'epoch {epoch}: perplexity: {math.exp(min(eval_loss, 50)):.2f} eval_loss: {eval_loss:.4f}')
    torch.save(model.state_dict(), os.path.join(args.output_dir, 'pytorch_model.bin'))


if __name__ == '__main__':
    main()
