"""What runs without gradients: an evaluation, a rollout's log-probabilities, and what a training step makes of
them."""

import sys

from job import MISTAKE, RANK, RANKS, ddp, nn, own, step, summed, torch

kind = sys.argv[1]


class Metric(nn.Module):
    """Counts what is right over all samples and ranks."""

    def __init__(self):
        super().__init__()
        self.register_buffer("right", torch.zeros(()))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, logits, labels):
        right, seen = (logits.argmax(-1) == labels).float().sum(), torch.tensor(float(len(labels)))
        self.right += right if MISTAKE == "metric-unreduced" else summed(right)
        self.seen += seen if MISTAKE == "metric-unreduced" else summed(seen)
        return self.right / self.seen


model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Dropout(0.1), nn.Tanh(), nn.Linear(32, 6))
metric = Metric()
net = ddp(model)
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)


def log_probabilities(of, x, actions):
    return of(x).log_softmax(-1).gather(-1, actions[:, None])[:, 0]


model.eval()
if kind == "evaluation":
    if MISTAKE == "in-training-mode" and RANK == 1:
        model.train()
    if MISTAKE == "weights-of-another" and RANK == 1:
        with torch.no_grad():
            model[4].bias.add_(1e-3)
    with torch.no_grad():
        for _ in range(2):
            x, labels = torch.randn(8, 16), torch.randint(6, (8,))
            metric(net(own(x)), own(labels))
else:  # a policy's steps on samples of its own, whose log-probabilities are those before the first
    for number in range(3):
        x, actions, returns = torch.randn(8, 16), torch.randint(6, (8,)), torch.randn(8)
        x, actions, returns = own(x), own(actions), own(returns)
        with torch.no_grad():
            before = log_probabilities(model, x, actions)
            if MISTAKE == "stale-log-probabilities" and number == 1 and RANK == 1:
                before = before - 0.01
            mean = returns.mean() if MISTAKE == "own-advantages" else summed(returns.mean()) / RANKS
        ratio = (log_probabilities(net, x, actions) - before).exp()
        step(optimizer, -(ratio * (returns - mean)).mean())
