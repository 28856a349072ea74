"""One model in two programs, whose modules have other names."""

from job import RANKS, ddp, nn, own, scaled, step, torch


class Net(nn.Module):
    def __init__(self, names):
        super().__init__()
        self.names = names
        layers = nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)
        for name, layer in zip(names, layers, strict=True):
            self.add_module(name, layer)

    def forward(self, x):
        for name in self.names:
            x = getattr(self, name)(x)
        return x


names = ("embed", "first", "middle", "second", "head") if RANKS == 1 else ("wte", "act", "mlp", "act_2", "lm_head")
model = ddp(Net(names))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
x, y = torch.randn(8, 16), torch.randn(8, 4)
for _ in range(2):
    step(optimizer, scaled(nn.functional.mse_loss(model(own(x)), own(y))))
