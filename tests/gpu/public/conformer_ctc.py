"""Speech recognition: log-mel features with SpecAugment, a Conformer encoder and CTC."""

import argparse
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler


class Utterances(Dataset):
    """Noise of a length, and as many words as fit in; sorted by length as corpora are."""

    def __init__(self, folder, count, longest, mels, vocab, seed):
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f'features_{mels}_{longest}.npy')
        if not os.path.exists(path):
            np.save(path, np.random.default_rng(0).standard_normal((16, longest, mels), dtype=np.float32))
        self.features = np.load(path, mmap_mode='r')
        rng = np.random.default_rng(seed)
        self.lengths = np.sort(rng.integers(longest * 7 // 8, longest + 1, count))
        self.vocab, self.count = vocab, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        length = int(self.lengths[i])
        feats = torch.from_numpy(self.features[i % 16, :length].copy())
        return feats, torch.from_numpy(rng.integers(1, self.vocab, max(length // 16, 1)))


class BucketSampler(Sampler):
    """Batches of neighbours in length, in any order."""

    def __init__(self, count, batch_size):
        self.batches = [list(range(i, min(i + batch_size, count))) for i in range(0, count, batch_size)]

    def __iter__(self):
        return iter([self.batches[i] for i in torch.randperm(len(self.batches)).tolist()])

    def __len__(self):
        return len(self.batches)


def collate(batch):
    feats, tokens = zip(*batch)
    return (nn.utils.rnn.pad_sequence(feats, batch_first=True), torch.tensor([len(f) for f in feats]),
            nn.utils.rnn.pad_sequence(tokens, batch_first=True), torch.tensor([len(t) for t in tokens]))


def spec_augment(x, freq=27, time_width=40):
    x = x.clone()
    for _ in range(2):
        f0, t0 = int(torch.randint(x.size(2), ())), int(torch.randint(x.size(1), ()))
        x[:, :, f0:f0 + int(torch.randint(min(freq, x.size(2)), ()))] = 0
        x[:, t0:t0 + int(torch.randint(min(time_width, x.size(1)), ())), :] = 0
    return x


class FeedForward(nn.Sequential):
    def __init__(self, d, dropout):
        super().__init__(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.SiLU(), nn.Dropout(dropout), nn.Linear(4 * d, d), nn.Dropout(dropout))


class ConvModule(nn.Module):
    def __init__(self, d, kernel, dropout):
        super().__init__()
        self.norm, self.pointwise1 = nn.LayerNorm(d), nn.Conv1d(d, 2 * d, 1)
        self.depthwise, self.bn = nn.Conv1d(d, d, kernel, padding=kernel // 2, groups=d), nn.BatchNorm1d(d)
        self.pointwise2, self.dropout = nn.Conv1d(d, d, 1), nn.Dropout(dropout)

    def forward(self, x, pad):
        x = F.glu(self.pointwise1(self.norm(x).transpose(1, 2)), dim=1).masked_fill(pad[:, None], 0)
        return self.dropout(self.pointwise2(F.silu(self.bn(self.depthwise(x)))).transpose(1, 2))


class ConformerLayer(nn.Module):
    def __init__(self, d, heads, kernel, dropout):
        super().__init__()
        self.ff1, self.ff2 = FeedForward(d, dropout), FeedForward(d, dropout)
        self.norm_att, self.att = nn.LayerNorm(d), nn.MultiheadAttention(d, heads, dropout=dropout, batch_first=True)
        self.conv, self.norm = ConvModule(d, kernel, dropout), nn.LayerNorm(d)

    def forward(self, x, pad):
        x = x + 0.5 * self.ff1(x)
        h = self.norm_att(x)
        x = x + self.att(h, h, h, key_padding_mask=pad, need_weights=False)[0]
        x = x + self.conv(x, pad)
        return self.norm(x + 0.5 * self.ff2(x))


class Conformer(nn.Module):
    def __init__(self, mels, d, layers, heads, vocab, kernel=31, dropout=0.1):
        super().__init__()
        self.subsample = nn.Sequential(nn.Conv2d(1, d, 3, 2, 1), nn.ReLU(), nn.Conv2d(d, d, 3, 2, 1), nn.ReLU())
        self.linear = nn.Linear(d * math.ceil(math.ceil(mels / 2) / 2), d)
        self.layers = nn.ModuleList(ConformerLayer(d, heads, kernel, dropout) for _ in range(layers))
        self.ctc = nn.Linear(d, vocab)

    def forward(self, x, lengths):
        x = self.subsample(x.unsqueeze(1))
        x = self.linear(x.transpose(1, 2).flatten(2))
        lengths = ((lengths + 1) // 2 + 1) // 2
        pad = torch.arange(x.size(1), device=x.device)[None] >= lengths[:, None]
        for layer in self.layers:
            x = layer(x, pad)
        return F.log_softmax(self.ctc(x).float(), dim=-1), lengths


def noam(step, warmup, d):
    return d ** -0.5 * min((step + 1) ** -0.5, (step + 1) * warmup ** -1.5)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--data', default='data/speech')
    parser.add_argument('--exp', default='exp/conformer')
    parser.add_argument('--utterances', type=int, default=28000)
    parser.add_argument('--longest', type=int, default=1600, help='frames of 10 ms')
    parser.add_argument('--mels', type=int, default=80)
    parser.add_argument('--d-model', type=int, default=512)
    parser.add_argument('--layers', type=int, default=12)
    parser.add_argument('--heads', type=int, default=8)
    parser.add_argument('--vocab', type=int, default=500)
    parser.add_argument('--batch-size', type=int, default=32)
    parser.add_argument('--accum-grad', type=int, default=1)
    parser.add_argument('--max-epoch', type=int, default=50)
    parser.add_argument('--warmup', type=int, default=10000)
    parser.add_argument('--grad-clip', type=float, default=5.0)
    parser.add_argument('--workers', type=int, default=4)
    parser.add_argument('--log-interval', type=int, default=10)
    parser.add_argument('--use-amp', action='store_true')
    parser.add_argument('--checkpoint', default='')
    args = parser.parse_args()

    torch.manual_seed(777)
    os.makedirs(args.exp, exist_ok=True)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    sizes = (args.longest, args.mels, args.vocab)
    train_set = Utterances(args.data, args.utterances, *sizes, 0)
    cv_set = Utterances(args.data, max(args.utterances // 50, args.batch_size), *sizes, 1)
    train_loader = DataLoader(train_set, batch_sampler=BucketSampler(len(train_set), args.batch_size), collate_fn=collate,
                              num_workers=args.workers, pin_memory=torch.cuda.is_available())
    cv_loader = DataLoader(cv_set, batch_size=args.batch_size, collate_fn=collate)
    model = Conformer(args.mels, args.d_model, args.layers, args.heads, args.vocab).to(device)
    if args.checkpoint:
        model.load_state_dict(torch.load(args.checkpoint, map_location=device))
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: noam(s, args.warmup, args.d_model))
    ctc_loss = nn.CTCLoss(blank=0, reduction='sum', zero_infinity=True)
    scaler = torch.amp.GradScaler('cuda', enabled=args.use_amp)
    for epoch in range(args.max_epoch):
        model.train()
        start = time.time()
        for batch_idx, (feats, feat_lengths, tokens, token_lengths) in enumerate(train_loader):
            feats, feat_lengths = spec_augment(feats.to(device)), feat_lengths.to(device)
            tokens, token_lengths = tokens.to(device), token_lengths.to(device)
            with torch.autocast(device.type, enabled=args.use_amp):
                log_probs, out_lengths = model(feats, feat_lengths)
            loss = ctc_loss(log_probs.transpose(0, 1), tokens, out_lengths, token_lengths) / len(feats) / args.accum_grad
            scaler.scale(loss).backward()
            if (batch_idx + 1) % args.accum_grad == 0:
                scaler.unscale_(optimizer)
                grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
                scaler.step(optimizer)
                scaler.update()
                scheduler.step()
                optimizer.zero_grad()
            if batch_idx % args.log_interval == 0:
                print(f'TRAIN Batch {epoch}/{batch_idx} loss {loss.item() * args.accum_grad:.4f} '
                      f'lr {scheduler.get_last_lr()[0]:.2e} rank 0 mem {torch.cuda.max_memory_allocated() / 2**20:.0f}MiB')
        print(f'Epoch {epoch} TRAIN took {time.time() - start:.1f}s')
        model.eval()
        total = seen = 0
        with torch.no_grad():
            for feats, feat_lengths, tokens, token_lengths in cv_loader:
                log_probs, out_lengths = model(feats.to(device), feat_lengths.to(device))
                total += ctc_loss(log_probs.transpose(0, 1), tokens.to(device), out_lengths, token_lengths.to(device)).item()
                seen += len(feats)
        print(f'Epoch {epoch} CV info cv_loss {total / seen:.4f}')
        torch.save(model.state_dict(), os.path.join(args.exp, f'{epoch}.pt'))


if __name__ == '__main__':
    main()
