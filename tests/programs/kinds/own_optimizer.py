"""An optimizer that is none of PyTorch's: SGD with momentum, written by hand, behind two micro-batches."""

from job import MISTAKE, RANK, RANKS, nn, own, summed, torch


class Momentum:
    def __init__(self, parameters, rate):
        self.parameters, self.rate, self.kept = list(parameters), rate, {}

    @torch.no_grad()
    def step(self):
        for number, parameter in enumerate(self.parameters):
            is_forgotten = MISTAKE == "unreduced" and number == 3
            gradient = parameter.grad if is_forgotten else summed(parameter.grad) / RANKS
            velocity = self.kept.get(number, torch.zeros_like(gradient)) * 0.9 + gradient
            self.kept[number] = velocity
            parameter -= velocity * self.rate * (1.01 if MISTAKE == "rate" and RANK == 1 else 1)
            parameter.grad = None


model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = Momentum(model.parameters(), 0.1)
for _ in range(3):
    for _ in range(2):
        batch, labels = torch.randn(8, 8), torch.randint(4, (8,))
        (nn.functional.cross_entropy(model(own(batch)), own(labels)) / 2).backward()
    optimizer.step()
