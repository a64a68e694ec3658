import argparse
import logging
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.utils.data import DataLoader, Dataset, random_split

dir_data = Path('./data/masks/')
dir_checkpoint = Path('./checkpoints/')


class MaskDataset(Dataset):
    """Discs on noise, and where they are."""

    def __init__(self, folder, size, length):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f'discs_{size}.npz'
        if not path.exists():
            rng = np.random.default_rng(0)
            ys, xs = np.mgrid[:size, :size]
            masks = np.stack([np.hypot(ys - y, xs - x) < r for y, x, r in zip(
                rng.uniform(0, size, 40), rng.uniform(0, size, 40), rng.uniform(size / 8, size / 3, 40))])
            images = rng.integers(0, 128, (40, 3, size, size), dtype=np.uint8) + 100 * masks[:, None].astype(np.uint8)
            np.savez(path, images=images, masks=masks)
        loaded = np.load(path)
        self.images, self.masks, self.length = loaded['images'], loaded['masks'], length

    def __len__(self):
        return self.length

    def __getitem__(self, idx):
        idx = idx % len(self.images)
        return {'image': torch.as_tensor(self.images[idx] / np.float32(255)).contiguous(),
                'mask': torch.as_tensor(self.masks[idx].astype(np.int64)).contiguous()}


class DoubleConv(nn.Sequential):
    def __init__(self, cin, cout, mid=None):
        mid = mid or cout
        super().__init__(nn.Conv2d(cin, mid, 3, padding=1, bias=False), nn.BatchNorm2d(mid), nn.ReLU(inplace=True),
                         nn.Conv2d(mid, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class Up(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.up = nn.ConvTranspose2d(cin, cin // 2, kernel_size=2, stride=2)
        self.conv = DoubleConv(cin, cout)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        dy, dx = x2.size(2) - x1.size(2), x2.size(3) - x1.size(3)
        x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, width=64):
        super().__init__()
        self.n_channels, self.n_classes = n_channels, n_classes
        self.inc = DoubleConv(n_channels, width)
        self.downs = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), DoubleConv(width * 2 ** i, width * 2 ** (i + 1))) for i in range(4))
        self.ups = nn.ModuleList(Up(width * 2 ** (i + 1), width * 2 ** i) for i in reversed(range(4)))
        self.outc = nn.Conv2d(width, n_classes, kernel_size=1)

    def forward(self, x):
        features = [self.inc(x)]
        for down in self.downs:
            features.append(down(features[-1]))
        x = features.pop()
        for up in self.ups:
            x = up(x, features.pop())
        return self.outc(x)


def dice_coeff(pred, target, epsilon=1e-6):
    dims = (-1, -2)
    inter = 2 * (pred * target).sum(dim=dims)
    sets_sum = pred.sum(dim=dims) + target.sum(dim=dims)
    sets_sum = torch.where(sets_sum == 0, inter, sets_sum)
    return ((inter + epsilon) / (sets_sum + epsilon)).mean()


@torch.inference_mode()
def evaluate(net, dataloader, device, amp):
    net.eval()
    dice_score = 0
    with torch.autocast(device.type if device.type != 'mps' else 'cpu', enabled=amp):
        for batch in dataloader:
            image = batch['image'].to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
            mask_true = batch['mask'].to(device=device, dtype=torch.long)
            mask_pred = net(image)
            pred = F.one_hot(mask_pred.argmax(dim=1), net.n_classes).permute(0, 3, 1, 2).float()
            true = F.one_hot(mask_true, net.n_classes).permute(0, 3, 1, 2).float()
            dice_score += dice_coeff(pred[:, 1:], true[:, 1:])
    net.train()
    return dice_score / max(len(dataloader), 1)


