"""Self-distillation without labels: a student sees ten crops of an image, its teacher the two large ones."""

import argparse
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class MultiCrop(Dataset):
    """Two large and several small crops of each image."""

    def __init__(self, args):
        os.makedirs(args.data_path, exist_ok=True)
        path = os.path.join(args.data_path, f'crops_{args.global_size}.npy')
        side = args.global_size + 32
        if not os.path.exists(path):
            np.save(path, np.random.default_rng(0).integers(0, 256, (32, 3, side, side), dtype=np.uint8))
        self.images, self.side, self.count = np.load(path, mmap_mode='r'), side, args.images
        self.sizes = [args.global_size] * 2 + [args.local_size] * args.local_crops_number

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        image = self.images[i % len(self.images)]
        crops = []
        for size in self.sizes:
            top, left = torch.randint(self.side - size + 1, (2,)).tolist()
            crops.append(torch.from_numpy(image[:, top:top + size, left:left + size].copy()).float().div_(127.5).sub_(1))
        return crops, 0


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2, self.heads = nn.LayerNorm(dim), nn.LayerNorm(dim), heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, N, C))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, size, patch, dim, depth, heads):
        super().__init__()
        self.patch_embed, self.side = nn.Conv2d(3, dim, patch, patch), size // patch
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.randn(1, dim, self.side, self.side) * 0.02)
        self.blocks, self.norm = nn.Sequential(*(Block(dim, heads) for _ in range(depth))), nn.LayerNorm(dim)

    def forward(self, x):
        x = self.patch_embed(x)
        pos = self.pos_embed
        if x.shape[-1] != self.side:
            pos = F.interpolate(pos, size=x.shape[-2:], mode='bicubic')
        x = (x + pos).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1)
        return self.norm(self.blocks(x))[:, 0]


class MultiCropWrapper(nn.Module):
    """Crops of one size go through the backbone together, then all through the head."""

    def __init__(self, backbone, dim, out_dim):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, 256), nn.Linear(256, out_dim, bias=False))

    def forward(self, x):
        x = x if isinstance(x, list) else [x]
        sizes = torch.tensor([crop.shape[-1] for crop in x])
        ends = torch.cumsum(torch.unique_consecutive(sizes, return_counts=True)[1], 0)
        start, output = 0, []
        for end in ends.tolist():
            output.append(self.backbone(torch.cat(x[start:end])))
            start = end
        return self.head(torch.cat(output))


class DINOLoss(nn.Module):
    def __init__(self, out_dim, ncrops):
        super().__init__()
        self.ncrops = ncrops
        self.register_buffer('center', torch.zeros(1, out_dim))

    def forward(self, student_output, teacher_output):
        student = (student_output / 0.1).chunk(self.ncrops)
        teacher = F.softmax((teacher_output - self.center) / 0.04, dim=-1).detach().chunk(2)
        total, terms = 0, 0
        for iq, q in enumerate(teacher):
            for v, s in enumerate(student):
                if v != iq:
                    total = total + torch.sum(-q * F.log_softmax(s, dim=-1), dim=-1).mean()
                    terms += 1
        with torch.no_grad():
            self.center.mul_(0.9).add_(teacher_output.mean(0, keepdim=True), alpha=0.1)
        return total / terms


