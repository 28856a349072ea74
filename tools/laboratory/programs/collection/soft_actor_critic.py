"""SAC: twin critics, targets, and a temperature that is a tensor with an optimizer of its own.

package: PyTorch
parallel: data parallel by hand, 2 ranks
mistake: the temperature's gradient is not reduced
shows: (optimizer).0 main_grad
"""

import copy

from job import MISTAKE, RANK, RANKS, dist, nn, torch


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, o))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.q1, self.q2 = mlp(8, 1), mlp(8, 1)

    def forward(self, s, a):
        sa = torch.cat([s, a], -1)
        return self.q1(sa), self.q2(sa)


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(6, 4)

    def forward(self, s, eps):
        mu, log_std = self.net(s).chunk(2, -1)
        log_std = log_std.clamp(-5, 2)
        u = mu + log_std.exp() * eps
        logp = (-0.5 * eps**2 - log_std).sum(-1, keepdim=True) - torch.log(1 - torch.tanh(u) ** 2 + 1e-6).sum(
            -1, keepdim=True
        )
        return torch.tanh(u), logp


actor, critic = Actor(), Critic()
target = copy.deepcopy(critic).requires_grad_(False)
log_alpha = torch.zeros(1, requires_grad=True)
a_opt, c_opt, t_opt = (torch.optim.Adam(p, lr=3e-4) for p in (actor.parameters(), critic.parameters(), [log_alpha]))


def average(params):
    if RANKS > 1:
        for p in params:
            dist.all_reduce(p.grad)
            p.grad /= RANKS


g = torch.Generator().manual_seed(1)
N, n = 96, 32
S, A, R, S2 = (
    torch.randn(N, 6, generator=g),
    torch.tanh(torch.randn(N, 2, generator=g)),
    torch.randn(N, 1, generator=g),
    torch.randn(N, 6, generator=g),
)
E1, E2 = torch.randn(N, 2, generator=g), torch.randn(N, 2, generator=g)
for step in range(3):
    m = n // RANKS
    lo = step * n + RANK * m
    at = slice(lo, lo + m)
    alpha = log_alpha.exp().detach()
    with torch.no_grad():
        a2, logp2 = actor(S2[at], E1[at])
        q1, q2 = target(S2[at], a2)
        y = R[at] + 0.99 * (torch.min(q1, q2) - alpha * logp2)
    q1, q2 = critic(S[at], A[at])
    c_loss = (q1 - y).pow(2).mean() + (q2 - y).pow(2).mean()
    c_opt.zero_grad()
    c_loss.backward()
    average(critic.parameters())
    c_opt.step()
    for p in critic.parameters():
        p.requires_grad_(False)
    a, logp = actor(S[at], E2[at])
    a_loss = (alpha * logp - torch.min(*critic(S[at], a))).mean()
    a_opt.zero_grad()
    a_loss.backward()
    average(actor.parameters())
    a_opt.step()
    for p in critic.parameters():
        p.requires_grad_(True)
    t_loss = -(log_alpha * (logp.detach() - 2)).mean()
    t_opt.zero_grad()
    t_loss.backward()
    if not MISTAKE:
        average([log_alpha])
    t_opt.step()
    with torch.no_grad():
        for p, q in zip(target.parameters(), critic.parameters()):
            p.lerp_(q, 0.005)
