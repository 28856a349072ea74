"""Whole weights from the parts of tensor parallel ranks, where these are not simply one after another: the stacked
weights of a Llama. By what `--help` promises, not by the program's own arithmetic."""

import math

import torch


def join(name, parts, dim, options):
    """The whole parameter from the `parts` of the tensor parallel ranks."""
    if options.arch == "llama" and name.endswith("linear_qkv.weight"):
        return _join_qkv(parts, options)
    if options.arch == "llama" and name.endswith("linear_fc1.weight"):
        gates, ups = zip(*(part.chunk(2) for part in parts), strict=True)
        return torch.cat((*gates, *ups))
    return torch.cat(parts, dim=dim)


def shared_rows_differ(name, parts, options):
    """Whether ranks that have the same key and value heads have different values for them."""
    if options.arch != "llama" or not name.endswith("linear_qkv.weight"):
        return False
    whole = _join_qkv(parts, options)
    return any(not torch.equal(part, whole[_rows(rank, options)]) for rank, part in enumerate(parts))


def _join_qkv(parts, options):
    size = options.hidden // options.heads
    whole = parts[0].new_full(((options.heads + 2 * options.key_value_heads) * size, options.hidden), math.nan)
    for rank, part in enumerate(parts):
        whole[_rows(rank, options)] = part
    assert not whole.isnan().any()
    return whole


def _rows(rank, options):
    queries, kvs = options.heads, options.key_value_heads
    first, end = rank * queries // options.tp, (rank + 1) * queries // options.tp
    first_kv, end_kv = math.floor(first * kvs / queries), math.ceil(end * kvs / queries)
    heads = [*range(first, end)]
    for block in (queries, queries + kvs):
        heads += range(block + first_kv, block + end_kv)
    size = options.hidden // queries
    return [head * size + row for head in heads for row in range(size)]
