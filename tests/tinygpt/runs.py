"""Training runs for the tests: real processes over gloo, and the whole model put together again from them."""

import contextlib
import multiprocessing
import os
import re
import socket
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from stacked import join, shared_rows_differ
from tinygpt import options as tinygpt_options
from tinygpt import train

# Small, and still with every kind of boundary in it. The norm of the gradients is about 1: they are clipped.
SMALL = tinygpt_options.Options(
    layers=4, hidden=32, heads=4, seq=16, vocab=64, dtype="fp32", optimizer="sgd", lr=1.0, clip_grad=0.5
)


@dataclass(frozen=True)
class Run:
    losses: list[float]  # one per step
    grad_norms: list[float]
    parameters: dict[str, torch.Tensor]  # the fp32 masters after the last step, whole, by canonical name
    main_grads: dict[str, torch.Tensor]
    replicas_that_differ: list[str]  # "name on rank r" where a copy is not bit-equal to the first one


def run(**changes):
    """Trains with SMALL changed by `changes`, on as many new processes as that takes."""
    options = replace(SMALL, **changes)
    tinygpt_options.check(options, started=options.world_size)
    with tempfile.TemporaryDirectory() as directory:
        _start(options, Path(directory))
        shards = [torch.load(Path(directory) / f"rank-{rank}.pt") for rank in range(options.world_size)]
        lines = (Path(directory) / "rank-0.out").read_text().splitlines()
    steps = [re.fullmatch(r"step \d+ loss (\S+) grad_norm (\S+)", line).groups() for line in lines]
    assert len(steps) == options.steps
    parameters, differing = _put_together(options, shards, "master")
    main_grads, differing_grads = _put_together(options, shards, "main_grad")
    return Run(
        [float(loss) for loss, _ in steps], [float(norm) for _, norm in steps], parameters, main_grads,
        differing + differing_grads,
    )


def _start(options, directory):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Forked, so that torch need not be imported again in each.
    context = multiprocessing.get_context("fork")
    ranks = [
        context.Process(target=_train, args=(options, rank, port, directory), daemon=True)
        for rank in range(options.world_size)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(timeout=300)  # a machine with other work on it is slow, not wrong
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
    assert codes == [0] * options.world_size, f"exit codes by rank: {codes}"


def _train(options, rank, port, directory):
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(options.world_size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    train.make_deterministic()
    with open(directory / f"rank-{rank}.out", "w") as out, contextlib.redirect_stdout(out):
        ranks = train.start(options)
        model = train.train(options, ranks)
    shards = {}
    for name, parameter in model.named_parameters():
        shards[_canonical(name, options, rank)] = {
            "master": parameter.main_param.detach(),
            "main_grad": parameter.main_grad,
            "dim": getattr(parameter, "partition_dim", None),
        }
    torch.save(shards, directory / f"rank-{rank}.pt")
    ranks.stop()


def _canonical(name, options, rank):
    """From the rank order that `--help` promises, not from the program's own arithmetic."""
    stage = rank // (options.tp * options.cp * options.dp)
    return re.sub(
        r"^decoder\.layers\.(\d+)",
        lambda match: f"decoder.layers.{stage * options.layers // options.pp + int(match[1])}",
        name,
    )


def _put_together(options, shards, what):
    whole, differing = {}, []
    for stage in range(options.pp):
        ranks_per_stage = options.tp * options.cp * options.dp
        first = stage * ranks_per_stage
        for name, of_first in shards[first].items():
            assert name not in whole, f"{name} is on two stages"
            parts = [shards[first + tp][name][what] for tp in range(options.tp)]
            for rank in range(first, first + ranks_per_stage):
                original = parts[rank % options.tp if of_first["dim"] is not None else 0]
                if not torch.equal(shards[rank][name][what], original):
                    differing.append(f"{name} {what} on rank {rank}")
            if shared_rows_differ(name, parts, options):
                differing.append(f"{name} {what} in heads that several ranks have")
            whole[name] = parts[0] if of_first["dim"] is None else join(name, parts, of_first["dim"], options)
    return whole, differing
