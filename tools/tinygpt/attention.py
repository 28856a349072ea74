"""Attention on one process, and what it has to know of the tokens: which of them see each other."""

import math

import torch
from torch import nn


class Places:
    """Where the tokens of a row stand: `documents`, the document of each, -1 for padding, and `positions`, its place
    in that, both int64 [s]. They are the same for all samples of a micro-batch."""

    def __init__(self, documents, positions):
        self.documents = documents
        self.positions = positions

    def at(self, indices):
        return Places(self.documents[indices], self.positions[indices])


def places_in_row(length, cu_seqlens=None, cu_seqlens_padded=None):
    """Places of a whole row of `length` tokens, which is one document; or, packed, of several: document i has
    cu_seqlens[i + 1] - cu_seqlens[i] tokens, and starts at cu_seqlens_padded[i] where documents are padded."""
    if cu_seqlens is None:
        return Places(torch.zeros(length, dtype=torch.int64), torch.arange(length))
    lengths = cu_seqlens.long().diff()
    starts = (cu_seqlens if cu_seqlens_padded is None else cu_seqlens_padded).long()
    documents = torch.arange(len(lengths)).repeat_interleave(starts.diff())
    positions = torch.arange(length) - starts[documents]
    padding = positions >= lengths[documents]
    return Places(documents.masked_fill(padding, -1), positions.masked_fill(padding, 0))


def hidden_keys(queries, keys):
    """bool [queries, keys], of two Places: True where the key is of another document, or after the query. Each token
    sees itself; padding sees padding, and is seen by nothing else."""
    other_document = queries.documents.unsqueeze(1) != keys.documents
    return other_document | (keys.positions > queries.positions.unsqueeze(1))


def masked_softmax(scores, hidden):
    """The probabilities [b, heads, s, t] of scores; `hidden` [s, t]."""
    # In bf16 the softmax would lose the small probabilities.
    return scores.float().masked_fill(hidden, -math.inf).softmax(dim=-1).to(scores.dtype)


class MaskedSoftmax(nn.Module):
    """The same as a module, as Megatron-LM has it: a collector sees what goes in and comes out."""

    def forward(self, scores, hidden):
        return masked_softmax(scores, hidden)


def attention(query, key, value, hidden, softmax=masked_softmax):
    """Scaled dot products of [s, b, heads, d] with [t, b, heads, d]; `hidden` [s, t] -> [s, b, heads, d]."""
    query, key, value = (x.permute(1, 2, 0, 3) for x in (query, key, value))  # [b, heads, s, d]
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    return (softmax(scores, hidden) @ value).permute(2, 0, 1, 3)


class CoreAttention(nn.Module):
    """`kv_of_head`, int64 [heads]: the key and value head that each query head looks at; None: its own."""

    def __init__(self, kv_of_head=None, unfused=False):
        super().__init__()
        self.kv_of_head = kv_of_head
        self.scale_mask_softmax = MaskedSoftmax() if unfused else masked_softmax

    def forward(self, query, key, value, places):
        """Causal within each document: [s, b, heads, d] and twice [s, b, kv heads, d] -> [s, b, heads * d]."""
        if self.kv_of_head is not None:
            key, value = (x.index_select(2, self.kv_of_head) for x in (key, value))
        return self.attend(query, key, value, places).flatten(start_dim=2)

    def attend(self, query, key, value, places):
        return attention(query, key, value, hidden_keys(places, places), self.scale_mask_softmax)
