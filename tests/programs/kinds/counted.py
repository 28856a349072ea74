"""A model that is given how many of its samples count, as transformers' Trainer does: each rank its own number."""

from job import MISTAKE, RANK, ddp, nn, own, step, torch


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 1)

    def forward(self, x, count):
        return self.down(self.up(x).tanh()).square().sum() / count


model = Model()
wrapped = ddp(model)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(2):
    samples = own(torch.randn(8, 16))
    count = len(samples) + (1 if MISTAKE == "count" and RANK == 1 else 0)
    step(optimizer, wrapped(samples, torch.tensor(count)))
