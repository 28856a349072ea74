"""A VQ-VAE whose codebook follows the samples of all ranks.

package: PyTorch
parallel: DDP, 2 ranks
mistake: sums of samples are not reduced, their counts are
shows: quantize.embed* buffer_after
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Quantizer(nn.Module):
    def __init__(self, n=32, d=8):
        super().__init__()
        self.register_buffer("embed", torch.randn(n, d) * 0.3)
        self.register_buffer("cluster_size", torch.ones(n))
        self.register_buffer("embed_avg", self.embed.clone())

    def forward(self, z):  # B D H W
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])
        idx = torch.cdist(flat, self.embed).argmin(1)
        onehot = F.one_hot(idx, len(self.embed)).type(flat.dtype)
        q = F.embedding(idx, self.embed).view(z.shape[0], z.shape[2], z.shape[3], -1).permute(0, 3, 1, 2)
        if self.training:
            with torch.no_grad():
                count, total = onehot.sum(0), onehot.t() @ flat
                if RANKS > 1:
                    dist.all_reduce(count)
                    if not MISTAKE:
                        dist.all_reduce(total)
                self.cluster_size.mul_(0.99).add_(count, alpha=0.01)
                self.embed_avg.mul_(0.99).add_(total, alpha=0.01)
                m = self.cluster_size.sum()
                size = (self.cluster_size + 1e-5) / (m + len(self.embed) * 1e-5) * m
                self.embed.copy_(self.embed_avg / size[:, None])
        diff = (q.detach() - z).pow(2).mean()
        return z + (q - z).detach(), diff, idx


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 8, 4, 2, 1))
        self.quantize = Quantizer()
        self.dec = nn.Sequential(nn.ConvTranspose2d(8, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1))

    def forward(self, x):
        q, diff, _ = self.quantize(self.enc(x))
        return self.dec(q), diff


model = VQVAE()
if RANKS > 1:
    model = DDP(model, broadcast_buffers=False)
opt = torch.optim.Adam(model.parameters(), lr=3e-4)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(8, 3, 16, 16, generator=g)
    n = 8 // RANKS
    x = x[RANK * n : (RANK + 1) * n]
    out, diff = model(x)
    loss = F.mse_loss(out, x) + 0.25 * diff
    opt.zero_grad()
    loss.backward()
    opt.step()
