"""Trains a small model. Prints the losses and a digest of the parameters, so that two runs can be compared bit by
bit. Options: --recompute none|reentrant|nonreentrant|custom, --order sequential|gpipe|1f1b, --optimizer sgd|adamw,
--clip, --bf16, --steps N, --microbatches N, --evaluate, --fail-at STEP, --kill-at STEP."""

import argparse
import hashlib
import os
import signal
import time

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--recompute", default="none")
parser.add_argument("--order", default="sequential")
parser.add_argument("--optimizer", default="sgd")
parser.add_argument("--clip", action="store_true")
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--evaluate", action="store_true")
parser.add_argument("--steps", type=int, default=2)
parser.add_argument("--microbatches", type=int, default=2)
parser.add_argument("--fail-at", type=int, default=-1)
parser.add_argument("--kill-at", type=int, default=-1)
options = parser.parse_args()


class TheirCheckpoint(torch.autograd.Function):
    """Reentrant checkpointing of a framework's own, as Megatron-LM has it."""

    @staticmethod
    def forward(context, function, x):
        context.function = function
        context.save_for_backward(x)
        context.random = torch.get_rng_state()
        with torch.no_grad():
            return function(x)

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        x = x.detach().requires_grad_()
        now = torch.get_rng_state()
        torch.set_rng_state(context.random)
        with torch.enable_grad():
            output = context.function(x)
        torch.set_rng_state(now)
        torch.autograd.backward(output, gradient)
        return None, x.grad


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.drop = nn.Dropout(0.25)
        self.fc2 = nn.Linear(8, 4)

    def forward(self, x):
        with torch.enable_grad():  # as Megatron-LM adds biases, in a checkpoint's forward without grad, too
            y = self.fc1(x)
        y.relu_()  # in place, after the output was seen
        return x + self.fc2(self.drop(y))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 4)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(4, 16, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in [*self.blocks, self.blocks[0]]:  # the first one twice
            if options.recompute == "none":
                x = block(x)
            elif options.recompute == "custom":
                x = TheirCheckpoint.apply(block, x)
            else:
                x = checkpoint(block, x, use_reentrant=options.recompute == "reentrant")
        return self.head(x)


def loss_of(model, tokens):
    return nn.functional.cross_entropy(model(tokens).float().flatten(0, 1), tokens.flatten()) / options.microbatches


def forward_backward(model, batches):
    waiting, losses = [], []
    ahead = {"sequential": 1, "1f1b": 2, "gpipe": len(batches)}[options.order]
    for tokens in batches:
        waiting.append(loss_of(model, tokens))
        losses.append(waiting[-1].item())
        if len(waiting) == ahead:
            waiting.pop(0).backward()
    for loss in waiting:
        loss.backward()
    return losses


torch.manual_seed(1)
model = Model().to(torch.bfloat16 if options.bf16 else torch.float32)
make = torch.optim.AdamW if options.optimizer == "adamw" else torch.optim.SGD
optimizer = make(model.parameters(), lr=0.1)
for step in range(options.steps):
    if step == options.fail_at:
        raise RuntimeError("the training program fails")
    batches = [torch.randint(0, 16, (2, 3)) for _ in range(options.microbatches)]
    losses = forward_backward(model, batches)
    if step == options.kill_at:
        time.sleep(1)  # what was recorded in the last 20 ms may be lost, and on a busy machine more
        os.kill(os.getpid(), signal.SIGKILL)
    if options.clip:
        clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step()
    optimizer.zero_grad()
    if options.evaluate:
        model.eval()
        with torch.no_grad():
            model(batches[0])
        model.train()
    print(step, *(loss.hex() for loss in losses))
bits = b"".join(bytes(p.detach().contiguous().view(torch.uint8).flatten().tolist()) for p in model.parameters())
print("parameters", hashlib.sha256(bits).hexdigest())
