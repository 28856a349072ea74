"""Rebuilds the tensors of a run of several ranks from what the trace itself says of their places, with no annotation:
a second, naive implementation of what the checker does."""

import json

import numpy

BFLOAT16 = 4


def rebuilt(ranks, microbatch_axes=("dp",)):
    """`ranks`: RankFiles. Identity -> whole values, bf16 as fp32; replicas must be equal bit by bit. Rank r of
    `microbatch_axes` (the first fastest) has as its m-th the micro-batch m * n + r of the run. At the model's
    boundaries only the first stage's inputs and the last one's outputs count."""
    places = {}
    for rank in ranks:
        at = json.loads(rank.attributes["coordinates"])
        sizes = dict(json.loads(rank.attributes["axes"]))
        aliases = json.loads(rank.attributes["aliases"])
        axes = [aliases.get(axis, axis) for axis in microbatch_axes]
        for identity, values in rank.all.items():
            mapping = rank.mappings[identity] or {}
            named = [entry["axis"] for entry in mapping.get("axes", [])]
            if _is_inside_the_pipeline(identity, at.get("pp", 0), sizes.get("pp", 1)):
                continue
            whole = _global_microbatch(identity, axes, named, sizes, at)
            places.setdefault(whole, []).append((at, _widened(values, rank.dtypes[identity]), mapping))
    return {identity: _assembled(parts) for identity, parts in places.items()}


def _widened(values, dtype):
    return (values.astype("u4") << 16).view("f4") if dtype == BFLOAT16 else values


def _is_inside_the_pipeline(identity, stage, stages):
    kind, name = identity[4:]
    return name == "(model)" and (
        (kind in ("input", "grad_input") and stage > 0) or (kind in ("output", "grad_output") and stage < stages - 1)
    )


def _global_microbatch(identity, axes, named, sizes, at):
    iteration, microbatch, *rest = identity
    if microbatch >= 0:
        for axis in reversed([axis for axis in axes if axis in sizes and axis not in named]):
            microbatch = microbatch * sizes[axis] + at[axis]
    return (iteration, microbatch, *rest)


def _assembled(parts):
    mapping = parts[0][2]
    axes = [entry for entry in mapping.get("axes", []) if entry["placement"] != "replicate"]
    whole = _along(axes, parts)
    assert "shape" not in mapping or list(whole.shape) == mapping["shape"]
    return whole


def _along(axes, parts):
    """`parts`: (coordinates, values, mapping) that differ along `axes`, outermost first, and are replicas else."""
    if not axes:
        for _, values, _ in parts[1:]:
            assert numpy.array_equal(values, parts[0][1]), "replicas differ"
        return parts[0][1]
    axis, *inner = axes
    held = [[part for part in parts if part[0][axis["axis"]] == at] for at in range(axis["size"])]
    values = [_along(inner, each) for each in held]
    if axis["placement"] in ("partial", "mean"):
        return sum(values) / (axis["size"] if axis["placement"] == "mean" else 1)
    blocks = [numpy.split(each, len(axis.get("blocks", [1])), axis["dim"]) for each in values]  # equal ones
    return numpy.concatenate([block for alike in zip(*blocks, strict=True) for block in alike], axis=axis["dim"])
