"""Trains a small Llama. `train.py --help` says how."""

import sys
from pathlib import Path

import torch

if not __package__:  # run as a script: the package is this file's directory
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from torchgpt.model import CrossEntropy, build_model
from torchgpt.options import parse_options


def main():
    options = parse_options()
    torch.set_num_threads(1)
    ranks = start(options)
    train(options, ranks)
    ranks.stop()


def train(options, ranks):
    """Runs all steps on this process; returns its (part of the) model, with the gradients of the last step."""
    model = ranks.build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    for step in range(options.steps):
        optimizer.zero_grad()
        loss = ranks.forward_backward(model, step)
        grad_norm = ranks.clip_gradients(model)
        optimizer.step()
        if ranks.rank == 0:
            print(f"step {step} loss {loss!r} grad_norm {grad_norm.item()!r}", flush=True)
    return model


class SingleProcess:
    """Training on one process: what the parallel program does with PyTorch's parallelism is nothing here."""

    rank = 0

    def __init__(self, options):
        self.options = options
        self.loss = CrossEntropy(options.micro_batches)

    def build_model(self):
        return build_model(self.options)

    def forward_backward(self, model, step):
        """Accumulates the gradients of step `step`; returns its loss."""
        total = 0.0
        for number in range(self.options.micro_batches):
            tokens, labels = micro_batch(self.options, step * self.options.micro_batches + number)
            loss = self.loss(model(tokens), labels)
            loss.backward()
            total += loss.item()
        return total

    def clip_gradients(self, model):
        return torch.nn.utils.clip_grad_norm_(model.parameters(), self.options.clip_grad)

    def stop(self):
        pass


def micro_batch(options, number):
    """Tokens and the next tokens, int64 [b, s], of micro-batch `number`, counted over all steps and ranks."""
    # A large odd stride keeps the streams of two seeds apart.
    generator = torch.Generator().manual_seed(options.seed * 1_000_003 + number)
    text = torch.randint(options.vocab, (options.micro_batch_size, options.seq + 1), generator=generator)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def start(options):
    """What this process is: the only one, or one rank of many."""
    if options.world_size == 1:
        return SingleProcess(options)
    from torchgpt.parallel import Ranks  # only here: the reference has no parallel code in its path

    return Ranks(options)


if __name__ == "__main__":
    main()
