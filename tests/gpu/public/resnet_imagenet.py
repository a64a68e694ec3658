"""ImageNet classification, the loop that most others were written after."""

import argparse
import os
import random
import shutil
import time
from enum import Enum

import numpy as np
import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.optim
import torch.utils.data
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import Subset

parser = argparse.ArgumentParser(description='PyTorch ImageNet Training')
parser.add_argument('data', metavar='DIR', nargs='?', default='data/imagenet')
parser.add_argument('-a', '--arch', default='resnet50', choices=('resnet18', 'resnet34', 'resnet50', 'resnet101', 'tiny'))
parser.add_argument('-j', '--workers', default=4, type=int)
parser.add_argument('--epochs', default=90, type=int)
parser.add_argument('--start-epoch', default=0, type=int)
parser.add_argument('-b', '--batch-size', default=256, type=int)
parser.add_argument('--lr', '--learning-rate', default=0.1, type=float, dest='lr')
parser.add_argument('--momentum', default=0.9, type=float)
parser.add_argument('--wd', '--weight-decay', default=1e-4, type=float, dest='weight_decay')
parser.add_argument('-p', '--print-freq', default=10, type=int)
parser.add_argument('--resume', default='', type=str)
parser.add_argument('-e', '--evaluate', action='store_true')
parser.add_argument('--seed', default=None, type=int)
parser.add_argument('--image-size', default=224, type=int)
parser.add_argument('--train-images', default=1281167, type=int)
parser.add_argument('--val-images', default=50000, type=int)
parser.add_argument('--channels-last', action='store_true')
parser.add_argument('--amp', action='store_true')
best_acc1 = 0