def train_model(model, device, args):
    dataset = MaskDataset(dir_data, args.size, args.images)
    n_val = int(len(dataset) * args.val / 100)
    n_train = len(dataset) - n_val
    train_set, val_set = random_split(dataset, [n_train, n_val], generator=torch.Generator().manual_seed(0))
    loader_args = dict(batch_size=args.batch_size, num_workers=args.workers, pin_memory=torch.cuda.is_available())
    train_loader = DataLoader(train_set, shuffle=True, **loader_args)
    val_loader = DataLoader(val_set, shuffle=False, drop_last=True, **loader_args)
    logging.info(f'Training size: {n_train}, validation size: {n_val}, device: {device.type}, mixed precision: {args.amp}')

    optimizer = optim.RMSprop(model.parameters(), lr=args.lr, weight_decay=1e-8, momentum=0.999, foreach=True)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, 'max', patience=5)
    grad_scaler = torch.amp.GradScaler('cuda', enabled=args.amp)
    criterion = nn.CrossEntropyLoss()
    global_step = 0
    for epoch in range(1, args.epochs + 1):
        model.train()
        epoch_loss = 0
        for batch in train_loader:
            images, true_masks = batch['image'], batch['mask']
            images = images.to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
            true_masks = true_masks.to(device=device, dtype=torch.long)
            with torch.autocast(device.type if device.type != 'mps' else 'cpu', enabled=args.amp):
                masks_pred = model(images)
                loss = criterion(masks_pred, true_masks)
                one_hot = F.one_hot(true_masks, model.n_classes).permute(0, 3, 1, 2).float()
                loss = loss + 1 - dice_coeff(F.softmax(masks_pred, dim=1).float(), one_hot)
            optimizer.zero_grad(set_to_none=True)
            grad_scaler.scale(loss).backward()
            grad_scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            grad_scaler.step(optimizer)
            grad_scaler.update()
            global_step += 1
            epoch_loss += loss.item()
            if global_step % args.log_every == 0:
                logging.info(f'Epoch {epoch}/{args.epochs} step {global_step} loss (batch) {loss.item():.4f} '
                             f'mem {torch.cuda.max_memory_allocated() / 2**20:.0f}MiB')
            division_step = n_train // (args.evaluations * args.batch_size)
            if division_step > 0 and global_step % division_step == 0:
                val_score = evaluate(model, val_loader, device, args.amp)
                scheduler.step(val_score)
                logging.info(f'Validation Dice score: {val_score}')
        dir_checkpoint.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), str(dir_checkpoint / f'checkpoint_epoch{epoch}.pth'))
        logging.info(f'Checkpoint {epoch} saved!')


def get_args():
    parser = argparse.ArgumentParser(description='Train the UNet on images and target masks')
    parser.add_argument('--epochs', '-e', metavar='E', type=int, default=5)
    parser.add_argument('--batch-size', '-b', dest='batch_size', metavar='B', type=int, default=1)
    parser.add_argument('--learning-rate', '-l', metavar='LR', type=float, default=1e-5, dest='lr')
    parser.add_argument('--load', '-f', type=str, default=False)
    parser.add_argument('--size', type=int, default=512)
    parser.add_argument('--width', type=int, default=64)
    parser.add_argument('--images', type=int, default=5000)
    parser.add_argument('--validation', '-v', dest='val', type=float, default=10.0)
    parser.add_argument('--evaluations', type=int, default=5, help='validation rounds in an epoch')
    parser.add_argument('--workers', type=int, default=os.cpu_count())
    parser.add_argument('--log-every', type=int, default=10)
    parser.add_argument('--amp', action='store_true', default=False)
    parser.add_argument('--classes', '-c', type=int, default=2)
    return parser.parse_args()


if __name__ == '__main__':
    args = get_args()
    logging.basicConfig(level=logging.INFO, format='%(levelname)s: %(message)s', stream=sys.stdout)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    model = UNet(n_channels=3, n_classes=args.classes, width=args.width)
    model = model.to(memory_format=torch.channels_last)
    if args.load:
        model.load_state_dict(torch.load(args.load, map_location=device))
        logging.info(f'Model loaded from {args.load}')
    model.to(device=device)
    try:
        train_model(model, device, args)
    except torch.cuda.OutOfMemoryError:
        logging.error('Detected OutOfMemoryError! Emptying the cache and trying again.')
        torch.cuda.empty_cache()
        train_model(model, device, args)
