"""Trains a small anchor-free detector with a task-aligned assigner; nominal batch of 64."""

import argparse
import math
import os
import random
import time
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import SGD, lr_scheduler
from torch.utils.data import DataLoader, Dataset


def colorstr(*words):
    return '\033[34m\033[1m' + ' '.join(words) + '\033[0m'


class LoadImagesAndLabels(Dataset):
    """Boxes of colour on noise; an image has none to ten of them."""

    def __init__(self, path, img_size, n, nc, augment):
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        cache = path / f'boxes_{img_size}.npz'
        if not cache.exists():
            rng = np.random.default_rng(0)
            images = rng.integers(0, 80, (48, 3, img_size, img_size), dtype=np.uint8)
            labels = []
            for image in images:
                wh = rng.uniform(0.1, 0.5, (rng.integers(0, 11), 2))
                xy = rng.uniform(wh / 2, 1 - wh / 2)
                cls = rng.integers(0, nc, (len(wh), 1))
                for c, (x, y), (w, h) in zip(cls[:, 0], xy, wh):
                    top, left, bottom, right = (np.array([y - h / 2, x - w / 2, y + h / 2, x + w / 2]) * img_size).astype(int)
                    image[c % 3, top:bottom, left:right] = 220
                labels.append(np.concatenate([cls, xy, wh], 1))
            np.savez(cache, images=images, counts=[len(lb) for lb in labels], labels=np.concatenate(labels))
        loaded = np.load(cache)
        self.imgs = loaded['images']
        self.labels = np.split(loaded['labels'].astype(np.float32), np.cumsum(loaded['counts'])[:-1])
        self.n, self.augment = n, augment

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        img, labels = self.imgs[index % len(self.imgs)], self.labels[index % len(self.imgs)].copy()
        if self.augment and random.random() < 0.5:
            img = img[:, :, ::-1]
            labels[:, 1] = 1 - labels[:, 1]
        out = torch.zeros(len(labels), 6)
        out[:, 1:] = torch.from_numpy(labels)
        return torch.from_numpy(np.ascontiguousarray(img)), out

    @staticmethod
    def collate_fn(batch):
        im, label = zip(*batch)
        for i, lb in enumerate(label):
            lb[:, 0] = i
        return torch.stack(im, 0), torch.cat(label, 0)


class Conv(nn.Module):
    def __init__(self, c1, c2, k=1, s=1):
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, s, k // 2, bias=False)
        self.bn = nn.BatchNorm2d(c2, eps=1e-3, momentum=0.03)

    def forward(self, x):
        return F.silu(self.bn(self.conv(x)), inplace=True)


class C2f(nn.Module):
    def __init__(self, c1, c2, n=1):
        super().__init__()
        self.c = c2 // 2
        self.cv1, self.cv2 = Conv(c1, c2), Conv((2 + n) * self.c, c2)
        self.m = nn.ModuleList(nn.Sequential(Conv(self.c, self.c, 3), Conv(self.c, self.c, 3)) for _ in range(n))

    def forward(self, x):
        y = list(self.cv1(x).chunk(2, 1))
        for m in self.m:
            y.append(y[-1] + m(y[-1]))
        return self.cv2(torch.cat(y, 1))


class Detector(nn.Module):
    strides = (8, 16, 32)

    def __init__(self, nc, w=64, n=2):
        super().__init__()
        self.nc = nc
        self.stem = nn.Sequential(Conv(3, w, 3, 2), Conv(w, 2 * w, 3, 2), C2f(2 * w, 2 * w, n))
        self.p3 = nn.Sequential(Conv(2 * w, 4 * w, 3, 2), C2f(4 * w, 4 * w, n))
        self.p4 = nn.Sequential(Conv(4 * w, 8 * w, 3, 2), C2f(8 * w, 8 * w, n))
        self.p5 = nn.Sequential(Conv(8 * w, 8 * w, 3, 2), C2f(8 * w, 8 * w, n))
        self.up4, self.up3 = C2f(16 * w, 8 * w, n), C2f(12 * w, 4 * w, n)
        self.heads = nn.ModuleList(nn.Sequential(Conv(c, 4 * w, 3), nn.Conv2d(4 * w, 4 + nc, 1)) for c in (4 * w, 8 * w, 8 * w))
        for head, stride in zip(self.heads, self.strides):
            nn.init.constant_(head[-1].bias[4:], math.log(5 / nc / (640 / stride) ** 2))

    def forward(self, x):
        x3 = self.p3(self.stem(x))
        x4 = self.p4(x3)
        x5 = self.p5(x4)
        x4 = self.up4(torch.cat([F.interpolate(x5, scale_factor=2), x4], 1))
        x3 = self.up3(torch.cat([F.interpolate(x4, scale_factor=2), x3], 1))
        return [head(f) for head, f in zip(self.heads, (x3, x4, x5))]


