"""Branches that begin at zero: a low-rank adapter's second factor (LoRA), the gate of a block (ReZero, adaLN-zero).
What is behind them has no gradient in the first step."""

from job import MISTAKE, RANK, RANKS, nn, own, summed, torch


class Adapted(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.base = nn.Linear(size, size).requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(4, size) / 4)
        self.lora_B = nn.Parameter(torch.zeros(size, 4))

    def forward(self, x):
        return self.base(x) + x @ self.lora_A.T @ self.lora_B.T


class Gated(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(size, size), nn.Tanh(), nn.Linear(size, size))
        self.gate = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        return x + self.gate * self.inner(x)


model = nn.Sequential(Adapted(16), nn.Tanh(), Gated(16), Adapted(16), Gated(16), nn.Linear(16, 4))
trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW([parameter for _, parameter in trained], 1e-2)
left_out = {"one-A-unreduced": "3.lora_A", "one-branch-unreduced": "2.inner.0.weight"}.get(MISTAKE)
for step in range(3):
    x, labels = torch.randn(8, 16), torch.randint(4, (8,))
    nn.functional.cross_entropy(model(own(x)), own(labels)).backward()
    for name, parameter in trained:
        if name != left_out:
            parameter.grad = summed(parameter.grad) / RANKS
        if MISTAKE == "gate-scaled-later" and name == "4.gate" and step == 1 and RANK == 1:
            parameter.grad *= 1.01
    optimizer.step()
    optimizer.zero_grad()
