"""FP8 training with delayed scaling, in NVIDIA TransformerEngine's hybrid format (Micikevicius et al., "FP8 formats for
deep learning"): inputs and weights of a layer's linears are rounded to e4m3, the gradients of their outputs to e5m2.

Before it is rounded a tensor is multiplied by a scale that makes the largest magnitude (amax) of the last steps the
largest number of the format, so that no pass over the tensor is needed first. All that have a part of a tensor must use
one scale: amaxes are collected in every micro-batch, and scales renewed once, at the end of a step.

Matrices are multiplied in the compute dtype, with the values that the codes stand for. Gradients pass a rounding as if
it were not there."""

from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

LINEARS = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
HISTORY = 4  # steps
# Where no amax is known yet. Activations and weights are near one; gradients of a mean over tokens lie below what e5m2
# can hold, and start with the usual first loss scale of fp16.
FIRST_SCALE = {torch.float8_e4m3fn: 1.0, torch.float8_e5m2: 2.0**16}


class Scaling:
    """The scale of one tensor of a linear."""

    def __init__(self, dtype):
        self.dtype = dtype
        self.scale = torch.tensor(FIRST_SCALE[dtype])
        self.amax = torch.zeros(())  # in this step so far
        self.history = deque(maxlen=HISTORY)

    def quantise(self, tensor):
        """The codes of `tensor` times the scale, saturated."""
        wide = tensor.detach().float()
        self.amax = torch.maximum(self.amax, wide.abs().amax())
        largest = torch.finfo(self.dtype).max
        return (wide * self.scale).clamp(-largest, largest).to(self.dtype)

    def dequantise(self, codes, dtype):
        return (codes.float() / self.scale).to(dtype)

    def round(self, tensor):
        return self.dequantise(self.quantise(tensor), tensor.dtype)

    def finish_step(self):
        self.history.append(self.amax)
        self.amax = torch.zeros(())
        largest = max(self.history)
        if 0 < largest < torch.inf:
            self.scale = torch.finfo(self.dtype).max / largest


class Step:
    """Which calls of a model's layers belong to the first micro-batch of a step. A layer gets the Places of its
    micro-batch, and the same ones again when it is recomputed."""

    def __init__(self):
        self.first_places = None
        self.in_first = True

    def enter_layer(self, layer, inputs):
        _, places = inputs
        if self.first_places is None:
            self.first_places = places
        self.in_first = places is self.first_places


class Casts:
    """What is rounded in a linear, whose weight is `weight`."""

    def __init__(self, weight, step, bug=None):
        self.step, self.bug = step, bug
        self.input, self.weight = Scaling(torch.float8_e4m3fn), Scaling(torch.float8_e4m3fn)
        self.gradient = Scaling(torch.float8_e5m2)
        # Zeros, as fresh memory mostly has, where TransformerEngine left it as it came.
        self.weight_codes = torch.zeros_like(weight, dtype=self.weight.dtype)

    def round_input(self, tensor):
        return _Replace.apply(tensor, self.input.round(tensor))

    def round_weight(self, weight):
        """Casts once a step, in the first micro-batch; later ones use the codes again."""
        codes = self.weight_codes
        if self.step.in_first:
            if self.bug == "fp8-weight-cache" and not torch.is_grad_enabled():
                codes = self.weight.quantise(weight)  # the name is bound to a new tensor; nothing is written
            else:
                codes.copy_(self.weight.quantise(weight))
        return _Replace.apply(weight, self.weight.dequantise(codes, weight.dtype))

    def round_gradient(self, tensor):
        """`tensor`, whose gradient will be rounded."""
        return _RoundGradient.apply(tensor, self.gradient)

    def scalings(self):
        return [self.input, self.weight, self.gradient]


class Fp8Linear(nn.Module):
    """Does the work of `linear`. The bias and its gradient are not rounded."""

    def __init__(self, linear, casts):
        super().__init__()
        self.weight, self.bias, self.casts = linear.weight, linear.bias, casts

    def forward(self, hidden):
        casts = self.casts
        output = casts.round_gradient(F.linear(casts.round_input(hidden), casts.round_weight(self.weight)))
        return output if self.bias is None else output + self.bias


def convert(model, make=Fp8Linear, bug=None):
    """Puts make(linear, its Casts) in the place of each of the layers' linears."""
    step = Step()
    for layer in model.decoder.layers:
        layer.register_forward_pre_hook(step.enter_layer)
        for parent in list(layer.modules()):
            for name, linear in list(parent.named_children()):
                if name in LINEARS:
                    setattr(parent, name, make(linear, Casts(linear.weight, step, bug)))


def finish_step(model, max_over_ranks=lambda amaxes: amaxes):
    """Renews the scales of `model`. `max_over_ranks` takes the amaxes, fp32 [n], to the largest of all ranks that have
    a part of the same tensors."""
    all_casts = [module.casts for module in model.modules() if hasattr(module, "casts")]
    scalings = [scaling for casts in all_casts for scaling in casts.scalings()]
    amaxes = max_over_ranks(torch.stack([scaling.amax for scaling in scalings]))
    for scaling, amax in zip(scalings, amaxes, strict=True):
        scaling.amax = amax
        scaling.finish_step()
    for casts in all_casts:
        casts.step.first_places = None


class _Replace(torch.autograd.Function):
    """`value` in the place of `tensor`, which gets the gradient."""

    @staticmethod
    def forward(ctx, tensor, value):
        return value.view_as(value)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class _RoundGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, scaling):
        ctx.scaling = scaling
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, grad):
        return ctx.scaling.round(grad), None