def cosine_scheduler(base, final, epochs, niter):
    i = np.arange(epochs * niter)
    return final + 0.5 * (base - final) * (1 + np.cos(np.pi * i / len(i)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--data_path', default='data/dino')
    parser.add_argument('--images', type=int, default=50000)
    parser.add_argument('--output_dir', default='out/dino')
    parser.add_argument('--global_size', type=int, default=224)
    parser.add_argument('--local_size', type=int, default=96)
    parser.add_argument('--local_crops_number', type=int, default=8)
    parser.add_argument('--patch_size', type=int, default=16)
    parser.add_argument('--dim', type=int, default=384)
    parser.add_argument('--depth', type=int, default=12)
    parser.add_argument('--heads', type=int, default=6)
    parser.add_argument('--out_dim', type=int, default=65536)
    parser.add_argument('--batch_size_per_gpu', type=int, default=64)
    parser.add_argument('--epochs', type=int, default=100)
    parser.add_argument('--lr', type=float, default=5e-4)
    parser.add_argument('--momentum_teacher', type=float, default=0.996)
    parser.add_argument('--freeze_last_layer', type=int, default=1)
    parser.add_argument('--use_fp16', action='store_true')
    parser.add_argument('--num_workers', type=int, default=10)
    parser.add_argument('--print_freq', type=int, default=10)
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    loader = DataLoader(MultiCrop(args), batch_size=args.batch_size_per_gpu, shuffle=True, drop_last=True,
                        num_workers=args.num_workers, pin_memory=torch.cuda.is_available())

    def build():
        backbone = VisionTransformer(args.global_size, args.patch_size, args.dim, args.depth, args.heads)
        return MultiCropWrapper(backbone, args.dim, args.out_dim).to(device)
    student, teacher = build(), build()
    teacher.load_state_dict(student.state_dict())
    for p in teacher.parameters():
        p.requires_grad = False
    dino_loss = DINOLoss(args.out_dim, args.local_crops_number + 2).to(device)
    regularized = [p for n, p in student.named_parameters() if not n.endswith('.bias') and p.ndim > 1]
    others = [p for n, p in student.named_parameters() if n.endswith('.bias') or p.ndim == 1]
    optimizer = torch.optim.AdamW([{'params': regularized}, {'params': others, 'weight_decay': 0.0}])
    scaler = torch.amp.GradScaler('cuda') if args.use_fp16 else None
    lr_schedule = cosine_scheduler(args.lr, 1e-6, args.epochs, len(loader))
    wd_schedule = cosine_scheduler(0.04, 0.4, args.epochs, len(loader))
    momentum_schedule = cosine_scheduler(args.momentum_teacher, 1, args.epochs, len(loader))
    os.makedirs(args.output_dir, exist_ok=True)
    print('Starting DINO training !')
    for epoch in range(args.epochs):
        end = time.time()
        for it, (images, _) in enumerate(loader):
            step = len(loader) * epoch + it
            for i, group in enumerate(optimizer.param_groups):
                group['lr'] = lr_schedule[step]
                if i == 0:
                    group['weight_decay'] = wd_schedule[step]
            images = [im.to(device, non_blocking=True) for im in images]
            with torch.amp.autocast(device.type, enabled=args.use_fp16):
                teacher_output = teacher(images[:2])
                student_output = student(images)
                loss = dino_loss(student_output.float(), teacher_output.float())
            if not math.isfinite(loss.item()):
                raise SystemExit(f'Loss is {loss.item()}, stopping training')
            optimizer.zero_grad()
            if scaler is None:
                loss.backward()
                torch.nn.utils.clip_grad_norm_(student.parameters(), 3.0)
                if epoch < args.freeze_last_layer:
                    student.head[-1].weight.grad = None
                optimizer.step()
            else:
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(student.parameters(), 3.0)
                if epoch < args.freeze_last_layer:
                    student.head[-1].weight.grad = None
                scaler.step(optimizer)
                scaler.update()
            with torch.no_grad():
                m = momentum_schedule[step]
                for param_q, param_k in zip(student.parameters(), teacher.parameters()):
                    param_k.data.mul_(m).add_((1 - m) * param_q.detach().data)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if it % args.print_freq == 0:
                print(f'Epoch: [{epoch}/{args.epochs}]  [{it:4d}/{len(loader)}]  loss: {loss.item():.4f}  '
                      f'time: {time.time() - end:.4f}  max mem: {torch.cuda.max_memory_allocated() / 2**20:.0f}MiB')
            end = time.time()
        torch.save({'student': student.state_dict(), 'teacher': teacher.state_dict(), 'epoch': epoch + 1},
                   os.path.join(args.output_dir, 'checkpoint.pth'))
        print(f'epoch {epoch} saved')


if __name__ == '__main__':
    main()
