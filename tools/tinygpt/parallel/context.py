"""Context parallelism: each rank has a part of every sequence, and attention alone sees the whole.

With the tokens of a sequence in order of rank, and on a rank in the order of its layout, keys and values of the whole
sequence are the ranks' parts one after another. Which keys a query sees follows from the Places of both."""

from dataclasses import replace
from itertools import pairwise

import torch
import torch.nn.functional as F

from tinygpt.attention import CoreAttention, Places, attention, hidden_keys, places_in_row
from tinygpt.data import cumulative
from tinygpt.parallel.ring import ring_attention
from tinygpt.parallel.sequence import gather_from_sequence_region


def _zigzag(length, ranks):
    # One early and one late chunk each, so that causal attention is the same work for all.
    chunks = torch.arange(length).view(2 * ranks, -1)
    return torch.cat((chunks[:ranks], chunks[ranks:].flip(0)), dim=1)


def _contiguous(length, ranks):
    return torch.arange(length).view(ranks, -1)


def _striped(length, ranks):
    return torch.arange(length).view(-1, ranks).t()


LAYOUTS = {"zigzag": _zigzag, "contiguous": _contiguous, "striped": _striped}


def tokens_by_rank(boundaries, options):
    """int64 [cp, s / cp]: the places in the whole row of the tokens of each rank. The documents lie between
    `boundaries`, and each is split by itself."""
    layout = LAYOUTS[options.cp_layout]
    documents = [start + layout(end - start, options.cp) for start, end in pairwise(boundaries)]
    return torch.cat(documents, dim=1)


class PlacesOfRank(Places):
    """The Places of this rank's tokens, and those of each rank in `by_rank`."""

    def __init__(self, by_rank, rank):
        super().__init__(by_rank[rank].documents, by_rank[rank].positions)
        self.by_rank = by_rank

    def of_all_ranks(self):
        documents = torch.cat([places.documents for places in self.by_rank])
        return Places(documents, torch.cat([places.positions for places in self.by_rank]))


def places_of_rank(length, cu_seqlens, cu_seqlens_padded, axis, options):
    """Places of the `length` tokens of this rank. The arguments are those of the model's forward."""
    whole = places_in_row(length * axis.size, cu_seqlens, cu_seqlens_padded)
    if axis.size == 1:
        return whole
    boundaries = [0, length * axis.size] if cu_seqlens is None else cu_seqlens_padded.tolist()
    return PlacesOfRank([whole.at(tokens) for tokens in tokens_by_rank(boundaries, options)], axis.rank)


def part_of_rank(batch, axis, options):
    """This rank's tokens of a whole micro-batch, padded where the documents of a packed row need it."""
    boundaries = [0, batch.tokens.shape[1]]
    if options.packed:
        batch = _pad_documents(batch, _divisor(options))
        boundaries = batch.packing.get("cu_seqlens_padded", batch.packing["cu_seqlens"]).tolist()
    if axis.size == 1:
        return batch
    own = tokens_by_rank(boundaries, options)[axis.rank]
    return replace(batch, tokens=batch.tokens[:, own], labels=batch.labels[:, own], loss_mask=batch.loss_mask[:, own])


def _divisor(options):
    """Of the length of each document, so that it can be split."""
    parts = 2 * options.cp if options.cp > 1 and options.cp_layout == "zigzag" else options.cp
    return parts * options.tp if options.sp or options.experts else parts


def _pad_documents(batch, divisor):
    """Padding is token 0, and does not count in the loss."""
    if divisor == 1:
        return batch
    lengths = batch.packing["cu_seqlens"].diff().tolist()
    padding = [-length % divisor for length in lengths]

    def padded(row):
        parts = zip(row.split(lengths, dim=1), padding, strict=True)
        return torch.cat([F.pad(part, (0, count)) for part, count in parts], dim=1)

    ends = cumulative(length + count for length, count in zip(lengths, padding, strict=True))
    return replace(
        batch,
        tokens=padded(batch.tokens),
        labels=padded(batch.labels),
        loss_mask=padded(batch.loss_mask),
        packing={**batch.packing, "cu_seqlens_padded": ends},
    )


def core_attention(options, axis, kv_of_head=None):
    """The CoreAttention of a rank, under context parallelism or not."""
    if axis.size == 1:
        return CoreAttention(kv_of_head, options.unfused_attention)
    if options.cp_comm == "allgather":
        return GatheringAttention(axis, kv_of_head)
    return RingAttention(axis, kv_of_head, options.bug)


class GatheringAttention(CoreAttention):
    """Gathers all keys and values; their gradients are summed over the ranks and split again."""

    def __init__(self, axis, kv_of_head):
        super().__init__(kv_of_head)
        self.axis = axis

    def attend(self, query, key, value, places):
        key, value = (gather_from_sequence_region(x, self.axis) for x in (key, value))
        return attention(query, key, value, hidden_keys(places, places.of_all_ranks()))


class RingAttention(CoreAttention):
    """Passes keys and values round the ranks."""

    def __init__(self, axis, kv_of_head, bug=None):
        super().__init__(kv_of_head)
        self.axis = axis
        self.bug = bug

    def attend(self, query, key, value, places):
        hidden_by_rank = [hidden_keys(places, keys) for keys in places.by_rank]
        by_sample = (x.transpose(0, 1) for x in (query, key, value))
        return ring_attention(*by_sample, hidden_by_rank, self.axis, self.bug).transpose(0, 1)
