"""Trains a small GPT. `train.py --help` says how."""

import hashlib
import sys
import time
from pathlib import Path

import torch

if not __package__:  # run as a script: the package is this file's directory
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from tinygpt.command_line import parse_options
from tinygpt.single import SingleProcess


def main(arguments=None):
    options = parse_options(arguments)
    make_deterministic()
    ranks = start(options)
    model = train(options, ranks)
    if options.print_digest:
        digests = ranks.gather(digest(model))
        if ranks.rank == 0:
            print(f"parameters {hashlib.sha256(' '.join(digests).encode()).hexdigest()}", flush=True)
    ranks.stop()


def train(options, ranks):
    """Runs all steps on this process; returns its (part of the) model."""
    model = ranks.build_model()
    optimizer = ranks.build_optimizer(model)
    for step in range(options.steps):
        started, cpu = time.perf_counter(), time.thread_time()
        optimizer.zero_grad()
        loss = ranks.forward_backward(model, step, optimizer.loss_scale)
        ranks.finalize_gradients(model, optimizer)
        optimizer.unscale(ranks.max)
        grad_norm = ranks.grad_norm(model)
        is_updated = optimizer.step(grad_norm)
        if ranks.rank == 0:
            print(f"step {step} loss {loss!r} grad_norm {grad_norm.item()!r}", flush=True)
            if not is_updated:
                print(f"step {step} skipped: overflow; the loss scale is now {optimizer.loss_scale}", flush=True)
            if options.print_times:
                seconds, cpu = time.perf_counter() - started, time.thread_time() - cpu
                print(f"step {step} seconds {seconds:.6f} cpu {cpu:.6f}", flush=True)
    optimizer.synchronize()
    return model


def start(options):
    """What this process is: the only one, or one rank of many."""
    if options.world_size == 1:
        return SingleProcess(options)
    from tinygpt.parallel.ranks import Ranks  # only here: the reference has no parallel code in its path

    return Ranks(options)


def make_deterministic():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


def digest(model):
    """SHA-256 over the names and bits of this process's parameters and masters."""
    bits = hashlib.sha256()
    for name, parameter in model.named_parameters():
        bits.update(name.encode())
        for value in (parameter, parameter.main_param):
            bits.update(value.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return bits.hexdigest()


if __name__ == "__main__":
    main()
