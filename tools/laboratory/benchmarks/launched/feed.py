"""What the programs here have in common: how long they wait, and where their samples come from."""

import argparse
import os
import time
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, Dataset, SequentialSampler

STEPS = 24


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", choices=("loader", "generator"), default="loader")
    parser.add_argument("--wait", type=float, default=0, metavar="SECONDS")
    return parser.parse_args()


def wait(seconds: float) -> None:
    if os.environ.get("LOCAL_RANK", "0") == "0":
        time.sleep(seconds)


class Tokens(Dataset):
    def __init__(self, samples: int, length: int, vocabulary: int):
        generator = torch.Generator().manual_seed(1000)
        self.tokens = torch.randint(0, vocabulary, (samples, length), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tokens[index]


def batches(source: str, data: Dataset, size: int) -> Iterator[torch.Tensor]:
    loader = DataLoader(data, size, sampler=SequentialSampler(data))
    return iter(loader) if source == "loader" else (batch for batch in list(loader))
