"""What a rank of a pipeline, of expert parallelism or of ZeRO holds, turned into what it would hold without: from the
rank orders that `--help` promises and from what the ranks hold, not from the program's own arithmetic.

`shards` has for each rank {name: {"parameter", "master", "main_grad", "dim", "range"}}. With virtual pipeline stages
the names begin with the number of the chunk."""

import re
from itertools import pairwise

import torch

TIED = "embedding.word_embeddings.weight"


def stage_size(options):
    """The number of ranks of a pipeline stage: consecutive ones."""
    return options.world_size // options.pp


def part_sizes(options, shards):
    """The number of layers of each model chunk, in the order in which a micro-batch goes through them."""
    sizes = []
    for chunk in range(options.vpp):
        for stage in range(options.pp):
            places = (_place(name, options) for name in shards[stage * stage_size(options)])
            sizes.append(len({layer for of, layer, _ in places if of == chunk and layer is not None}))
    return sizes


def with_canonical_names(options, shards, sizes):
    """Layers are numbered on from part to part, experts from rank to rank."""
    renamed = []
    for rank, held in enumerate(shards):
        renamed.append({_canonical(name, options, rank, sizes): values for name, values in held.items()})
        assert len(renamed[-1]) == len(held), f"rank {rank} holds a parameter twice"
    return renamed


def is_tied_copy(name, options, stage):
    return options.tied and name == TIED and stage == options.pp - 1


def is_expert(name):
    return ".local_experts." in name


def _canonical(name, options, rank, sizes):
    chunk, layer, rest = _place(name, options)
    if layer is not None:
        first = rank // options.etp % options.ep * options.experts // options.ep
        rest = re.sub(r"(?<=\.local_experts\.)\d+", lambda match: str(first + int(match[0])), rest)
        return f"decoder.layers.{sum(sizes[: chunk * options.pp + rank // stage_size(options)]) + layer}.{rest}"
    return TIED if options.tied and rest == "output_layer.weight" else rest


def _place(name, options):
    """(chunk, layer, rest of the name); layer None outside the layers."""
    chunk, name = name.split(".", 1) if options.vpp > 1 else (0, name)
    match = re.fullmatch(r"decoder\.layers\.(\d+)\.(.*)", name)
    return int(chunk), int(match[1]) if match else None, match[2] if match else name


def without_flat_shards(options, shards):
    """Each data parallel rank with the masters and gradients that the others own."""
    return [_whole(options, shards, rank) for rank in range(len(shards))] if options.zero else shards


def _whole(options, shards, rank):
    inner = options.tp * options.cp
    first = rank // stage_size(options) * stage_size(options) + rank % inner
    replicas = [first + inner * dp for dp in range(options.dp)]
    whole = {}
    for name, values in shards[rank].items():
        parts = [shards[replica][name] for replica in replicas]
        ranges = [part["range"] for part in parts]
        assert ranges[0][0] == 0 and ranges[-1][1] == values["parameter"].numel(), (name, ranges)
        assert all(before[1] == after[0] for before, after in pairwise(ranges)), (name, ranges)
        for part in parts:
            sizes = {key: part[key].shape for key in ("master", "main_grad")}
            assert set(sizes.values()) == {(part["range"][1] - part["range"][0],)}, (name, sizes)
        joined = {key: torch.cat([part[key] for part in parts]) for key in ("master", "main_grad")}
        whole[name] = values | {key: flat.view_as(values["parameter"]) for key, flat in joined.items()}
    return whole
