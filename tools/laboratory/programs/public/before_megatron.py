"""What the programs of Megatron-LM have in common: tools/frameworks/megatron/train.py, as one process or as ranks."""

import os
import sys
from pathlib import Path

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "frameworks" / "megatron"))

import cuda_stand_in  # noqa: F401 - before megatron, which looks for a GPU
import train

MISTAKE, RANKS = os.environ.get("MISTAKE", ""), int(os.environ.get("WORLD_SIZE", 1))


def run(model: list[str], parallel: list[str]) -> None:
    """`model`: options of train.py for all; `parallel`: for ranks alone."""
    sys.argv = ["train.py", *model, *(parallel if RANKS > 1 else [])]
    train.main()
