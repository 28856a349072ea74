"""Trains tinygpt or torchgpt with one damage: damaged.py DAMAGE [the program's options]. DAMAGE is a row of the table
of damages, in JSON (`evaluations.damages` says what its fields are)."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

CHANGES, MECHANISMS = {}, {}


def change(function):
    CHANGES[function.__name__] = function
    return function


def mechanism(function):
    MECHANISMS[function.__name__.replace("_", "-")] = function
    return function


# What is done to a tensor, wherever it is.


@change
def scaled(tensor, damage):
    return tensor * damage.factor


@change
def zeroed(tensor, damage):
    """Some neighbouring indices of the first dimension."""
    size = tensor.shape[0]
    first, count = int(damage.share * size), max(1, size // 8)
    return torch.cat([tensor[:first], 0 * tensor[first : first + count], tensor[first + count :]])


@change
def rolled(tensor, damage):
    return tensor.roll(max(1, int(damage.share * tensor.shape[0])), 0)


@change
def exchanged(tensor, damage):
    """Two neighbouring quarters of the last dimension."""
    parts = list(tensor.chunk(4, dim=-1))
    place = int(damage.share * (len(parts) - 1))
    parts[place], parts[place + 1] = parts[place + 1], parts[place]
    return torch.cat(parts, dim=-1)


@change
def transposed(tensor, damage):
    """Read as if its first two dimensions were the other way round in memory."""
    return tensor.transpose(0, 1).reshape(tensor.shape)


@change
def noisy(tensor, damage):
    generator = torch.Generator().manual_seed(damage.number)
    noise = torch.randn(tensor.shape, generator=generator)
    rms = tensor.detach().float().square().mean().sqrt()
    return tensor + (damage.size * rms * noise).to(tensor.dtype)


@change
def coarse(tensor, damage):
    narrow = torch.bfloat16 if tensor.dtype == torch.float32 else torch.float8_e4m3fn
    return _replaced(tensor, tensor.detach().to(narrow).to(tensor.dtype))


@change
def clipped(tensor, damage):
    rms = tensor.detach().float().square().mean().sqrt().item()
    return tensor.clamp(-rms, rms)


@change
def dropped_out(tensor, damage):
    generator = torch.Generator().manual_seed(damage.number)
    kept = torch.rand(tensor.shape, generator=generator) > 0.1
    return tensor * kept.to(tensor.dtype) / 0.9


@change
def one_element(tensor, damage):
    factor = torch.ones_like(tensor).flatten()
    factor[int(damage.share * tensor.numel())] = -64
    return tensor * factor.view(tensor.shape)


def _replaced(tensor, value):
    return tensor + (value - tensor).detach() if tensor.requires_grad else value


class Changer:
    """Does the damage's change to what it is called with, in the micro-batches and on the rank of the damage."""

    def __init__(self, damage):
        self.damage, self.calls, self.last = damage, -1, None

    def __call__(self, tensor):
        damage = self.damage
        self.calls += 1
        before, self.last = self.last, tensor.detach().clone()
        if damage.rank is not None and damage.rank != dist.get_rank():
            return tensor
        if damage.microbatch is not None and damage.microbatch != self.calls:
            return tensor
        if damage.change == "stale":
            return tensor if before is None else _replaced(tensor, before)
        return CHANGES[damage.change](tensor, damage)


# Where it is done.


@mechanism
def output(at):
    forward, changed = at.module.forward, Changer(at.damage)
    at.module.forward = lambda *args, **options: changed(forward(*args, **options))


@mechanism
def grad_input(at):
    """In backward, to what leaves the module."""
    forward, changed = at.module.forward, Changer(at.damage)

    def with_damaged_backward(hidden, *args, **options):
        hidden = hidden * 1.0
        hidden.register_hook(changed)
        return forward(hidden, *args, **options)

    at.module.forward = with_damaged_backward


@mechanism
def param_grad(at):
    at.parameter.register_hook(Changer(at.damage))


@mechanism
def main_grad(at):
    finalize, changed = at.ranks.finalize_gradients, Changer(at.damage)

    def finalize_gradients(model, optimizer):
        finalize(model, optimizer)
        at.parameter.main_grad.copy_(changed(at.parameter.main_grad))

    at.ranks.finalize_gradients = finalize_gradients


@mechanism
def param(at):
    with torch.no_grad():
        at.parameter.copy_(Changer(at.damage)(at.parameter.detach().clone()))


@mechanism
def inside(at):
    """To what a module computes from, after it was handed over."""
    forward, changed = at.module.forward, Changer(at.damage)
    at.module.forward = lambda hidden, *args, **options: forward(changed(hidden), *args, **options)


@mechanism
def skipped_module(at):
    at.module.forward = lambda hidden, *_, **__: hidden * 1.0


@mechanism
def sum_left_out(at):
    module = at.module
    module.forward = lambda hidden: F.linear(hidden, module.weight, module.bias)


@mechanism
def sum_averaged(at):
    from tinygpt.parallel.tensor import reduce_from_tensor_region

    module = at.module

    def forward(hidden):
        mean = reduce_from_tensor_region(F.linear(hidden, module.weight), module.axis) / module.axis.size
        return mean if module.bias is None else mean + module.bias

    module.forward = forward


@mechanism
def gathered_in_reverse(at):
    from tinygpt.parallel.sequence import gather_from_sequence_region

    module = at.module

    def forward(hidden):
        parts = gather_from_sequence_region(hidden, module.axis).chunk(module.axis.size)
        return F.linear(torch.cat(parts[::-1]), module.weight, module.bias)

    module.forward = forward


