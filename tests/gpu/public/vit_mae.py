"""Masked autoencoder: the encoder sees a quarter of the patches, the decoder paints the rest.

--finetune trains the encoder as a classifier, with a rate that falls from layer to layer.
"""

import argparse
import datetime
import json
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def get_args_parser():
    parser = argparse.ArgumentParser('MAE', add_help=True)
    parser.add_argument('--batch_size', default=64, type=int)
    parser.add_argument('--epochs', default=400, type=int)
    parser.add_argument('--accum_iter', default=1, type=int)
    parser.add_argument('--input_size', default=224, type=int)
    parser.add_argument('--patch_size', default=16, type=int)
    parser.add_argument('--embed_dim', default=768, type=int)
    parser.add_argument('--depth', default=12, type=int)
    parser.add_argument('--num_heads', default=12, type=int)
    parser.add_argument('--decoder_embed_dim', default=512, type=int)
    parser.add_argument('--decoder_depth', default=8, type=int)
    parser.add_argument('--mask_ratio', default=0.75, type=float)
    parser.add_argument('--norm_pix_loss', action='store_true')
    parser.add_argument('--finetune', action='store_true')
    parser.add_argument('--layer_decay', type=float, default=0.75)
    parser.add_argument('--nb_classes', default=1000, type=int)
    parser.add_argument('--weight_decay', type=float, default=0.05)
    parser.add_argument('--blr', type=float, default=1e-3)
    parser.add_argument('--min_lr', type=float, default=0.0)
    parser.add_argument('--warmup_epochs', type=int, default=40)
    parser.add_argument('--data_path', default='data/mae')
    parser.add_argument('--data_images', default=50000, type=int)
    parser.add_argument('--output_dir', default='./output_dir')
    parser.add_argument('--resume', default='')
    parser.add_argument('--num_workers', default=10, type=int)
    parser.add_argument('--print_freq', default=20, type=int)
    return parser


