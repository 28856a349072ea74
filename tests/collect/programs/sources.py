"""A model whose modules are defined and called in all the ways that a line can be found, or not, in one iteration.
Comments mark the lines that the test looks for."""

import functools

import torch

torch.manual_seed(0)


def decorated(forward):
    @functools.wraps(forward)
    def wrapper(*args):
        return forward(*args)

    return wrapper


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))

    def forward(self, x):  # Mlp.forward
        return self.net(x)  # net


def scaled(factor):
    class Scaled(torch.nn.Module):
        def forward(self, x):
            return x * factor

    class Shifted(torch.nn.Module):
        def forward(self, x):
            return x + factor

    Shifted.__qualname__ = Scaled.__qualname__
    return Scaled(), Shifted()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Mlp(), Mlp()])
        self.branches = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])
        self.scaled, self.shifted = scaled(2.0)
        self.head = torch.nn.Linear(4, 2)

    @decorated  # Model.forward
    def forward(self, x):
        for layer in self.layers:
            x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)  # layers
        x = self.branches[0](x)  # branches.0
        x = self.branches[1](x)  # branches.1
        return self.head(self.shifted(self.scaled(x)))  # head


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(3, 4)).sum().backward()  # model
optimizer.step()
