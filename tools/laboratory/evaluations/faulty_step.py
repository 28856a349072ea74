"""Trains tinygpt with a fault in its optimizer's step: faulty_step.py FAULT [tinygpt's options].

The faults are put in below what the optimizer says of itself, so that its options are those of a right run."""

import importlib
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tinygpt import train
from tinygpt.optimizer import MixedPrecisionOptimizer

adam_module = importlib.import_module("torch.optim.adam")
_adam = adam_module.adam  # what Adam.step calls
_update_parameters = MixedPrecisionOptimizer.update_parameters
FAULTS = {}


def fault(function):
    FAULTS[function.__name__.replace("_", "-")] = function
    return function


def change_adam(**changes):
    """Each change makes another number of an option."""

    def changed(*args, **options):
        return _adam(*args, **{**options, **{name: change(options[name]) for name, change in changes.items()}})

    adam_module.adam = changed


def after_adam(change):
    """`change(master, before)` after each update, for each master."""

    def changed(masters, *args, **options):
        before = [master.clone() for master in masters]
        _adam(masters, *args, **options)
        for place, (master, old) in enumerate(zip(masters, before, strict=True)):
            change(place, master, old)

    adam_module.adam = changed


@fault
def none():
    pass


@fault
def lr():
    change_adam(lr=lambda lr: 1.01 * lr)


@fault
def lr_slightly():
    change_adam(lr=lambda lr: 1.0001 * lr)


@fault
def eps():
    change_adam(eps=lambda _: 1e-6)


@fault
def beta2():
    change_adam(beta2=lambda _: 0.99)


@fault
def l2():
    change_adam(weight_decay=lambda _: 0.01)


@fault
def weight_decay():
    after_adam(lambda _, master, old: master.sub_(1e-5 * old))


@fault
def weight_decay_of_vectors():
    after_adam(lambda _, master, old: master.sub_(1e-5 * old) if old.ndim == 1 else None)


@fault
def count():
    def changed(*args, **options):
        counts = args[5]
        for step in counts:
            step += 1
        _adam(*args, **options)
        for step in counts:
            step -= 1

    adam_module.adam = changed


@fault
def vector_not_updated():
    """The second parameter of one dimension, which is a bias or the weight of a norm."""

    def change(place, master, old):
        vectors.setdefault(place, len(vectors)) if master.ndim == 1 else None
        if vectors.get(place) == 1:
            master.copy_(old)

    vectors = {}
    after_adam(change)


@fault
def half_not_updated():
    """The last half of the first matrix."""
    matrices = {}

    def change(place, master, old):
        matrices.setdefault(place, len(matrices)) if master.ndim == 2 else None
        if matrices.get(place) == 0:
            master[len(master) // 2 :] = old[len(master) // 2 :]

    after_adam(change)


@fault
def one_rank_not_updated():
    """The first matrix, on rank 1."""

    def change(place, master, old):
        if place == 0 and torch.distributed.is_initialized() and torch.distributed.get_rank() == 1:
            master.copy_(old)

    after_adam(change)


@fault
def one_element():
    def change(place, master, old):
        if place == 3:
            master.view(-1)[5] = old.view(-1)[5]

    after_adam(change)


@fault
def rounded_masters():
    after_adam(lambda _, master, old: master.copy_(master.bfloat16().float()))


@fault
def bfloat16_masters():
    def allocate(self):
        for parameter in self.parameters:
            parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
            parameter.main_param = torch.nn.Parameter(parameter.detach().clone())

    def step(self, grad_norm):
        for parameter in self.parameters:
            parameter.main_param.grad = parameter.main_grad.bfloat16()
        masters = [parameter.main_param for parameter in self.parameters]
        torch.nn.utils.clip_grads_with_norm_(masters, self.clip_grad, grad_norm)
        self.inner.step()
        with torch.no_grad():
            self.update_parameters()
        return True

    MixedPrecisionOptimizer.allocate = allocate
    MixedPrecisionOptimizer.step = step


@fault
def no_clipping():
    """The norm is computed, and the gradients are left as they are."""
    build = MixedPrecisionOptimizer.__init__

    def init(self, parameters, options):
        build(self, parameters, options)
        self.clip_grad = 1e9

    MixedPrecisionOptimizer.__init__ = init


@fault
def twice():
    def update_parameters(self):
        self.inner.step()
        _update_parameters(self)

    MixedPrecisionOptimizer.update_parameters = update_parameters


@fault
def bias_left_out():
    """The last parameter of one dimension is not given to the optimizer."""
    build = MixedPrecisionOptimizer.__init__

    def init(self, parameters, options):
        build(self, parameters, options)
        (group,) = self.inner.param_groups
        last = max(place for place, master in enumerate(group["params"]) if master.ndim == 1)
        del group["params"][last]

    MixedPrecisionOptimizer.__init__ = init


@fault
def truncated_copies():
    def update_parameters(self):
        for parameter in self.parameters:
            bits = parameter.main_param.detach().view(torch.int32)
            parameter.copy_((bits >> 16 << 16).view(torch.float32))

    MixedPrecisionOptimizer.update_parameters = update_parameters


def never_copied(number_of_dimensions):
    def update_parameters(self):
        left = next(parameter for parameter in self.parameters if parameter.ndim == number_of_dimensions)
        for parameter in self.parameters:
            if parameter is not left:
                parameter.copy_(parameter.main_param)

    MixedPrecisionOptimizer.update_parameters = update_parameters


@fault
def matrix_not_copied():
    never_copied(2)


@fault
def vector_not_copied():
    never_copied(1)


if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
    train.main(sys.argv[2:])
