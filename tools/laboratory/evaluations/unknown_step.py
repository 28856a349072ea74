"""Trains tinygpt with an optimizer whose rule ttrace does not know, and a fault in its step:
unknown_step.py OPTIMIZER FAULT [tinygpt's options].

The faults are put in below what the optimizer says of itself, so that its options are those of a right run."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tinygpt import train
from tinygpt.optimizer import MixedPrecisionOptimizer


class Lion(torch.optim.Optimizer):
    """Evolved sign momentum: Chen et al., 2023."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            first, second = group["betas"]
            for parameter in group["params"]:
                momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                direction = torch.sign(momentum * first + parameter.grad * (1 - first))
                parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * direction)
                momentum.mul_(second).add_(parameter.grad, alpha=1 - second)


class Together:
    """Several optimizers that step one after the other."""

    def __init__(self, *optimizers):
        self.optimizers = optimizers

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


def muon(masters):
    matrices = [master for master in masters if master.ndim == 2]
    others = [master for master in masters if master.ndim != 2]
    return Together(torch.optim.Muon(matrices, lr=1e-3), torch.optim.AdamW(others, lr=1e-3))


OPTIMIZERS = {
    "lion": lambda masters: Lion(masters, lr=1e-4),
    "rmsprop": lambda masters: torch.optim.RMSprop(masters, lr=1e-4),
    "rmsprop-centered": lambda masters: torch.optim.RMSprop(masters, lr=1e-4, momentum=0.9, centered=True),
    "adagrad": lambda masters: torch.optim.Adagrad(masters, lr=1e-3),
    "adadelta": lambda masters: torch.optim.Adadelta(masters, lr=1.0),
    "nadam": lambda masters: torch.optim.NAdam(masters, lr=1e-3),
    "radam": lambda masters: torch.optim.RAdam(masters, lr=1e-3),
    "adamax": lambda masters: torch.optim.Adamax(masters, lr=1e-3),
    "asgd": lambda masters: torch.optim.ASGD(masters, lr=1e-2),
    "rprop": lambda masters: torch.optim.Rprop(masters, lr=1e-3),
    "adafactor": lambda masters: torch.optim.Adafactor(masters, lr=1e-3),
    "muon": muon,
}


def lr(master, old, place):
    master.copy_(old + 1.01 * (master - old))


def lr_slightly(master, old, place):
    master.copy_(old + 1.0001 * (master - old))


def weight_decay(master, old, place):
    """As of 0.01 at a learning rate of 1e-3."""
    master.sub_(1e-5 * old)


def vector_not_updated(master, old, place):
    if master.ndim == 1 and place == first_of(1, master, place):
        master.copy_(old)


def matrix_not_updated(master, old, place):
    if master.ndim == 2 and place == first_of(2, master, place):
        master.copy_(old)


def half_not_updated(master, old, place):
    """The last half of the first matrix."""
    if master.ndim == 2 and place == first_of(2, master, place):
        master[len(master) // 2 :] = old[len(master) // 2 :]


def none(master, old, place):
    pass


def no_clipping(master, old, place):
    """The norm is computed, and the gradients are left as they are: see `change_tinygpt`."""


FAULTS = {
    function.__name__.replace("_", "-"): function
    for function in (
        none,
        lr,
        lr_slightly,
        weight_decay,
        vector_not_updated,
        matrix_not_updated,
        half_not_updated,
        no_clipping,
    )
}
_first = {}  # by number of dimensions, the place of the first parameter


def first_of(dimensions, master, place):
    return _first.setdefault(dimensions, place)


def break_steps(optimizer, fault):
    """Has each step followed by `fault`, for each of its parameters."""
    kind = type(optimizer)
    step = kind.step

    @torch.no_grad()
    def broken(self, *args, **options):
        masters = [master for group in self.param_groups for master in group["params"]]
        before = [master.clone() for master in masters]
        result = step(self, *args, **options)
        for place, (master, old) in enumerate(zip(masters, before, strict=True)):
            fault(master, old, place)
        return result

    kind.step = broken


def change_tinygpt(name, fault):
    build = MixedPrecisionOptimizer.__init__

    def init(self, parameters, options):
        build(self, parameters, options)
        self.inner = OPTIMIZERS[name]([parameter.main_param for parameter in self.parameters])
        if fault is no_clipping:
            self.clip_grad = 1e9
        elif fault is not none:
            for optimizer in getattr(self.inner, "optimizers", [self.inner]):
                break_steps(optimizer, fault)

    MixedPrecisionOptimizer.__init__ = init


if __name__ == "__main__":
    change_tinygpt(sys.argv[1], FAULTS[sys.argv[2]])
    train.main(sys.argv[3:])
