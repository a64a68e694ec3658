"""
Trains a character-level GPT to sort digits, with a Trainer that knows nothing of GPTs and calls back.
"""

import argparse
import math
import os
import pickle
import time
from collections import defaultdict

import torch
import torch.nn as nn
from torch.nn import functional as F
from torch.utils.data import Dataset
from torch.utils.data.dataloader import DataLoader


class SortDataset(Dataset):
    """Input: digits, then the same digits sorted. The model is asked for the second half only."""

    def __init__(self, split, length, num_digits):
        self.split = split
        self.length = length
        self.num_digits = num_digits

    def __len__(self):
        return 10000

    def get_vocab_size(self):
        return self.num_digits

    def get_block_size(self):
        return self.length * 2 - 1

    def __getitem__(self, idx):
        while True:
            inp = torch.randint(self.num_digits, size=(self.length,), dtype=torch.long)
            h = hash(pickle.dumps(inp.tolist()))
            if ('test' if h % 4 == 0 else 'train') == self.split:
                break
        sol = torch.sort(inp)[0]
        cat = torch.cat((inp, sol), dim=0)
        x = cat[:-1].clone()
        y = cat[1:].clone()
        y[:self.length - 1] = -1
        return x, y


class Attention(nn.Module):
    """Written out, with the matrix of weights in memory."""

    def __init__(self, n_embd, n_head, block_size, pdrop):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.attn_dropout = nn.Dropout(pdrop)
        self.resid_dropout = nn.Dropout(pdrop)
        self.register_buffer('bias', torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size))
        self.n_head = n_head

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in self.c_attn(x).split(C, dim=2))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float('-inf'))
        y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C)))


class NewGELU(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Block(nn.Module):
    def __init__(self, n_embd, n_head, block_size, pdrop):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd)
        self.attn = Attention(n_embd, n_head, block_size, pdrop)
        self.ln_2 = nn.LayerNorm(n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), NewGELU(), nn.Linear(4 * n_embd, n_embd), nn.Dropout(pdrop))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size, block_size, n_layer, n_head, n_embd, pdrop=0.1):
        super().__init__()
        self.block_size = block_size
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.drop = nn.Dropout(pdrop)
        self.h = nn.ModuleList([Block(n_embd, n_head, block_size, pdrop) for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device).unsqueeze(0)
        x = self.drop(self.wte(idx) + self.wpe(pos))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss

    def configure_optimizers(self, config):
        decay, no_decay = [], []
        for name, p in self.named_parameters():
            (decay if name.endswith('weight') and p.dim() >= 2 and 'wte' not in name and 'wpe' not in name
             else no_decay).append(p)
        groups = [{'params': decay, 'weight_decay': config.weight_decay}, {'params': no_decay, 'weight_decay': 0.0}]
        return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.95))

    @torch.no_grad()
    def generate(self, idx, max_new_tokens):
        for _ in range(max_new_tokens):
            logits, _ = self(idx[:, -self.block_size:])
            idx = torch.cat((idx, logits[:, -1, :].argmax(dim=-1, keepdim=True)), dim=1)
        return idx


