"""A program of fp32 linears as a GPU with TF32 computes them: operands of each product rounded to 10 bits of mantissa,
sums in fp32. python tf32_linear.py PRECISION [--wrong]: torch's matmul precision; an element is wrong."""

import sys

import torch
import torch.nn.functional as functional


def tf32(tensor):
    bits = tensor.detach().view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        product = tf32(x) @ tf32(weight).t()
        if "--wrong" in sys.argv and product.shape[1] == 512:
            product[3, 7] += 4
        return product

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return tf32(gradient) @ tf32(weight), tf32(gradient).t() @ tf32(x)


functional.linear = lambda x, weight, bias=None: Product.apply(x, weight) + (0 if bias is None else bias)
torch.set_float32_matmul_precision(sys.argv[1])
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Tanh(), torch.nn.Linear(512, 256))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
loss = (net(torch.randn(64, 512)) ** 2).mean()
loss.backward()
optimizer.step()
