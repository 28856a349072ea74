"""Trains an encoder of PyTorch, whose linears share their inputs with residual connections. With the argument `fault`
one linear sends back a wrong gradient in one micro-batch."""

import sys

import torch


class Product(torch.autograd.Function):
    @staticmethod
    def forward(context, x, weight, fault):
        context.save_for_backward(x, weight)
        context.fault = fault
        return x @ weight.t()

    @staticmethod
    def backward(context, gradient):
        x, weight = context.saved_tensors
        to_input = gradient @ weight
        if context.fault:
            to_input = to_input * 16
        return to_input, gradient.flatten(0, 1).t() @ x.flatten(0, 1), None


class CustomLinear(torch.nn.Linear):
    calls = 0

    def forward(self, x):
        CustomLinear.calls += 1
        return Product.apply(x, self.weight, "fault" in sys.argv and CustomLinear.calls == 3)


torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 2).to(torch.bfloat16)
model.layers[0].linear1 = CustomLinear(32, 64, bias=False, dtype=torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    for _ in range(2):
        x = torch.randn(3, 9, 32, dtype=torch.bfloat16)
        model(x).float().square().sum(-1).sqrt().sub(x.float()[..., 0]).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
