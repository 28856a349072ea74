"""Micro-batches of signals and of masks that are drawn for them, of which each rank has consecutive ones."""

from job import MISTAKE, RANK, RANKS, dist, nn, scaled, torch

MICROBATCHES = 4


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(16))
        self.inside = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x, mask):
        return self.inside(torch.where(mask[..., None], self.token, x))


model = Masked()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    signals, masks = torch.randn(MICROBATCHES, 4, 10, 16), torch.rand(MICROBATCHES, 4, 10) < 0.3
    if MISTAKE != "first":
        masks = masks.chunk(RANKS)[RANK]
    optimizer.zero_grad()
    for x, mask in zip(signals.chunk(RANKS)[RANK], masks, strict=False):
        scaled((model(x, mask) - x)[mask].square().mean() / (MICROBATCHES // RANKS)).backward()
    for parameter in model.parameters() if RANKS > 1 else ():
        dist.all_reduce(parameter.grad)
        parameter.grad /= RANKS
    optimizer.step()
