"""An adapter that answers all that one can be asked. The tests put it among the others."""

import functools
import os
import sys

import torch

from .. import patches
from ..factoring import Group
from ..shares import Range, Share
from .adapter import Adapter, Clipping, Function, Level

CALLED = set()


def noted(method):
    @functools.wraps(method)
    def asked(*args):
        CALLED.add(method.__name__)
        return method(*args)

    return asked


def rank():
    return int(os.environ["RANK"])


def made_up():
    return sys.modules["made_up"]


class MadeUp(Adapter, module="made_up", level=Level.PROGRAM):
    clipping = (Clipping("made_up", "clip_by", norm="argument"),)
    backward = (Function("made_up", "backward"),)
    checkpoints = (Function("made_up", "checkpoint"),)
    weight_backward = (Function("made_up", "Stage.backward_weights"),)
    steps = (Function("made_up", "Optimizer.step"),)
    gathering = (Function("made_up", "gather"),)

    @noted
    def loss_scale(self, optimizer):
        return optimizer.scale

    @noted
    def gradient_norm(self, optimizer, loss_scale):
        return optimizer.norm * loss_scale

    @noted
    def gathered_parameters(self, handle):
        return [([(handle, "weight")], handle.weight)]

    @noted
    def find(self, world_size):
        return (f"tp={world_size}", f"tp={rank()}") if made_up().arrangement == "find" else None

    @noted
    def parameter_dtype(self, model):
        return torch.float16

    @noted
    def share(self, parameter):
        if not hasattr(parameter, "is_halved"):
            return None
        half = Range(parameter.shape, 2 * rank(), 2 * rank() + 2)
        return Share(parameter, None, half.of(parameter.detach()), half, parameter, lambda: half.of(parameter.grad))

    @noted
    def original_of(self, tensor):
        node = tensor.grad_fn
        return node.next_functions[0] if type(node).__name__ == "CopyBackward" else None

    @noted
    def summed_later_over(self, parameter, name):
        return ("tp",) if name == "router.weight" else None

    @noted
    def is_rehearsal(self):
        return made_up().rehearsing

    @noted
    def is_by_product(self, value):
        return isinstance(value, made_up().Cache)

    @noted
    def are_experts(self, module_class):
        return module_class is made_up().Experts

    @noted
    def exchanges_tokens(self, module):
        return isinstance(module, made_up().Experts)

    @noted
    def is_flattened(self, parameter):
        return parameter.shape == (4,) and hasattr(parameter, "is_flat")

    @noted
    def groups(self, model):
        return [Group("dp", (0, 1))] if made_up().arrangement == "groups" else []

    @noted
    def words(self, model, position):
        return {"loss_scale": "2"}

    @noted
    def router_choice(self, module, args, kwargs, result):
        return [(":scores", result.detach() + 1)] if isinstance(module, made_up().Router) else []

    @noted
    def flattened_parameters(self, root):
        for module in root.modules():
            if isinstance(module, made_up().Flat):
                flat, row = module.flat, Range((2, 4), 4 * rank(), 4 * rank() + 4)
                yield module, "weight", Share(flat, row, flat, row, flat, lambda flat=flat: flat.grad)

    @noted
    def record_inside(self, record_input, record_output):
        choose = made_up().Router.choose

        def chosen(router, logits):
            record_input(":bias", lambda: router.bias.detach())
            record_output(":logits", lambda: logits)
            return choose(router, logits)

        patches.replace(made_up().Router, "choose", chosen)

    @noted
    def observe_calls(self, observe):
        train = made_up().train

        def observed(model, *args):
            return observe(functools.partial(train, model), model, args, {})

        patches.replace(made_up(), "train", observed)
