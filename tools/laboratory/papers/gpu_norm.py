"""LayerNorm as PyTorch computes it on a GPU (`ATen/native/cuda/layer_norm_kernel.cu`), on any device.

They differ where a variance overflows. On a GPU it is infinite, its inverse root 0, and the row becomes the bias, with
a gradient of 0. On a CPU partial moments are combined as `delta * delta * c * m0`, which is infinity times 0 for the
first of them (`ATen/native/cpu/moments_utils.h`): the row is NaN."""

import contextlib
from collections.abc import Iterator
from unittest import mock

import torch


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        mean = x.double().mean(-1, keepdim=True).float()  # a GPU's running mean does not overflow, nor does this
        inverse = ((x - mean).square().mean(-1, keepdim=True) + eps).rsqrt()
        scaled = (x - mean) * inverse
        ctx.save_for_backward(scaled, inverse, weight)
        return weight * scaled + bias

    @staticmethod
    def backward(ctx, gradient):
        scaled, inverse, weight = ctx.saved_tensors
        of_scaled = gradient * weight
        along = (of_scaled * scaled).mean(-1, keepdim=True)
        of_x = (of_scaled - scaled * along - of_scaled.mean(-1, keepdim=True)) * inverse
        return of_x, (gradient * scaled).flatten(0, -2).sum(0), gradient.flatten(0, -2).sum(0), None


def layer_norm(x, shape, weight, bias, eps=1e-5):
    """`torch.nn.functional.layer_norm` over the last dimension, in fp32."""
    return _LayerNorm.apply(x.float(), weight, bias, eps)


@contextlib.contextmanager
def installed() -> Iterator[None]:
    with mock.patch.object(torch.nn.functional, "layer_norm", layer_norm):
        yield