class RandomImages(torch.utils.data.Dataset):
    def __init__(self, root, size, count, classes):
        Path(root).mkdir(parents=True, exist_ok=True)
        path = Path(root) / f'{size}.npy'
        if not path.exists():
            np.save(path, np.random.default_rng(0).integers(0, 256, (64, 3, size, size), dtype=np.uint8))
        self.images, self.count, self.classes = np.load(path, mmap_mode='r'), count, classes

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        image = torch.from_numpy(self.images[i % len(self.images)].copy()).float()
        return image.sub_(118).div_(58), i % self.classes


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, N, C))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(dim, eps=1e-6), Attention(dim, heads), nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class MaskedAutoencoderViT(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.patch_size, self.norm_pix_loss = args.patch_size, args.norm_pix_loss
        dim, ddim = args.embed_dim, args.decoder_embed_dim
        num_patches = (args.input_size // args.patch_size) ** 2
        self.patch_embed = nn.Conv2d(3, dim, args.patch_size, args.patch_size)
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.pos_embed = nn.Parameter(torch.randn(1, num_patches + 1, dim) * 0.02, requires_grad=False)
        self.blocks = nn.ModuleList([Block(dim, args.num_heads) for _ in range(args.depth)])
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.finetune = args.finetune
        if args.finetune:
            self.head = nn.Linear(dim, args.nb_classes)
            return
        self.decoder_embed = nn.Linear(dim, ddim)
        self.mask_token = nn.Parameter(torch.randn(1, 1, ddim) * 0.02)
        self.decoder_pos_embed = nn.Parameter(torch.randn(1, num_patches + 1, ddim) * 0.02, requires_grad=False)
        self.decoder_blocks = nn.ModuleList([Block(ddim, max(ddim // 32, 1)) for _ in range(args.decoder_depth)])
        self.decoder_norm = nn.LayerNorm(ddim, eps=1e-6)
        self.decoder_pred = nn.Linear(ddim, args.patch_size ** 2 * 3)

    def patchify(self, imgs):
        p = self.patch_size
        h = imgs.shape[2] // p
        x = imgs.reshape(imgs.shape[0], 3, h, p, h, p)
        return torch.einsum('nchpwq->nhwpqc', x).reshape(imgs.shape[0], h * h, p ** 2 * 3)

    def random_masking(self, x, mask_ratio):
        N, L, D = x.shape
        len_keep = int(L * (1 - mask_ratio))
        ids_shuffle = torch.argsort(torch.rand(N, L, device=x.device), dim=1)
        ids_restore = torch.argsort(ids_shuffle, dim=1)
        x_masked = torch.gather(x, dim=1, index=ids_shuffle[:, :len_keep].unsqueeze(-1).repeat(1, 1, D))
        mask = torch.ones([N, L], device=x.device)
        mask[:, :len_keep] = 0
        return x_masked, torch.gather(mask, dim=1, index=ids_restore), ids_restore

    def encode(self, imgs, mask_ratio):
        x = self.patch_embed(imgs).flatten(2).transpose(1, 2) + self.pos_embed[:, 1:, :]
        mask = ids_restore = None
        if mask_ratio:
            x, mask, ids_restore = self.random_masking(x, mask_ratio)
        cls_tokens = (self.cls_token + self.pos_embed[:, :1, :]).expand(x.shape[0], -1, -1)
        x = torch.cat((cls_tokens, x), dim=1)
        for blk in self.blocks:
            x = blk(x)
        return self.norm(x), mask, ids_restore

    def decode(self, x, ids_restore):
        x = self.decoder_embed(x)
        mask_tokens = self.mask_token.repeat(x.shape[0], ids_restore.shape[1] + 1 - x.shape[1], 1)
        x_ = torch.cat([x[:, 1:, :], mask_tokens.to(x.dtype)], dim=1)
        x_ = torch.gather(x_, dim=1, index=ids_restore.unsqueeze(-1).repeat(1, 1, x.shape[2]))
        x = torch.cat([x[:, :1, :], x_], dim=1) + self.decoder_pos_embed
        for blk in self.decoder_blocks:
            x = blk(x)
        return self.decoder_pred(self.decoder_norm(x))[:, 1:, :]

    def forward(self, imgs, targets=None, mask_ratio=0.75):
        if self.finetune:
            latent, _, _ = self.encode(imgs, 0)
            logits = self.head(latent[:, 1:].mean(1))
            return F.cross_entropy(logits, targets, label_smoothing=0.1), logits
        latent, mask, ids_restore = self.encode(imgs, mask_ratio)
        pred = self.decode(latent, ids_restore)
        target = self.patchify(imgs)
        if self.norm_pix_loss:
            target = (target - target.mean(-1, keepdim=True)) / (target.var(-1, keepdim=True) + 1e-6) ** 0.5
        loss = ((pred - target) ** 2).mean(dim=-1)
        return (loss * mask).sum() / mask.sum(), pred


def param_groups_lrd(model, weight_decay, layer_decay):
    num_layers = len(model.blocks) + 1
    groups = {}
    for n, p in model.named_parameters():
        if not p.requires_grad:
            continue
        this_decay = 0.0 if p.ndim == 1 else weight_decay
        layer = 0 if n.startswith(('patch_embed', 'cls_token')) else (
            int(n.split('.')[1]) + 1 if n.startswith('blocks') else num_layers)
        group = groups.setdefault((layer, this_decay), {
            'lr_scale': layer_decay ** (num_layers - layer), 'weight_decay': this_decay, 'params': []})
        group['params'].append(p)
    return list(groups.values())


def adjust_learning_rate(optimizer, epoch, args):
    if epoch < args.warmup_epochs:
        lr = args.lr * epoch / args.warmup_epochs
    else:
        share = (epoch - args.warmup_epochs) / (args.epochs - args.warmup_epochs)
        lr = args.min_lr + (args.lr - args.min_lr) * 0.5 * (1.0 + math.cos(math.pi * share))
    for group in optimizer.param_groups:
        group['lr'] = lr * group.get('lr_scale', 1)
    return lr


def train_one_epoch(model, data_loader, optimizer, device, epoch, loss_scaler, args):
    model.train(True)
    optimizer.zero_grad()
    total = 0.0
    end = time.time()
    for step, (samples, targets) in enumerate(data_loader):
        if step % args.accum_iter == 0:
            lr = adjust_learning_rate(optimizer, step / len(data_loader) + epoch, args)
        samples, targets = samples.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        with torch.amp.autocast(device.type, dtype=torch.float16 if device.type == 'cuda' else torch.bfloat16):
            loss, _ = model(samples, targets, mask_ratio=args.mask_ratio)
        loss_value = loss.item()
        if not math.isfinite(loss_value):
            raise SystemExit(f'Loss is {loss_value}, stopping training')
        loss_scaler.scale(loss / args.accum_iter).backward()
        if (step + 1) % args.accum_iter == 0:
            loss_scaler.step(optimizer)
            loss_scaler.update()
            optimizer.zero_grad()
        total += loss_value
        if step % args.print_freq == 0:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            print(f'Epoch: [{epoch}]  [{step:4d}/{len(data_loader)}]  lr: {lr:.6f}  loss: {loss_value:.4f}  '
                  f'time: {time.time() - end:.4f}  max mem: {torch.cuda.max_memory_allocated() / 2**20:.0f}MiB')
        end = time.time()
    return total / len(data_loader)


@torch.no_grad()
def evaluate(data_loader, model, device):
    model.eval()
    correct = total = 0
    for images, target in data_loader:
        with torch.amp.autocast(device.type):
            _, output = model(images.to(device), target.to(device))
        correct += (output.argmax(1).cpu() == target).sum().item()
        total += len(target)
    print(f'* Acc@1 {correct / total:.3f}')


def main(args):
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    dataset_train = RandomImages(args.data_path, args.input_size, args.data_images, args.nb_classes)
    data_loader_train = torch.utils.data.DataLoader(
        dataset_train, sampler=torch.utils.data.RandomSampler(dataset_train), batch_size=args.batch_size,
        num_workers=args.num_workers, pin_memory=torch.cuda.is_available(), drop_last=True)
    data_loader_val = torch.utils.data.DataLoader(
        RandomImages(args.data_path, args.input_size, args.data_images // 20, args.nb_classes),
        batch_size=args.batch_size, num_workers=args.num_workers)
    model = MaskedAutoencoderViT(args).to(device)
    args.lr = args.blr * args.batch_size * args.accum_iter / 256
    layer_decay = args.layer_decay if args.finetune else 1.0
    optimizer = torch.optim.AdamW(param_groups_lrd(model, args.weight_decay, layer_decay), lr=args.lr, betas=(0.9, 0.95))
    loss_scaler = torch.amp.GradScaler('cuda', enabled=device.type == 'cuda')
    start_epoch = 0
    if args.resume:
        checkpoint = torch.load(args.resume, map_location='cpu')
        model.load_state_dict(checkpoint['model'])
        optimizer.load_state_dict(checkpoint['optimizer'])
        start_epoch = checkpoint['epoch'] + 1
    Path(args.output_dir).mkdir(parents=True, exist_ok=True)
    print(f'Start training for {args.epochs} epochs')
    start_time = time.time()
    for epoch in range(start_epoch, args.epochs):
        loss = train_one_epoch(model, data_loader_train, optimizer, device, epoch, loss_scaler, args)
        if args.finetune:
            evaluate(data_loader_val, model, device)
        if epoch % 20 == 0 or epoch + 1 == args.epochs:
            torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'epoch': epoch},
                       os.path.join(args.output_dir, f'checkpoint-{epoch}.pth'))
        with open(os.path.join(args.output_dir, 'log.txt'), mode='a', encoding='utf-8') as f:
            f.write(json.dumps({'train_loss': loss, 'epoch': epoch}) + '\n')
    print(f'Training time {datetime.timedelta(seconds=int(time.time() - start_time))}')


if __name__ == '__main__':
    main(get_args_parser().parse_args())
