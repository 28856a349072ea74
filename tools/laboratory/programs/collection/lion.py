"""Lion and an average of the shards, under a schedule with warm-up.

package: PyTorch
parallel: FSDP2, 2 ranks
mistake: label smoothing is 0.11 on rank 1, in place of 0.1
shows: loss scalar
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, nn, torch
from torch.distributed.fsdp import fully_shard


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((m * b1 + p.grad * (1 - b1)).sign(), alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.mix, self.up, self.down = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        h = self.n1(x)
        x = x + self.mix(h.cumsum(1) / torch.arange(1, h.shape[1] + 1)[:, None])
        return x + self.down(F.gelu(self.up(self.n2(x))))


class LM(nn.Module):
    def __init__(self, v=64, d=32):
        super().__init__()
        self.emb, self.blocks, self.norm, self.head = (
            nn.Embedding(v, d),
            nn.ModuleList(Block(d) for _ in range(2)),
            nn.LayerNorm(d),
            nn.Linear(d, v),
        )

    def forward(self, x):
        x = self.emb(x)
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


model = LM()
if RANKS > 1:
    for b in model.blocks:
        fully_shard(b)
    fully_shard(model)
ema = [p.detach().clone() for p in model.parameters()]
opt = Lion(model.parameters(), lr=1e-4, weight_decay=0.1)
warm = torch.optim.lr_scheduler.LinearLR(opt, 0.5, total_iters=2)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
sched = torch.optim.lr_scheduler.SequentialLR(opt, [warm, cosine], [2])
for step in range(3):
    x = torch.randint(64, (8, 17), generator=torch.Generator().manual_seed(step)).chunk(RANKS)[RANK]
    loss = F.cross_entropy(
        model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten(), label_smoothing=0.1 + (0.01 if MISTAKE and RANK == 1 else 0)
    )
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
    sched.step()
    torch._foreach_lerp_(ema, [p.detach() for p in model.parameters()], 1 - min(0.99, (1 + step) / (10 + step)))
