"""Trains the transformer of tools/frameworks/pytorch with an optimizer that updates parameters in bf16 themselves, and
a fault in its step: half_step.py OPTIMIZER FAULT [train.py's options].

The faults are put in below what the optimizer says of itself, so that its options are those of a right run."""

import functools
import importlib
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "frameworks/pytorch"))

OPTIMIZERS = {
    "adam": functools.partial(torch.optim.Adam, lr=1e-3),
    "adam-foreach": functools.partial(torch.optim.Adam, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, foreach=True),
    "adam-fused": functools.partial(torch.optim.Adam, lr=1e-3, fused=True),
    "adamw": functools.partial(torch.optim.AdamW, lr=1e-3),
    "adamw-amsgrad": functools.partial(torch.optim.AdamW, lr=3e-3, betas=(0.9, 0.95), eps=1e-5, amsgrad=True),
    "adamw-foreach": functools.partial(torch.optim.AdamW, lr=3e-3, betas=(0.9, 0.95), foreach=True),
    "adamw-fused": functools.partial(torch.optim.AdamW, lr=1e-3, weight_decay=0.1, fused=True),
    "sgd": functools.partial(torch.optim.SGD, lr=0.3),
    "sgd-momentum": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01),
    "sgd-nesterov": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
}

# What each makes of the learning rate: of all parameters, or of the one with the given place.
FAULTS = {
    "none": (None, 1.0),
    "slightly-small": (None, 0.99),
    "slightly-large": (None, 1.01),
    "one-large": (2, 1.2),
    "one-half": (2, 0.5),
}


def with_fault(step, place, factor):
    """`step` is what an optimizer calls with lists of parameters, gradients and state."""

    @functools.wraps(step)
    def changed(*lists, lr, **options):
        if place is None:
            return step(*lists, lr=factor * lr, **options)
        for index in range(len(lists[0])):
            one = [each[index : index + 1] for each in lists]
            step(*one, lr=factor * lr if index == place else lr, **options)
            for each, (value, *_) in zip(lists, (part or [None] for part in one), strict=True):
                each[index : index + 1] = [value] if each else []  # a buffer that was made now

    return changed


def main() -> None:
    optimizer, fault = sys.argv[1:3]
    for name in ("adam", "sgd"):
        module = importlib.import_module(f"torch.optim.{name}")
        setattr(module, name, with_fault(getattr(module, name), *FAULTS[fault]))
    torch.optim.AdamW = lambda parameters, lr: OPTIMIZERS[optimizer](parameters)  # which train.py makes
    train = importlib.import_module("train")
    sys.argv[1:] = ["--dtype", "bfloat16", *sys.argv[3:]]
    train.main()


if __name__ == "__main__":
    main()
