"""Mixed precision training: parameters in the compute dtype, gradients and masters in fp32.

Each parameter `p` has
- `p.main_grad`, the sum of the micro-batches' gradients. Backward adds each micro-batch's `p.grad` to it as soon as
  that is complete, and drops `p.grad`;
- `p.main_param`, the master that the optimizer updates. The parameter is its rounded copy."""

import torch

from tinygpt.loss_scaler import LossScaler


class MixedPrecisionOptimizer:
    def __init__(self, parameters, options):
        self.parameters = list(parameters)
        self.clip_grad = options.clip_grad
        self.scaler = LossScaler(options.loss_scale) if options.dtype == "fp16" else None
        self.allocate()
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self.accumulate)
        masters = [parameter.main_param for parameter in self.parameters]
        if options.optimizer == "adam":
            self.inner = torch.optim.Adam(masters, lr=options.lr, betas=(0.9, 0.95))
        else:
            self.inner = torch.optim.SGD(masters, lr=options.lr)

    def allocate(self):
        """Gives each parameter its main gradient and its master."""
        for parameter in self.parameters:
            parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
            parameter.main_param = torch.nn.Parameter(parameter.detach().clone().float())

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.main_grad.zero_()

    def accumulate(self, parameter):
        """Adds the gradient of a micro-batch, which backward just completed, to the main gradient."""
        parameter.main_grad.add_(parameter.grad)
        parameter.grad = None

    @property
    def loss_scale(self):
        return self.scaler.scale if self.scaler else 1.0

    def unscale(self, max_over_ranks):
        """Takes the loss scale out of the gradients."""
        if self.scaler:
            self.scaler.unscale([parameter.main_grad for parameter in self.parameters], max_over_ranks)

    def step(self, grad_norm):
        """Clips the gradients, whose norm over all ranks is `grad_norm`, and updates the parameters; with fp16 only if
        no gradient overflowed. Whether it did."""
        if self.scaler:
            self.scaler.update()
            if self.scaler.overflowed:
                return False
        masters = [parameter.main_param for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.main_param.grad = parameter.main_grad
        if self.clip_grad > 0:
            torch.nn.utils.clip_grads_with_norm_(masters, self.clip_grad, grad_norm)
        self.inner.step()
        with torch.no_grad():
            self.update_parameters()
        return True

    def synchronize(self):
        """Afterwards the parameters are those of the last step. Here they always are."""

    def update_parameters(self):
        for parameter in self.parameters:
            parameter.copy_(parameter.main_param)


def grad_square(parameters):
    """Sum of squares of the main gradients; fp64, so that the order of summation does not show."""
    zero = torch.zeros((), dtype=torch.float64)
    return sum((_counted_gradient(parameter).double().square().sum() for parameter in parameters), zero)


def _counted_gradient(parameter):
    """The main gradient. Of rows that other ranks hold too, only those in `owned_rows`."""
    if not hasattr(parameter, "owned_rows"):
        return parameter.main_grad
    counted = parameter.owned_rows.unsqueeze(-1).expand_as(parameter).flatten()
    begin, end = getattr(parameter, "main_shard_range", (0, parameter.numel()))
    return parameter.main_grad.flatten()[counted[begin:end]]
