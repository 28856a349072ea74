"""Modules with attributes of all kinds, those that are configuration and those that are not."""

import dataclasses

import torch


@dataclasses.dataclass
class Config:
    rope_theta: float = 1e4
    activation: str = "silu"
    cache_dir: str = "/home/somebody"
    hub_token: str = "hf_secret"


class Layer(torch.nn.Module):
    def __init__(self, config, number):
        super().__init__()
        self.config, self.layer_idx = config, number
        self.scale, self.window, self.cap = 0.5 / (number + 1), [2, 3], None
        self.activation = torch.nn.functional.gelu
        self.norm = torch.nn.LayerNorm(4, eps=1e-6)
        self.calls = 0  # changes
        self.odd = {"key": object()}, lambda x: x
        self.table = torch.ones(3)

    def forward(self, x):
        self.calls += 1
        return self.activation(self.norm(x)) * self.scale


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        config = Config()
        self.layers = torch.nn.ModuleList([Layer(config, number) for number in range(2)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


torch.manual_seed(7)
model, criterion = Model(), torch.nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
criterion(model(torch.randn(2, 4)), torch.tensor([0, 1])).backward()
optimizer.step()
