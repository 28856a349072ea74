"""Random tokens, in micro-batches that all strategies share."""

import torch
from make_models import VOCABULARY
from torch import Tensor
from torch.utils.data import Dataset

SEQUENCE = 16


def micro_batches(count: int, size: int, step: int = 0) -> Tensor:
    """[count, size, s]"""
    generator = torch.Generator().manual_seed(step + 1)
    return torch.randint(VOCABULARY, (count, size, SEQUENCE), generator=generator)


class Tokens(Dataset):
    """The samples of `micro_batches`, one after the other."""

    def __init__(self, count: int, size: int, shifted: bool = False):
        """`shifted`: labels are the next tokens."""
        self.samples = micro_batches(count, size).flatten(0, 1)
        self.labels = self.samples.roll(-1, 1) if shifted else self.samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.samples[index], "labels": self.labels[index]}
