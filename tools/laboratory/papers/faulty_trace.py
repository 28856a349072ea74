"""Faults put into recorded tensors: one element, or an aligned group of them as a lane, a thread or a warp writes it.

After "Anatomy of silent data corruption" (arXiv 2605.04213): on real GPUs single flipped bits are fewer than four in
ten corruptions, NaN and INF one in a hundred; most are several bits, or groups of elements, with values that a program
could have computed."""

import random
from collections.abc import Callable

import torch

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Fault = Callable[[torch.Tensor, int, random.Random], None]  # changes a flat tensor in place, at an element or its group


def flipped(bits: int, group: int = 1, same: bool = False) -> Fault:
    """Flips so many bits of each element of an aligned group; `same`: the same ones."""

    def fault(flat: torch.Tensor, at: int, draw: random.Random) -> None:
        width = 8 * flat.itemsize
        chosen = draw.sample(range(width), bits)
        for element in range(*_group(flat, at, group)):
            flip(flat, element, chosen if same else draw.sample(range(width), bits))

    return fault


def flip(flat: torch.Tensor, element: int, bits: list[int]) -> None:
    whole = flat.view(INTEGERS[flat.itemsize])
    width = 8 * flat.itemsize
    mask = sum(1 << bit for bit in bits)
    whole[element] ^= mask - (1 << width) if mask >> (width - 1) else mask


def set_to(value: float) -> Fault:
    def fault(flat: torch.Tensor, at: int, draw: random.Random) -> None:
        flat[at] = value

    return fault


def near_infinity(flat: torch.Tensor, at: int, draw: random.Random) -> None:
    """ATTNChecker's: the highest bit of the exponent."""
    flip(flat, at, [8 * flat.itemsize - 2])


def zeroed(group: int) -> Fault:
    def fault(flat: torch.Tensor, at: int, draw: random.Random) -> None:
        flat[slice(*_group(flat, at, group))] = 0

    return fault


def neighbours(group: int) -> Fault:
    """The values of the next group, or of the one before the last: plausible, and in the wrong place."""

    def fault(flat: torch.Tensor, at: int, draw: random.Random) -> None:
        begin, end = _group(flat, at, group)
        other = end if end + group <= flat.numel() else begin - group
        flat[begin:end] = flat[other : other + end - begin].clone()

    return fault


def plausible(group: int) -> Fault:
    """Values of the tensor itself, from elsewhere."""

    def fault(flat: torch.Tensor, at: int, draw: random.Random) -> None:
        for element in range(*_group(flat, at, group)):
            flat[element] = flat[draw.randrange(flat.numel())].clone()

    return fault


def _group(flat: torch.Tensor, at: int, group: int) -> tuple[int, int]:
    begin = at // group * group
    return begin, min(begin + group, flat.numel())


FAULTS: dict[str, Fault] = {
    "one bit": flipped(1),
    "4 bits of an element": flipped(4),
    "the same bit of 8 elements": flipped(1, 8, same=True),
    "8 elements zero": zeroed(8),
    "32 elements zero": zeroed(32),
    "8 elements are the next 8": neighbours(8),
    "another element's value": plausible(1),
    "INF": set_to(float("inf")),
    "NaN": set_to(float("nan")),
    "near-INF (highest exponent bit)": near_infinity,
}
