"""Synthetic training data: a function of the seed and the global micro-batch number, so that every layout
trains on the same tokens.

What can go wrong silently only shows on data that touches it, therefore each micro-batch has
- a token at the first and last id of each rank's vocabulary range, for every tensor parallel size up to 8;
- a loss mask with a different number of unmasked tokens in each sample.

A packed micro-batch is one row of documents of different lengths, each a sample of its own."""

from dataclasses import dataclass, field

import torch

from tinygpt.options import vocabulary_boundaries


@dataclass(frozen=True)
class MicroBatch:
    tokens: torch.Tensor  # int64 [b, s]
    labels: torch.Tensor  # int64 [b, s]: the next tokens
    loss_mask: torch.Tensor  # fp32 [b, s]: 1 where the token counts
    unmasked: torch.Tensor  # fp32: how many tokens count, over all ranks that have a part of the micro-batch
    packing: dict = field(default_factory=dict)  # cu_seqlens and what else the model takes of a packed row


def micro_batch(options, number):
    """Micro-batch `number`, counted over all steps and all data parallel ranks."""
    # A large odd stride keeps the streams of two seeds apart.
    generator = torch.Generator().manual_seed(options.seed * 1_000_003 + number)
    batch, seq = options.micro_batch_size, options.seq
    lengths = _document_lengths(options, generator) if options.packed else [seq] * batch
    # Of each sample one token more, which its last one predicts.
    text = torch.randint(options.vocab, (sum(lengths) + len(lengths),), generator=generator)
    inputs = torch.cat([part[:-1] for part in torch.arange(len(text)).split([length + 1 for length in lengths])])
    boundaries = torch.tensor(vocabulary_boundaries(options.vocab))
    places = torch.randperm(len(inputs), generator=generator)[: len(boundaries)]
    text[inputs[places]] = boundaries
    rows = (1, -1) if options.packed else (batch, seq)
    mask = _loss_mask(lengths, seq, generator).view(rows)
    return MicroBatch(
        text[inputs].view(rows),
        text[inputs + 1].view(rows),
        mask,
        mask.sum(),
        {"cu_seqlens": cumulative(lengths)} if options.packed else {},
    )


def _document_lengths(options, generator):
    """Different ones, between half and all of --seq."""
    shortest = (options.seq + 1) // 2
    lengths = shortest + torch.randperm(options.seq - shortest + 1, generator=generator)
    return lengths[: options.documents].tolist()


def cumulative(lengths):
    """Where each document starts and the last one ends: int32 [n + 1]."""
    return torch.tensor([0, *lengths]).cumsum(0).int()


def _loss_mask(lengths, seq, generator):
    # Between half and all of each sample counts. The counts differ from sample to sample until they run out.
    fewest = (seq + 1) // 2
    counts = fewest + torch.randperm(seq - fewest + 1, generator=generator)
    masks = []
    for sample, length in enumerate(lengths):
        chosen = torch.randperm(length, generator=generator)[: counts[sample % len(counts)]]
        masks.append(torch.zeros(length).index_fill(0, chosen, 1))
    return torch.cat(masks)
