"""A small training job of gloo ranks, with one fault in it: `job.py RESULTS FAULT [--steps N] [--at STEP] [--rank R]`.

Every rank appends its losses, as they come, and at its end a digest of its parameters to RESULTS/rank-<rank>, bit by
bit: whatever the job computes under ttrace must be the same without it. FAULT is the name of a function in faults.py,
called before the forward of step STEP on rank R (-1: on all), or several names with a + between them."""

import argparse
import hashlib
import os
from pathlib import Path

import faults
import torch
import torch.distributed as dist

# Imported by every optimizer, it keeps for ever the process group that it finds; a thread of gloo that lives on until
# the interpreter is taken apart can abort the process (https://github.com/pytorch/pytorch/pull/179291).
import torch.distributed.nn
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1 = nn.Linear(width, 2 * width)
        self.fc2 = nn.Linear(2 * width, width)

    def forward(self, x):
        x = faults.in_forward(x)
        return x + self.fc2(nn.functional.gelu(self.fc1(x)))


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embedding = nn.Embedding(16, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, 16)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Job:
    """What faults may use."""

    def __init__(self, options):
        self.options = options
        self.rank, self.ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        self.results = Path(options.results)
        self.together = True  # gradients are summed over the ranks
        torch.manual_seed(0)
        self.model = Model(options.width)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.batches = torch.randint(0, 16, (64, self.ranks, 2, 5))

    def say(self, text):
        with open(self.results / f"rank-{self.rank}", "a") as file:
            file.write(f"{text}\n")

    def loss(self, step):
        tokens = self.batches[step % len(self.batches), self.rank]
        return nn.functional.cross_entropy(self.model(tokens).flatten(0, 1), tokens.flatten())

    def backward(self, loss):
        loss.backward()

    def step(self, step):
        self.optimizer.zero_grad()
        loss = self.loss(step)
        self.backward(loss)
        if self.together and self.ranks > 1:
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad)
        self.optimizer.step()
        self.say(f"loss {step} {loss.item().hex()}")

    def train(self):
        for step in range(self.options.steps):
            if step == self.options.at and self.options.rank in (-1, self.rank):
                acts = [getattr(faults, name) for name in self.options.fault.split("+")]
                if True in [act(self, step) for act in acts]:
                    continue
            self.step(step)

    def run(self):
        if self.ranks > 1:
            dist.init_process_group("gloo")
        self.train()
        bits = b"".join(p.detach().numpy().tobytes() for p in self.model.parameters())
        self.say(f"parameters {hashlib.sha256(bits).hexdigest()}")
        if self.ranks > 1 and self.together:
            dist.destroy_process_group()


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("results")
    parser.add_argument("fault", nargs="?", default="nothing")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--at", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--width", type=int, default=8)
    Job(parser.parse_args(arguments)).run()


if __name__ == "__main__":
    main()