@mechanism
def gradient_sum_left_out(at):
    module = at.module
    module.forward = lambda hidden: F.linear(hidden, module.weight, module.bias)


@mechanism
def gradient_summed_twice(at):
    from tinygpt.parallel.tensor import copy_to_tensor_region

    forward, axis = at.module.forward, at.module.axis
    at.module.forward = lambda hidden: forward(copy_to_tensor_region(hidden, axis))


@mechanism
def attention_scale(at):
    forward = at.module.forward
    at.module.forward = lambda query, *rest: forward(query * at.damage.factor, *rest)


@mechanism
def no_mask(at):
    from tinygpt import attention

    def attend(query, key, value, places):
        nothing = torch.zeros(len(places.positions), len(places.positions), dtype=torch.bool)
        return attention.attention(query, key, value, nothing)

    at.module.attend = attend


@mechanism
def ids_shifted(at):
    forward, rows = at.module.forward, at.module.weight.shape[0] * getattr(getattr(at.module, "axis", None), "size", 1)
    at.module.forward = lambda ids: forward((ids + 1) % rows)


@mechanism
def epsilon(at):
    at.module.eps = at.damage.size


@mechanism
def relu(at):
    at.module.forward = F.relu


@mechanism
def bias_dropped(at):
    forward, bias = at.module.forward, at.module.bias
    at.module.forward = lambda hidden: forward(hidden) - bias


@mechanism
def bias_twice(at):
    forward, bias = at.module.forward, at.module.bias
    at.module.forward = lambda hidden: forward(hidden) + bias


def _change_accumulation(at, times):
    """The gradient of the damage's micro-batch counts so many times."""
    from tinygpt.optimizer import MixedPrecisionOptimizer

    accumulate, seen = MixedPrecisionOptimizer.accumulate, []

    def changed(self, parameter):
        if parameter is at.parameter:
            seen.append(None)
            if len(seen) - 1 == at.damage.microbatch:
                parameter.main_grad.add_(parameter.grad, alpha=times - 1)
        accumulate(self, parameter)

    MixedPrecisionOptimizer.accumulate = changed


@mechanism
def microbatch_lost(at):
    _change_accumulation(at, 0)


@mechanism
def microbatch_twice(at):
    _change_accumulation(at, 2)


def _without_reduction(at, is_left_out):
    from tinygpt.parallel import ranks as module

    def sum_gradients(model, axis):
        for parameter in model.parameters():
            if not is_left_out(parameter) and getattr(parameter, "allreduce", True):
                axis.sum(parameter.main_grad)

    module.sum_gradients = sum_gradients


@mechanism
def reduction_left_out(at):
    _without_reduction(at, lambda parameter: parameter is at.parameter)


@mechanism
def all_reductions_left_out(at):
    _without_reduction(at, lambda _: True)


@mechanism
def division_left_out(at):
    from tinygpt.parallel import ranks as module

    module.divide_gradients = lambda *_: None


@mechanism
def loss_scaled(at):
    from tinygpt import schedule
    from tinygpt.parallel import pipeline

    start = schedule.backward_start
    for module in (schedule, pipeline):
        module.backward_start = lambda *args: start(*args) * at.damage.factor


@mechanism
def shards_exchanged(at):
    with torch.no_grad():
        parts = [torch.empty_like(at.parameter) for _ in range(2)]
        dist.all_gather(parts, at.parameter.detach())
        at.parameter.copy_(parts[1 - dist.get_rank()])


@mechanism
def another_seed(at):
    generator = torch.Generator().manual_seed(at.damage.number)
    with torch.no_grad():
        value = at.parameter.float()
        drawn = torch.randn(value.shape, generator=generator) * value.std() + value.mean()
        at.parameter.copy_(drawn)


@mechanism
def not_updated(at):
    def step(optimizer, *args):
        master = at.parameter.main_param
        before = master.detach().clone()
        inner = optimizer.inner.step

        def restored():
            inner()
            master.data.copy_(before)

        optimizer.inner.step = restored

    at.before_training(step)


@mechanism
def learning_rate(at):
    """Below what the optimizer says of itself."""
    import importlib

    module = importlib.import_module("torch.optim.adam")
    adam = module.adam
    module.adam = lambda *args, **options: adam(*args, **{**options, "lr": options["lr"] * at.damage.factor})


def main():
    damage = SimpleNamespace(**json.loads(sys.argv[1]))
    if damage.model == "torch":
        from torchgpt import train
    else:
        from tinygpt import train
    start = train.start

    def start_damaged(options):
        ranks = start(options)
        build_model, build_optimizer = ranks.build_model, getattr(ranks, "build_optimizer", None)
        prepared = []

        def build():
            model = build_model()
            at = SimpleNamespace(ranks=ranks, damage=damage, before_training=prepared.append)
            at.module = damage.module and dict(model.named_modules())[damage.module]
            at.parameter = damage.parameter and dict(model.named_parameters())[damage.parameter]
            MECHANISMS[damage.mechanism](at)
            return model

        def build_with(model):
            optimizer = build_optimizer(model)
            for prepare in prepared:
                prepare(optimizer)
            return optimizer

        ranks.build_model = build
        if build_optimizer:
            ranks.build_optimizer = build_with
        return ranks

    train.start = start_damaged
    if damage.model == "torch":
        sys.argv = sys.argv[1:]
        train.main()
    else:
        train.main(sys.argv[2:])


if __name__ == "__main__":
    main()
