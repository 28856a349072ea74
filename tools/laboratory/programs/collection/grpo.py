"""GRPO: a rollout of an old policy, a frozen one, and advantages within groups.

package: PyTorch
parallel: DDP, 2 ranks
mistake: rank 1 does not divide its advantages by their deviation
shows: loss scalar, (model)* grad_output
"""

import copy

from job import MISTAKE, RANK, RANKS, ddp, nn, torch


class Policy(nn.Module):
    def __init__(self, v=20, d=24):
        super().__init__()
        self.emb, self.rnn, self.head = nn.Embedding(v, d), nn.GRU(d, d, batch_first=True), nn.Linear(d, v)

    def forward(self, x):
        return self.head(self.rnn(self.emb(x))[0])


policy = Policy()
old = copy.deepcopy(policy)
frozen = copy.deepcopy(policy).requires_grad_(False)
with torch.no_grad():
    for p in frozen.parameters():
        p.add_(torch.randn_like(p) * 0.02)
model = ddp(policy)
opt = torch.optim.AdamW(policy.parameters(), lr=1e-3)
GROUP, T = 4, 6
for step in range(3):
    g = torch.Generator().manual_seed(step)
    prompts = torch.randint(20, (4, 3), generator=g)
    u = torch.rand(4 * GROUP, T, generator=g)
    n = 4 // RANKS
    x = prompts[RANK * n : (RANK + 1) * n].repeat_interleave(GROUP, 0)
    u = u[RANK * n * GROUP : (RANK + 1) * n * GROUP]
    old.load_state_dict(policy.state_dict())
    with torch.no_grad():  # rollout, by the inverse of the distribution function
        for t in range(T):
            p = old(x)[:, -1].softmax(-1)
            nxt = (p.cumsum(-1) < u[:, t : t + 1]).sum(-1).clamp(max=19)
            x = torch.cat([x, nxt[:, None]], 1)
    reward = (x[:, 3:] % 2 == 0).float().mean(1) + x[:, 3:].float().mean(1) / 20
    r = reward.view(-1, GROUP)
    adv = (r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-4)
    if MISTAKE and RANK == 1:
        adv = r - r.mean(1, keepdim=True)  # Dr. GRPO's on one rank
    adv = adv.flatten()[:, None]

    def logp(m):
        return m(x[:, :-1]).log_softmax(-1).gather(2, x[:, 1:, None])[:, 2:, 0]

    with torch.no_grad():
        lo, lf = logp(old), logp(frozen)
    ln = logp(model)
    ratio = (ln - lo).exp()
    kl = (lf - ln).exp() - (lf - ln) - 1
    loss = -(torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv) - 0.04 * kl).mean()
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 0.1)
    opt.step()
