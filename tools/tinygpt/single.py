"""Training on one process: what the parallel program does with collectives is nothing here."""

import torch

from tinygpt import fp8, model
from tinygpt.data import micro_batch
from tinygpt.optimizer import MixedPrecisionOptimizer, grad_square
from tinygpt.schedule import accumulate, divide_gradients


class SingleProcess:
    rank = 0

    def __init__(self, options):
        self.options = options

    def build_model(self):
        return model.build_model(self.options)

    def build_optimizer(self, gpt):
        return MixedPrecisionOptimizer(gpt.parameters(), self.options)

    def forward_backward(self, gpt, step, loss_scale):
        """Accumulates the main gradients of step `step`; returns its loss."""
        count = self.options.micro_batches
        batches = [micro_batch(self.options, step * count + number) for number in range(count)]
        losses = torch.stack(accumulate(gpt, batches, self.options, loss_scale)).double()
        if self.options.fp8:
            fp8.finish_step(gpt)
        self.unmasked = sum(batch.unmasked for batch in batches)
        return (losses.sum() / (self.unmasked if self.options.per_token_loss else count)).item()

    def finalize_gradients(self, gpt, optimizer):
        if self.options.per_token_loss:
            divide_gradients(gpt, self.unmasked)

    def max(self, tensor):
        """Over all ranks, in place."""

    def grad_norm(self, gpt):
        return grad_square(gpt.parameters()).sqrt().float()

    def gather(self, text):
        """What every rank has to say, by rank."""
        return [text]

    def stop(self):
        pass
