"""Equivariant message passing for energies, and forces by an inner gradient.

package: e3nn
parallel: DDP, 2 ranks
mistake: rank 1 weighs forces by 10.1 in place of 10
shows: loss scalar
"""

from e3nn import o3
from e3nn.nn import FullyConnectedNet
from job import MISTAKE, RANK, RANKS, ddp, nn, torch

torch.manual_seed(0)


class Conv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.sh = o3.Irreps.spherical_harmonics(1)
        self.tp = o3.FullyConnectedTensorProduct(i, self.sh, o, shared_weights=False)
        self.fc = FullyConnectedNet([1, 8, self.tp.weight_numel], torch.relu)

    def forward(self, x, src, dst, vec):
        y = o3.spherical_harmonics(self.sh, vec, True, normalization="component")
        w = self.fc(vec.norm(dim=-1, keepdim=True))
        return torch.zeros(x.shape[0], self.tp.irreps_out.dim).index_add(0, dst, self.tp(x[src], y, w)) / 4


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(3, 4)
        self.c1 = Conv("4x0e", "4x0e + 2x1o")
        self.c2 = Conv("4x0e + 2x1o", "1x0e")

    def forward(self, z, pos, src, dst, batch, count):
        vec = pos[dst] - pos[src]
        h = self.c1(self.embed(z), src, dst, vec)
        e = self.c2(h, src, dst, vec)
        return torch.zeros(count, 1).index_add(0, batch, e)


class WithForces(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Energy()

    def forward(self, z, pos, src, dst, batch, count):
        pos = pos.requires_grad_()
        e = self.net(z, pos, src, dst, batch, count)
        (f,) = torch.autograd.grad(e.sum(), pos, create_graph=True)
        return e, -f


model = WithForces()
model = ddp(model)
opt = torch.optim.Adam(model.parameters(), lr=5e-3, amsgrad=True)
g = torch.Generator().manual_seed(1)
A = 5  # atoms of a molecule
Z = torch.randint(3, (24, A), generator=g)
P = torch.randn(24, A, 3, generator=g)
E = torch.randn(24, 1, generator=g)
Fo = torch.randn(24, A, 3, generator=g)
pairs = torch.tensor([(i, j) for i in range(A) for j in range(A) if i != j]).T
n = 8
for step in range(3):
    m = n // RANKS
    lo = step * n + RANK * m
    off = (torch.arange(m) * A).repeat_interleave(pairs.shape[1])
    src, dst = pairs[0].repeat(m) + off, pairs[1].repeat(m) + off
    opt.zero_grad()
    e, f = model(
        Z[lo : lo + m].flatten(),
        P[lo : lo + m].reshape(-1, 3).clone(),
        src,
        dst,
        torch.arange(m).repeat_interleave(A),
        m,
    )
    w = 10.1 if MISTAKE and RANK == 1 else 10.0
    loss = (e - E[lo : lo + m]).pow(2).mean() + w * (f - Fo[lo : lo + m].reshape(-1, 3)).pow(2).mean()
    loss.backward()
    opt.step()