class FakeImages(torch.utils.data.Dataset):
    def __init__(self, root, size, count):
        os.makedirs(root, exist_ok=True)
        path = os.path.join(root, f'fake_{size}.npy')
        if not os.path.exists(path):
            np.save(path, np.random.default_rng(0).integers(0, 256, (64, 3, size + 32, size + 32), dtype=np.uint8))
        self.images, self.size, self.count = np.load(path, mmap_mode='r'), size, count
        self.mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
        self.std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        top, left = random.randint(0, 32), random.randint(0, 32)
        image = self.images[index % len(self.images), :, top:top + self.size, left:left + self.size]
        image = torch.from_numpy(image.copy()).float().div_(255)
        return image.sub_(self.mean).div_(self.std), index % 1000


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, cin, width, stride=1):
        super().__init__()
        cout = width * self.expansion
        self.conv1, self.bn1 = nn.Conv2d(cin, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, cout, 1, bias=False), nn.BatchNorm2d(cout)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        return self.relu(self.bn3(self.conv3(out)) + identity)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, cin, width, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or cin != width:
            self.downsample = nn.Sequential(nn.Conv2d(cin, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + identity)


class ResNet(nn.Module):
    def __init__(self, block, layers, width=64, num_classes=1000):
        super().__init__()
        self.conv1, self.bn1, self.relu = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        cin, stages = width, []
        for i, count in enumerate(layers):
            for j in range(count):
                stages.append(block(cin, width * 2 ** i, stride=2 if j == 0 and i > 0 else 1))
                cin = width * 2 ** i * block.expansion
        self.layers = nn.Sequential(*stages)
        self.fc = nn.Linear(cin, num_classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(self.layers(x).mean((2, 3)))


ARCHS = {
    'resnet18': lambda: ResNet(BasicBlock, (2, 2, 2, 2)), 'resnet34': lambda: ResNet(BasicBlock, (3, 4, 6, 3)),
    'resnet50': lambda: ResNet(Bottleneck, (3, 4, 6, 3)), 'resnet101': lambda: ResNet(Bottleneck, (3, 4, 23, 3)),
    'tiny': lambda: ResNet(BasicBlock, (1, 1), width=8),
}


def main():
    args = parser.parse_args()
    if args.seed is not None:
        random.seed(args.seed)
        torch.manual_seed(args.seed)
    global best_acc1
    print(f"=> creating model '{args.arch}'")
    model = ARCHS[args.arch]()
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    model = model.to(device)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay)
    scheduler = StepLR(optimizer, step_size=30, gamma=0.1)
    if args.resume:
        checkpoint = torch.load(args.resume, map_location=device)
        args.start_epoch, best_acc1 = checkpoint['epoch'], checkpoint['best_acc1']
        model.load_state_dict(checkpoint['state_dict'])
        optimizer.load_state_dict(checkpoint['optimizer'])
        scheduler.load_state_dict(checkpoint['scheduler'])
    cudnn.benchmark = True

    train_dataset = FakeImages(args.data, args.image_size, args.train_images)
    val_dataset = FakeImages(args.data, args.image_size, args.val_images)
    train_loader = torch.utils.data.DataLoader(train_dataset, batch_size=args.batch_size, shuffle=True,
                                               num_workers=args.workers, pin_memory=torch.cuda.is_available())
    val_loader = torch.utils.data.DataLoader(val_dataset, batch_size=args.batch_size, shuffle=False,
                                             num_workers=args.workers, pin_memory=torch.cuda.is_available())
    if args.evaluate:
        validate(val_loader, model, criterion, args)
        return
    for epoch in range(args.start_epoch, args.epochs):
        train(train_loader, model, criterion, optimizer, epoch, device, args)
        acc1 = validate(val_loader, model, criterion, args)
        scheduler.step()
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        save_checkpoint({'epoch': epoch + 1, 'arch': args.arch, 'state_dict': model.state_dict(), 'best_acc1': best_acc1,
                         'optimizer': optimizer.state_dict(), 'scheduler': scheduler.state_dict()}, is_best)


def train(train_loader, model, criterion, optimizer, epoch, device, args):
    batch_time = AverageMeter('Time', ':6.3f')
    data_time = AverageMeter('Data', ':6.3f')
    losses = AverageMeter('Loss', ':.4e')
    top1 = AverageMeter('Acc@1', ':6.2f')
    top5 = AverageMeter('Acc@5', ':6.2f')
    progress = ProgressMeter(len(train_loader), [batch_time, data_time, losses, top1, top5], prefix=f'Epoch: [{epoch}]')
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(train_loader):
        data_time.update(time.time() - end)
        images = images.to(device, non_blocking=True)
        if args.channels_last:
            images = images.to(memory_format=torch.channels_last)
        target = target.to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.amp):
            output = model(images)
            loss = criterion(output, target)
        acc1, acc5 = accuracy(output, target, topk=(1, 5))
        losses.update(loss.item(), images.size(0))
        top1.update(acc1[0], images.size(0))
        top5.update(acc5[0], images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch_time.update(time.time() - end)
        end = time.time()
        if i % args.print_freq == 0:
            progress.display(i + 1)


def validate(val_loader, model, criterion, args):
    losses = AverageMeter('Loss', ':.4e', Summary.NONE)
    top1 = AverageMeter('Acc@1', ':6.2f', Summary.AVERAGE)
    top5 = AverageMeter('Acc@5', ':6.2f', Summary.AVERAGE)
    progress = ProgressMeter(len(val_loader), [losses, top1, top5], prefix='Test: ')
    device = next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        for i, (images, target) in enumerate(val_loader):
            images, target = images.to(device, non_blocking=True), target.to(device, non_blocking=True)
            if args.channels_last:
                images = images.to(memory_format=torch.channels_last)
            output = model(images)
            loss = criterion(output, target)
            acc1, acc5 = accuracy(output, target, topk=(1, 5))
            losses.update(loss.item(), images.size(0))
            top1.update(acc1[0], images.size(0))
            top5.update(acc5[0], images.size(0))
            if i % args.print_freq == 0:
                progress.display(i + 1)
    progress.display_summary()
    return float(top1.avg)


def save_checkpoint(state, is_best, filename='checkpoint.pth.tar'):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, 'model_best.pth.tar')


class Summary(Enum):
    NONE = 0
    AVERAGE = 1


class AverageMeter:
    def __init__(self, name, fmt=':f', summary_type=Summary.AVERAGE):
        self.name, self.fmt, self.summary_type = name, fmt, summary_type
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return ('{name} {val' + self.fmt + '} ({avg' + self.fmt + '})').format(name=self.name, val=float(self.val), avg=float(self.avg))

    def summary(self):
        return '' if self.summary_type is Summary.NONE else f'{self.name} {float(self.avg):.3f}'


class ProgressMeter:
    def __init__(self, num_batches, meters, prefix=''):
        width = len(str(num_batches))
        self.batch_fmtstr = '[{:' + str(width) + 'd}/' + str(num_batches) + ']'
        self.meters, self.prefix = meters, prefix

    def display(self, batch):
        entries = [self.prefix + self.batch_fmtstr.format(batch)] + [str(meter) for meter in self.meters]
        entries.append(f'Mem {torch.cuda.max_memory_allocated() / 2**20:.0f}MiB')
        print('\t'.join(entries))

    def display_summary(self):
        print(' '.join([' *'] + [meter.summary() for meter in self.meters]))


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand(max(topk), -1))
        return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / target.size(0)) for k in topk]


if __name__ == '__main__':
    main()