def make_anchors(feats, strides):
    points, scales = [], []
    for f, stride in zip(feats, strides):
        h, w = f.shape[2:]
        ys, xs = torch.meshgrid(torch.arange(h, device=f.device) + 0.5, torch.arange(w, device=f.device) + 0.5, indexing='ij')
        points.append(torch.stack([xs, ys], -1).view(-1, 2) * stride)
        scales.append(torch.full((h * w, 1), float(stride), device=f.device))
    return torch.cat(points), torch.cat(scales)


def box_iou_pairs(a, b, eps=1e-7):
    lt, rb = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    inter = (rb - lt).clamp(0).prod(-1)
    area = (a[..., 2:] - a[..., :2]).clamp(0).prod(-1) + (b[..., 2:] - b[..., :2]).clamp(0).prod(-1)
    return inter / (area - inter + eps)


class ComputeLoss:
    def __init__(self, nc, topk=10, alpha=0.5, beta=6.0):
        self.nc, self.topk, self.alpha, self.beta = nc, topk, alpha, beta
        self.bce = nn.BCEWithLogitsLoss(reduction='none')

    def preprocess(self, targets, batch_size, size):
        """Labels of each image, filled up to the most that one has."""
        if targets.shape[0] == 0:
            return torch.zeros(batch_size, 0, 5, device=targets.device)
        i = targets[:, 0]
        _, counts = i.unique(return_counts=True)
        out = torch.zeros(batch_size, counts.max(), 5, device=targets.device)
        for j in range(batch_size):
            matches = i == j
            if n := matches.sum():
                out[j, :n] = targets[matches, 1:]
        xy, wh = out[..., 1:3] * size, out[..., 3:5] * size
        return torch.cat([out[..., :1], xy - wh / 2, xy + wh / 2], -1)

    @torch.no_grad()
    def assign(self, scores, boxes, points, labels, gt, mask_gt):
        bs, n_max = gt.shape[:2]
        na = points.shape[0]
        if n_max == 0:
            return torch.zeros_like(boxes), torch.zeros_like(scores), torch.zeros(bs, na, dtype=torch.bool, device=gt.device)
        deltas = torch.cat([points[None, None] - gt[:, :, None, :2], gt[:, :, None, 2:] - points[None, None]], -1)
        inside = (deltas.amin(-1) > 1e-9) & mask_gt
        index = labels.long().clamp(0).unsqueeze(-1).expand(-1, -1, na)
        cls = scores.transpose(1, 2).gather(1, index)
        overlaps = box_iou_pairs(gt.unsqueeze(2), boxes.unsqueeze(1)).clamp(0) * inside
        align = cls.pow(self.alpha) * overlaps.pow(self.beta)
        top_values, top_index = align.topk(min(self.topk, na), dim=-1)
        in_top = torch.zeros_like(align).scatter_(-1, top_index, 1.0) * (align > 1e-9)
        mask_pos = in_top * inside
        fg = mask_pos.sum(1)
        if fg.max() > 1: # one anchor for several boxes
            best = F.one_hot(overlaps.argmax(1), n_max).permute(0, 2, 1).to(mask_pos.dtype)
            mask_pos = torch.where((fg > 1).unsqueeze(1).expand(-1, n_max, -1), best, mask_pos)
            fg = mask_pos.sum(1)
        which = mask_pos.argmax(1)
        target_boxes = gt.gather(1, which.unsqueeze(-1).expand(-1, -1, 4))
        target_labels = labels.long().clamp(0).gather(1, which)
        align = align * mask_pos
        norm = (align * overlaps.amax(-1, keepdim=True) / (align.amax(-1, keepdim=True) + 1e-9)).amax(1).unsqueeze(-1)
        target_scores = F.one_hot(target_labels, self.nc) * (fg > 0).unsqueeze(-1) * norm
        return target_boxes, target_scores, fg > 0

    def __call__(self, preds, targets, img_size):
        bs = preds[0].shape[0]
        points, strides = make_anchors(preds, Detector.strides)
        flat = torch.cat([p.view(bs, 4 + self.nc, -1) for p in preds], 2).permute(0, 2, 1).float()
        distances, logits = flat[..., :4], flat[..., 4:]
        distances = F.softplus(distances) * strides
        boxes = torch.cat([points - distances[..., :2], points + distances[..., 2:]], -1)
        gt = self.preprocess(targets, bs, img_size)
        mask_gt = (gt[..., 1:].sum(-1, keepdim=True) > 0)
        target_boxes, target_scores, fg = self.assign(
            logits.detach().sigmoid(), boxes.detach(), points, gt[..., 0], gt[..., 1:], mask_gt)
        total = target_scores.sum().clamp(min=1)
        lcls = self.bce(logits, target_scores.to(logits.dtype)).sum() / total
        lbox = flat.sum() * 0
        if fg.any():
            weight = target_scores[fg].sum(-1)
            lbox = ((1 - box_iou_pairs(boxes[fg], target_boxes[fg])) * weight).sum() / total
        return (7.5 * lbox + 0.5 * lcls) * bs, torch.stack([lbox, lcls]).detach()


