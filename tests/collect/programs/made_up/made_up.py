"""A framework that does all that adapters are there for, without a second rank."""

import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn import functional

arrangement = ""  # "find": it knows the mesh; "groups": it knows groups of ranks
rehearsing = False


class Cache:
    def __init__(self):
        self.tensor = torch.zeros(3, 4)


class Attention(nn.Linear):
    def forward(self, x, cache):
        cache.tensor = super().forward(x)
        return cache.tensor


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Copied(nn.Linear):
    def forward(self, x):
        self.original = super().forward(x)
        return Copy.apply(self.original)


class Router(nn.Linear):
    def forward(self, x):
        return self.choose(super().forward(x))

    def choose(self, logits):
        return logits.softmax(-1)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.inside = nn.Parameter(torch.ones(4)), nn.Linear(4, 4)

    def forward(self, x):
        return self.inside(x) * self.weight


class Late(nn.Linear):
    """The gradient of its weight is computed after all backwards: `Stage`."""

    def __init__(self):
        super().__init__(4, 4, bias=False)
        self.saved = []

    def forward(self, x):
        y = functional.linear(x, self.weight.detach())
        if y.requires_grad:
            y.register_hook(lambda gradient: self.saved.append((x.detach(), gradient)))
        return y


class Stage:
    def __init__(self, submod):
        self.submod = submod

    def backward_weights(self, number):
        x, gradient = self.submod.late.saved[number]
        run_backward(functional.linear(x, self.submod.late.weight), gradient)


class Flat(nn.Module):
    """A rank has one row of its weight, in a flat parameter, and gathers the other one."""

    def __init__(self):
        super().__init__()
        self.flat = nn.Parameter(torch.ones(4))

    def forward(self, x):
        gather(self)
        return functional.linear(x, self.weight)


def gather(module):
    module.weight = torch.stack([module.flat, module.flat])


class Optimizer:
    """Steps with gradients that have a loss scale on them."""

    def __init__(self, optimizer, scale):
        self.optimizer, self.scale, self.norm = optimizer, scale, 0.0

    def step(self):
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad.div_(self.scale)
        self.norm = 0.25
        self.optimizer.step()


def rehearse(model, *args):
    global rehearsing
    rehearsing = True
    model(*args)
    rehearsing = False


def train(model, *args):
    return model.training_step(*args)


def checkpoint(function, *args):
    return torch.utils.checkpoint.CheckpointFunction.apply(function, True, *args)


def backward(loss):
    run_backward(loss, torch.ones_like(loss))


def run_backward(tensor, gradient):
    engine = torch.autograd.Variable._execution_engine
    engine.run_backward((tensor,), (gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True)


def clip_by(gradients_of, limit, length):
    for parameter in gradients_of:
        parameter.grad.mul_(min(1.0, limit / length))
