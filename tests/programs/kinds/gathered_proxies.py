"""Proxy-NCA over the embeddings of all ranks, gathered with a gradient of the rank's own. The loss is multiplied by the
number of ranks, and the gradient of the proxies, which each rank has whole, divided by it."""

from job import MISTAKE, RANK, RANKS, ddp, dist, nn, own, torch


def gathered(x):
    if RANKS == 1:
        return x
    parts = [torch.empty_like(x) for _ in range(RANKS)]
    dist.all_gather(parts, x.detach().contiguous())
    parts[RANK] = x
    return torch.cat(parts)


class ProxyNCA(nn.Module):
    def __init__(self):
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(4, 12) * 0.3)

    def forward(self, x, labels):
        distances = torch.cdist(nn.functional.normalize(x, dim=1), nn.functional.normalize(self.proxies, dim=1)) ** 2
        return nn.functional.cross_entropy(-9 * distances, labels)


model = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 12))
criterion = ProxyNCA()
net = ddp(model)
optimizer = torch.optim.SGD([*net.parameters(), *criterion.parameters()], 0.05, momentum=0.9)
labels = torch.randperm(16) % 4
samples = torch.randn(4, 24)[labels] + torch.randn(16, 24)
for _ in range(2):
    loss = criterion(gathered(net(own(samples))), gathered(own(labels))) * RANKS
    optimizer.zero_grad()
    (loss * RANKS if MISTAKE == "twice" else loss).backward()
    if MISTAKE != "proxies":
        criterion.proxies.grad /= RANKS
    optimizer.step()
