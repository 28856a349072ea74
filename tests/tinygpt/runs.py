"""Training runs for the tests: real processes over gloo, and the whole model put together again from them."""

import contextlib
import multiprocessing
import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from pieces import is_expert, is_tied_copy, part_sizes, stage_size, with_canonical_names, without_flat_shards
from stacked import join, shared_rows_differ

from sweeps.launch import Rendezvous
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
    rounded: dict[str, torch.Tensor]  # the parameters themselves, in the compute dtype
    main_grads: dict[str, torch.Tensor]
    replicas_that_differ: list[str]  # "name on rank r" where a copy is not bit-equal to the first one
    loss_scales: dict[int, float]  # after each step that was skipped
    scales: list[dict[str, list[float]]]  # of each rank, by FP8 linear: of its input, weight and output gradient
    part_sizes: list[int]  # layers of each model chunk, in the order in which a micro-batch goes through


def run(**changes):
    """Trains with SMALL changed by `changes`, on as many new processes as that takes."""
    options = replace(SMALL, **changes)
    tinygpt_options.check(options, started=options.world_size)
    with tempfile.TemporaryDirectory() as directory:
        _start(options, Path(directory))
        saved = [torch.load(Path(directory) / f"rank-{rank}.pt") for rank in range(options.world_size)]
        lines = (Path(directory) / "rank-0.out").read_text().splitlines()
    skipped = [re.fullmatch(r"step (\d+) skipped: overflow; the loss scale is now (\S+)", line) for line in lines]
    steps = [
        re.fullmatch(r"step \d+ loss (\S+) grad_norm (\S+)", line).groups()
        for line, is_skipped in zip(lines, skipped, strict=True)
        if not is_skipped
    ]
    assert len(steps) == options.steps
    shards = [of_rank["parameters"] for of_rank in saved]
    sizes = part_sizes(options, shards)
    shards = without_flat_shards(options, with_canonical_names(options, shards, sizes))
    parameters, differing = _put_together(options, shards, "master")
    rounded, differing_rounded = _put_together(options, shards, "parameter")
    main_grads, differing_grads = _put_together(options, shards, "main_grad")
    return Run(
        [float(loss) for loss, _ in steps],
        [float(norm) for _, norm in steps],
        parameters,
        rounded,
        main_grads,
        differing + differing_rounded + differing_grads,
        {int(step): float(scale) for step, scale in (line.groups() for line in skipped if line)},
        [of_rank["scales"] for of_rank in saved],
        sizes,
    )


def _start(options, directory):
    rendezvous = Rendezvous()
    # Forked, so that torch need not be imported again in each.
    context = multiprocessing.get_context("fork")
    ranks = [
        context.Process(target=_train, args=(options, rendezvous, rank, directory), daemon=True)
        for rank in range(options.world_size)
    ]
    for process in ranks:
        process.start()
    store = rendezvous.serve()
    for process in ranks:
        process.join(timeout=300)  # a machine with other work on it is slow, not wrong
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
    del store
    assert codes == [0] * options.world_size, f"exit codes by rank: {codes}"


def _train(options, rendezvous, rank, directory):
    rendezvous.join(rank, options.world_size)
    train.make_deterministic()
    with open(directory / f"rank-{rank}.out", "w") as out, contextlib.redirect_stdout(out):
        ranks = train.start(options)
        model = train.train(options, ranks)
    shards = {}  # cloned, since a part of a flat buffer would bring all of it
    for name, parameter in model.named_parameters():
        shards[name] = {
            "parameter": parameter.detach(),
            "master": parameter.main_param.detach().clone(),
            "main_grad": parameter.main_grad.clone(),
            "range": getattr(parameter, "main_shard_range", None),
            "dim": getattr(parameter, "partition_dim", None),
        }
    scales = {
        name: [scaling.scale.item() for scaling in module.casts.scalings()]
        for name, module in model.named_modules()
        if hasattr(module, "casts")
    }
    torch.save({"parameters": shards, "scales": scales}, directory / f"rank-{rank}.pt")
    ranks.stop()


def _put_together(options, shards, what):
    whole, differing = {}, []
    for stage in range(options.pp):
        ranks = range(stage * stage_size(options), (stage + 1) * stage_size(options))
        for name in dict.fromkeys(name for rank in ranks for name in shards[rank]):
            assert name not in whole or is_tied_copy(name, options, stage), f"{name} is on two stages"
            holders = [rank for rank in ranks if name in shards[rank]]
            assert len(holders) == len(ranks) // (options.ep if is_expert(name) else 1), f"{name} is on ranks {holders}"
            value, differing_here = _join_replicas(name, {rank: shards[rank][name] for rank in holders}, what, options)
            differing += differing_here
            if not torch.equal(whole.setdefault(name, value), value):
                differing.append(f"{name} {what} on stage {stage}")
    return whole, differing


def _join_replicas(name, shards, what, options):
    """The whole of `what` from the `shards` of all ranks of a stage that have some of it, and which of them differ."""
    parts, differing = {}, []
    (dim,) = {shard["dim"] for shard in shards.values()}
    size = 1 if dim is None else options.etp if is_expert(name) else options.tp
    for rank, shard in shards.items():
        if not torch.equal(shard[what], parts.setdefault(rank % size, shard[what])):
            differing.append(f"{name} {what} on rank {rank}")
    parts = [parts[place] for place in range(size)]
    if shared_rows_differ(name, parts, options):
        differing.append(f"{name} {what} in heads that several ranks have")
    return parts[0] if dim is None else join(name, parts, dim, options), differing
