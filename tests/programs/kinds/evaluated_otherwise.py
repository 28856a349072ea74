"""An optimizer that puts an average into its parameters for an evaluation, which one rank alone makes, and sends what
it has put back to the others (schedule-free optimizers)."""

from job import MISTAKE, RANK, RANKS, ddp, dist, nn, own, scaled, step, torch


class Averaging(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            average = state.setdefault("average", parameter.detach().clone())
            average.lerp_(parameter.detach(), 0.25)

    def exchange(self):
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                kept = parameter.clone()
                parameter.copy_(self.state[parameter]["average"])
                self.state[parameter]["average"].copy_(kept)

    def eval(self):
        self.exchange()

    def train(self):
        self.exchange()


def send():
    for parameter in model.parameters() if RANKS > 1 else ():
        dist.broadcast(parameter.data, 0)


model = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 1))
net = ddp(model)
optimizer = Averaging(model.parameters(), 0.05)
held = torch.randn(10, 8)
for _ in range(4):
    x, y = torch.randn(8, 8), torch.randn(8, 1)
    step(optimizer, scaled(nn.functional.mse_loss(net(own(x)), own(y))))
    if RANK == 0:
        optimizer.eval()
        with torch.no_grad():
            model(held)
    if MISTAKE == "sent":
        send()
    if RANK == 0:
        optimizer.train()
    if MISTAKE != "sent":
        send()
