"""Graph regression by message passing: edges gather, nodes add up; graphs of a batch form one big graph."""

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Data:
    """Nodes, edges and the graph each node belongs to."""

    def __init__(self, x, pos, edge_index, y, batch=None, num_graphs=1):
        self.x, self.pos, self.edge_index, self.y, self.batch, self.num_graphs = x, pos, edge_index, y, batch, num_graphs

    def to(self, device):
        return Data(*(t.to(device, non_blocking=True) for t in (self.x, self.pos, self.edge_index, self.y, self.batch)),
                    num_graphs=self.num_graphs)

    def pin_memory(self):
        return Data(*(t.pin_memory() for t in (self.x, self.pos, self.edge_index, self.y, self.batch)),
                    num_graphs=self.num_graphs)


class Molecules(Dataset):
    def __init__(self, count, most_atoms, seed):
        self.count, self.pool = count, []
        rng = np.random.default_rng(seed)
        for _ in range(200):
            n = int(rng.integers(most_atoms // 2, most_atoms + 1))
            pos = torch.from_numpy(rng.normal(size=(n, 3)).astype(np.float32)) * 0.5 * n ** (1 / 3)
            near = (torch.cdist(pos, pos) < 2.5).fill_diagonal_(False)
            self.pool.append(Data(torch.from_numpy(rng.integers(0, 10, n)), pos, near.nonzero().t().contiguous(), pos.norm()))

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return self.pool[i % len(self.pool)]


def collate(graphs):
    sizes = torch.tensor([len(g.x) for g in graphs])
    offsets = torch.cumsum(sizes, 0) - sizes
    return Data(torch.cat([g.x for g in graphs]), torch.cat([g.pos for g in graphs]),
                torch.cat([g.edge_index + o for g, o in zip(graphs, offsets)], dim=1),
                torch.stack([g.y for g in graphs]), torch.repeat_interleave(torch.arange(len(graphs)), sizes), len(graphs))


class Interaction(nn.Module):
    def __init__(self, hidden, gaussians):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(gaussians, hidden), nn.Softplus(), nn.Linear(hidden, hidden))
        self.lin1, self.lin2, self.lin3 = nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)

    def forward(self, h, edge_index, edge_attr, envelope):
        source, target = edge_index
        message = self.lin1(h)[source] * self.filter(edge_attr) * envelope
        gathered = torch.zeros_like(h).index_add_(0, target, message.to(h.dtype))
        return h + self.lin3(F.softplus(self.lin2(gathered)))


class SchNet(nn.Module):
    def __init__(self, hidden, layers, gaussians=50, cutoff=2.5):
        super().__init__()
        self.cutoff = cutoff
        self.embedding = nn.Embedding(100, hidden)
        self.register_buffer('centres', torch.linspace(0, cutoff, gaussians))
        self.interactions = nn.ModuleList(Interaction(hidden, gaussians) for _ in range(layers))
        self.out = nn.Sequential(nn.Linear(hidden, hidden // 2), nn.Softplus(), nn.Linear(hidden // 2, 1))

    def forward(self, data):
        source, target = data.edge_index
        distance = (data.pos[source] - data.pos[target]).norm(dim=-1)
        edge_attr = torch.exp(-10 * (distance[:, None] - self.centres) ** 2)
        envelope = 0.5 * (torch.cos(distance * torch.pi / self.cutoff) + 1)[:, None]
        h = self.embedding(data.x)
        for interaction in self.interactions:
            h = interaction(h, data.edge_index, edge_attr, envelope)
        return torch.zeros(data.num_graphs, 1, device=h.device).index_add_(0, data.batch, self.out(h)).squeeze(-1)


def test(model, loader, device):
    model.eval()
    error = 0.0
    with torch.no_grad():
        for data in loader:
            data = data.to(device)
            error += (model(data) - data.y).abs().sum().item()
    return error / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--graphs', type=int, default=100000)
    parser.add_argument('--most-atoms', type=int, default=60)
    parser.add_argument('--hidden', type=int, default=512)
    parser.add_argument('--layers', type=int, default=6)
    parser.add_argument('--batch-size', type=int, default=256)
    parser.add_argument('--epochs', type=int, default=300)
    parser.add_argument('--lr', type=float, default=1e-3)
    parser.add_argument('--workers', type=int, default=6)
    parser.add_argument('--print-every', type=int, default=10)
    parser.add_argument('--checkpoint', default='gnn.pt')
    args = parser.parse_args()

    torch.manual_seed(12345)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    model = SchNet(args.hidden, args.layers).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode='min', factor=0.7, patience=5, min_lr=1e-5)
    common = dict(batch_size=args.batch_size, collate_fn=collate, num_workers=args.workers,
                  pin_memory=torch.cuda.is_available())
    train_loader = DataLoader(Molecules(args.graphs, args.most_atoms, 0), shuffle=True, **common)
    val_loader = DataLoader(Molecules(max(args.graphs // 20, 4), args.most_atoms, 1), **common)
    best = None
    for epoch in range(1, args.epochs + 1):
        start = time.time()
        model.train()
        loss_all = seen = 0
        for i, data in enumerate(train_loader):
            data = data.to(device)
            optimizer.zero_grad()
            loss = F.mse_loss(model(data), data.y)
            loss.backward()
            optimizer.step()
            loss_all += loss.detach() * data.num_graphs
            seen += data.num_graphs
            if i % args.print_every == 0:
                print(f'Epoch: {epoch:03d}, batch: {i}, Loss: {loss.item():.5f}, '
                      f'mem: {torch.cuda.max_memory_allocated() / 2**20:.0f}MiB')
        val_error = test(model, val_loader, device)
        scheduler.step(val_error)
        if best is None or val_error <= best:
            best = val_error
            torch.save(model.state_dict(), args.checkpoint)
        print(f'Epoch: {epoch:03d} done, LR: {scheduler.get_last_lr()[0]:.6f}, Loss: {loss_all.item() / seen:.5f}, '
              f'Val MAE: {val_error:.5f}, {time.time() - start:.1f}s')


if __name__ == '__main__':
    main()