class ModelEMA:
    def __init__(self, model, decay=0.9999, tau=2000):
        self.ema = deepcopy(model).eval()
        self.updates = 0
        self.decay = lambda x: decay * (1 - math.exp(-x / tau))
        for p in self.ema.parameters():
            p.requires_grad_(False)

    def update(self, model):
        self.updates += 1
        d = self.decay(self.updates)
        msd = model.state_dict()
        for k, v in self.ema.state_dict().items():
            if v.dtype.is_floating_point:
                v *= d
                v += (1 - d) * msd[k].detach()


@torch.no_grad()
def val(model, dataloader, device, img_size, compute_loss, half):
    model.eval()
    loss, seen = torch.zeros(2, device=device), 0
    for imgs, targets in dataloader:
        with torch.autocast(device.type, enabled=half):
            preds = model(imgs.to(device).float() / 255)
        loss += compute_loss(preds, targets.to(device), img_size)[1]
        seen += len(imgs)
    loss = (loss / len(dataloader)).tolist()
    print(f"{'all':>22}{seen:>11}{loss[0]:>11.4g}{loss[1]:>11.4g}")
    return -sum(loss)


def train(opt, device):
    save_dir = Path(opt.project) / opt.name
    (save_dir / 'weights').mkdir(parents=True, exist_ok=True)
    last, best = save_dir / 'weights/last.pt', save_dir / 'weights/best.pt'
    random.seed(0)
    torch.manual_seed(0)
    amp = device.type != 'cpu'
    model = Detector(opt.nc, opt.width, opt.depth).to(device)
    nbs = 64
    accumulate = max(round(nbs / opt.batch_size), 1)
    weight_decay = 5e-4 * opt.batch_size * accumulate / nbs
    g = [], [], []
    for module in model.modules():
        for name, p in module.named_parameters(recurse=False):
            g[2 if name == 'bias' else 1 if isinstance(module, nn.BatchNorm2d) else 0].append(p)
    optimizer = SGD(g[2], lr=opt.lr0, momentum=0.937, nesterov=True)
    optimizer.add_param_group({'params': g[0], 'weight_decay': weight_decay})
    optimizer.add_param_group({'params': g[1], 'weight_decay': 0.0})
    print(f"{colorstr('optimizer:')} {type(optimizer).__name__} with groups {len(g[0])}, {len(g[1])}, {len(g[2])}")

    def lf(x):
        return (1 - x / opt.epochs) * (1.0 - 0.01) + 0.01
    scheduler = lr_scheduler.LambdaLR(optimizer, lr_lambda=lf)
    ema = ModelEMA(model)
    start_epoch, best_fitness = 0, -1e9
    if opt.resume:
        ckpt = torch.load(last, map_location=device)
        model.load_state_dict(ckpt['model'])
        start_epoch = ckpt['epoch'] + 1

    train_loader = DataLoader(LoadImagesAndLabels(opt.data, opt.imgsz, opt.images, opt.nc, True),
                              batch_size=opt.batch_size, shuffle=True, num_workers=opt.workers,
                              pin_memory=amp, collate_fn=LoadImagesAndLabels.collate_fn)
    val_loader = DataLoader(LoadImagesAndLabels(opt.data, opt.imgsz, opt.val_images, opt.nc, False),
                            batch_size=opt.batch_size * 2, num_workers=opt.workers,
                            pin_memory=amp, collate_fn=LoadImagesAndLabels.collate_fn)
    nb = len(train_loader)
    nw = max(round(opt.warmup_epochs * nb), opt.warmup_iters)
    last_opt_step = -1
    scheduler.last_epoch = start_epoch - 1
    scaler = torch.amp.GradScaler('cuda', enabled=amp)
    compute_loss = ComputeLoss(opt.nc)
    t0 = time.time()
    for epoch in range(start_epoch, opt.epochs):
        model.train()
        mloss = torch.zeros(2, device=device)
        print(('\n' + '%11s' * 5) % ('Epoch', 'GPU_mem', 'box_loss', 'cls_loss', 'Size'))
        optimizer.zero_grad()
        for i, (imgs, targets) in enumerate(train_loader):
            ni = i + nb * epoch
            imgs = imgs.to(device, non_blocking=True).float() / 255
            if ni <= nw: # warmup
                xi = [0, nw]
                accumulate = max(1, np.interp(ni, xi, [1, nbs / opt.batch_size]).round())
                for j, x in enumerate(optimizer.param_groups):
                    x['lr'] = np.interp(ni, xi, [0.1 if j == 0 else 0.0, opt.lr0 * lf(epoch)])
                    x['momentum'] = np.interp(ni, xi, [0.8, 0.937])
            with torch.autocast(device.type, enabled=amp):
                pred = model(imgs)
                loss, loss_items = compute_loss(pred, targets.to(device), opt.imgsz)
            scaler.scale(loss).backward()
            if ni - last_opt_step >= accumulate:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=10.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                ema.update(model)
                last_opt_step = ni
            mloss = (mloss * i + loss_items) / (i + 1)
            if i % opt.log_every == 0:
                mem = torch.cuda.max_memory_allocated() / 2**20
                print(f'{f"{epoch}/{opt.epochs - 1}":>11} batch {i}/{nb} mem {mem:.0f}MiB'
                      f'{mloss[0].item():11.4g}{mloss[1].item():11.4g}{imgs.shape[-1]:11d}')
        scheduler.step()
        fitness = val(ema.ema, val_loader, device, opt.imgsz, compute_loss, amp)
        best_fitness = max(best_fitness, fitness)
        ckpt = {'epoch': epoch, 'best_fitness': best_fitness, 'model': model.state_dict(), 'ema': ema.ema.state_dict()}
        torch.save(ckpt, last)
        if best_fitness == fitness:
            torch.save(ckpt, best)
    print(f'\n{opt.epochs - start_epoch} epochs completed in {(time.time() - t0) / 3600:.3f} hours.')


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--data', default='data/boxes')
    parser.add_argument('--images', type=int, default=20000)
    parser.add_argument('--val-images', type=int, default=500)
    parser.add_argument('--nc', type=int, default=80)
    parser.add_argument('--width', type=int, default=32)
    parser.add_argument('--depth', type=int, default=2)
    parser.add_argument('--epochs', type=int, default=100)
    parser.add_argument('--batch-size', type=int, default=16)
    parser.add_argument('--imgsz', '--img', type=int, default=640)
    parser.add_argument('--lr0', type=float, default=0.01)
    parser.add_argument('--warmup-epochs', type=float, default=3.0)
    parser.add_argument('--warmup-iters', type=int, default=100)
    parser.add_argument('--workers', type=int, default=8)
    parser.add_argument('--log-every', type=int, default=20)
    parser.add_argument('--project', default='runs/train')
    parser.add_argument('--name', default='exp')
    parser.add_argument('--resume', action='store_true')
    opt = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    train(opt, torch.device('cuda:0' if torch.cuda.is_available() else 'cpu'))
