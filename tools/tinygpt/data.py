"""Synthetic training data: a function of the seed and the global micro-batch number, so that every layout
trains on the same tokens.

What can go wrong silently only shows on data that touches it, therefore each micro-batch has
- a token at the first and last id of each rank's vocabulary range, for every tensor parallel size up to 8;
- a loss mask with a different number of unmasked tokens in each sample."""

from dataclasses import dataclass

import torch

from tinygpt.options import vocabulary_boundaries


@dataclass(frozen=True)
class MicroBatch:
    tokens: torch.Tensor  # int64 [b, s]
    labels: torch.Tensor  # int64 [b, s]: the next tokens
    loss_mask: torch.Tensor  # fp32 [b, s]: 1 where the token counts


def micro_batch(options, number):
    """Micro-batch `number`, counted over all steps and all data parallel ranks."""
    # A large odd stride keeps the streams of two seeds apart.
    generator = torch.Generator().manual_seed(options.seed * 1_000_003 + number)
    batch, seq = options.micro_batch_size, options.seq
    text = torch.randint(options.vocab, (batch, seq + 1), generator=generator)
    boundaries = torch.tensor(vocabulary_boundaries(options.vocab))
    places = torch.randperm(batch * seq, generator=generator)[: len(boundaries)]
    text[places // seq, places % seq] = boundaries
    return MicroBatch(text[:, :-1].contiguous(), text[:, 1:].contiguous(), _loss_mask(batch, seq, generator))


def _loss_mask(batch, seq, generator):
    # Between half and all of each sample counts. The counts differ from sample to sample until they run out.
    fewest = (seq + 1) // 2
    counts = fewest + torch.randperm(seq - fewest + 1, generator=generator)
    mask = torch.zeros(batch, seq)
    for sample in range(batch):
        chosen = torch.randperm(seq, generator=generator)[: counts[sample % len(counts)]]
        mask[sample, chosen] = 1
    return mask