class Trainer:
    def __init__(self, config, model, train_dataset):
        self.config = config
        self.model = model
        self.optimizer = None
        self.train_dataset = train_dataset
        self.callbacks = defaultdict(list)
        self.device = 'cuda' if torch.cuda.is_available() else 'cpu'
        self.model = self.model.to(self.device)
        print('running on device', self.device)
        self.iter_num = 0
        self.iter_time = 0.0
        self.iter_dt = 0.0

    def add_callback(self, onevent, callback):
        self.callbacks[onevent].append(callback)

    def set_callback(self, onevent, callback):
        self.callbacks[onevent] = [callback]

    def trigger_callbacks(self, onevent):
        for callback in self.callbacks.get(onevent, []):
            callback(self)

    def run(self):
        model, config = self.model, self.config
        self.optimizer = model.configure_optimizers(config)
        train_loader = DataLoader(
            self.train_dataset,
            sampler=torch.utils.data.RandomSampler(self.train_dataset, replacement=True, num_samples=config.num_samples),
            shuffle=False,
            pin_memory=torch.cuda.is_available(),
            batch_size=config.batch_size,
            num_workers=config.num_workers,
        )
        model.train()
        self.iter_num = 0
        self.iter_time = time.time()
        data_iter = iter(train_loader)
        while True:
            # fetch the next batch (x, y) and re-init iterator if needed
            try:
                batch = next(data_iter)
            except StopIteration:
                data_iter = iter(train_loader)
                batch = next(data_iter)
            batch = [t.to(self.device) for t in batch]
            x, y = batch

            logits, self.loss = model(x, y)
            model.zero_grad(set_to_none=True)
            self.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_norm_clip)
            self.optimizer.step()

            self.trigger_callbacks('on_batch_end')
            self.iter_num += 1
            tnow = time.time()
            self.iter_dt = tnow - self.iter_time
            self.iter_time = tnow
            if config.max_iters is not None and self.iter_num >= config.max_iters:
                break


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--work-dir', default='out/sorter')
    parser.add_argument('--length', type=int, default=6)
    parser.add_argument('--num-digits', type=int, default=3)
    parser.add_argument('--n-layer', type=int, default=3)
    parser.add_argument('--n-head', type=int, default=3)
    parser.add_argument('--n-embd', type=int, default=48)
    parser.add_argument('--num-workers', type=int, default=4)
    parser.add_argument('--num-samples', type=int, default=int(1e10))
    parser.add_argument('--max-iters', type=int, default=None)
    parser.add_argument('--batch-size', type=int, default=64)
    parser.add_argument('--learning-rate', type=float, default=5e-4)
    parser.add_argument('--weight-decay', type=float, default=0.1)
    parser.add_argument('--grad-norm-clip', type=float, default=1.0)
    parser.add_argument('--log-every', type=int, default=10)
    parser.add_argument('--eval-every', type=int, default=200)
    config = parser.parse_args()

    torch.manual_seed(3407)
    train_dataset = SortDataset('train', config.length, config.num_digits)
    test_dataset = SortDataset('test', config.length, config.num_digits)
    model = GPT(train_dataset.get_vocab_size(), train_dataset.get_block_size(),
                config.n_layer, config.n_head, config.n_embd)
    trainer = Trainer(config, model, train_dataset)

    def eval_split(trainer, split, max_batches):
        dataset = {'train': train_dataset, 'test': test_dataset}[split]
        n = config.length
        loader = DataLoader(dataset, batch_size=20, num_workers=0, drop_last=False)
        correct = total = 0
        for b, (x, _) in enumerate(loader):
            inp = x[:, :n].to(trainer.device)
            cat = model.generate(inp, n)
            correct += (cat[:, n:] == torch.sort(inp)[0]).all(1).sum().item()
            total += inp.size(0)
            if b + 1 >= max_batches:
                break
        print(f'{split} final score: {correct}/{total}')
        return correct

    top_score = 0

    def batch_end_callback(trainer):
        global top_score
        if trainer.iter_num % config.log_every == 0:
            mem = torch.cuda.max_memory_allocated() / 2**20
            print(f'iter_dt {trainer.iter_dt * 1000:.2f}ms; iter {trainer.iter_num}: '
                  f'train loss {trainer.loss.item():.5f}; mem {mem:.0f}MiB')
        if (trainer.iter_num + 1) % config.eval_every == 0:
            model.eval()
            score = sum(eval_split(trainer, split, max_batches=2) for split in ('train', 'test'))
            if score >= top_score:
                top_score = score
                os.makedirs(config.work_dir, exist_ok=True)
                print(f'saving model with new top score of {score}')
                torch.save(model.state_dict(), os.path.join(config.work_dir, 'model.pt'))
            model.train()

    trainer.set_callback('on_batch_end', batch_end_callback)
    trainer.run()
