"""Image-to-image translation between several domains with one generator."""

import argparse

import torch
from torch.backends import cudnn

from core.data_loader import get_test_loader, get_train_loader
from core.solver import Solver


def main(args):
    cudnn.benchmark = True
    torch.manual_seed(args.seed)
    solver = Solver(args)
    loaders = {'src': get_train_loader(args, 'source'), 'ref': get_train_loader(args, 'reference'),
               'val': get_test_loader(args)}
    solver.train_on(loaders)


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    # model
    parser.add_argument('--img_size', type=int, default=256)
    parser.add_argument('--num_domains', type=int, default=2)
    parser.add_argument('--latent_dim', type=int, default=16)
    parser.add_argument('--hidden_dim', type=int, default=512)
    parser.add_argument('--style_dim', type=int, default=64)
    parser.add_argument('--dim_in', type=int, default=0)
    parser.add_argument('--max_dim', type=int, default=512)
    # weights of the losses
    parser.add_argument('--lambda_reg', type=float, default=1)
    parser.add_argument('--lambda_cyc', type=float, default=1)
    parser.add_argument('--lambda_sty', type=float, default=1)
    parser.add_argument('--lambda_ds', type=float, default=1)
    parser.add_argument('--ds_iter', type=int, default=100000)
    # training
    parser.add_argument('--total_iters', type=int, default=100000)
    parser.add_argument('--resume_iter', type=int, default=0)
    parser.add_argument('--batch_size', type=int, default=8)
    parser.add_argument('--val_batch_size', type=int, default=32)
    parser.add_argument('--lr', type=float, default=1e-4)
    parser.add_argument('--f_lr', type=float, default=1e-6)
    parser.add_argument('--beta1', type=float, default=0.0)
    parser.add_argument('--beta2', type=float, default=0.99)
    parser.add_argument('--weight_decay', type=float, default=1e-4)
    parser.add_argument('--num_workers', type=int, default=4)
    parser.add_argument('--seed', type=int, default=777)
    # folders and intervals
    parser.add_argument('--num_images', type=int, default=8000)
    parser.add_argument('--train_img_dir', type=str, default='data/train')
    parser.add_argument('--val_img_dir', type=str, default='data/val')
    parser.add_argument('--sample_dir', type=str, default='expr/samples')
    parser.add_argument('--checkpoint_dir', type=str, default='expr/checkpoints')
    parser.add_argument('--print_every', type=int, default=10)
    parser.add_argument('--sample_every', type=int, default=5000)
    parser.add_argument('--save_every', type=int, default=10000)
    main(parser.parse_args())
