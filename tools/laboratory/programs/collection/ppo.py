"""PPO with an actor and a critic in one module, two epochs, and advantages that are normalised over all ranks.

package: PyTorch
parallel: DDP, 2 ranks
mistake: each rank normalises its own advantages
shows: loss scalar, (model)* grad_output, actor grad_output
"""

from job import MISTAKE, RANK, RANKS, ddp, dist, nn, torch
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.actor, self.critic = nn.Linear(32, 4), nn.Linear(32, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.actor(h), self.critic(h).squeeze(-1)


net = ActorCritic()
model = ddp(net)
opt = torch.optim.Adam(model.parameters(), lr=3e-4, eps=1e-5)
T, N, MB = 8, 8, 2  # time, environments, minibatches


def allsum(x):
    if RANKS > 1 and not MISTAKE:
        dist.all_reduce(x)
    return x


def normalize(a):
    n = allsum(torch.tensor(float(a.numel())))
    mean = allsum(a.sum()) / n
    var = allsum(((a - mean) ** 2).sum()) / (n - 1)
    return (a - mean) / (var.sqrt() + 1e-8)


for update in range(2):
    g = torch.Generator().manual_seed(update)
    obs = torch.randn(N, T, 8, generator=g)  # environments first
    reward, u = torch.randn(N, T, generator=g), torch.rand(N, T, generator=g)
    obs, reward, u = (v.chunk(RANKS)[RANK] for v in (obs, reward, u))
    with torch.no_grad():
        logits, value = net(obs)
        action = (logits.softmax(-1).cumsum(-1) < u[..., None]).sum(-1).clamp(max=3)
        old_logp = Categorical(logits=logits).log_prob(action)
        adv, last = torch.zeros_like(reward), 0
        for t in reversed(range(T)):
            nxt = value[:, t + 1] if t + 1 < T else torch.zeros_like(value[:, 0])
            last = reward[:, t] + 0.99 * nxt - value[:, t] + 0.99 * 0.95 * last
            adv[:, t] = last
        returns = adv + value
    for epoch in range(2):
        for times in torch.randperm(T, generator=g).chunk(MB):  # minibatches of time steps: the same on all ranks
            pick = lambda v: v[:, times].flatten(0, 1)
            logits, value = model(pick(obs))
            d = Categorical(logits=logits)
            ratio = (d.log_prob(pick(action)) - pick(old_logp)).exp()
            a = normalize(pick(adv))
            policy = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
            loss = policy + 0.5 * ((value - pick(returns)) ** 2).mean() - 0.01 * d.entropy().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            opt.step()
