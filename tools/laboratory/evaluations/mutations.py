"""Faults of a chosen size in the shards of one tensor, as bugs and broken machines make them.

Each function takes the values of all shards and a size; it returns new ones."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

Values = list[torch.Tensor]  # of the shards of all ranks, in the recorded dtype

# (exponent bits, mantissa bits, the integer of the same width)
_LAYOUTS = {
    torch.float32: (8, 23, torch.int32),
    torch.bfloat16: (8, 7, torch.int16),
    torch.float16: (5, 10, torch.int16),
}


def scaled(shards: Values, size: float) -> Values:
    """Every element times 1 + size."""
    return [(shard.double() * (1 + size)).to(shard.dtype) for shard in shards]


def zeroed_rows(shards: Values, size: float) -> Values | None:
    """This share of all rows, the first ones of each shard in turn; None where it is no whole number of rows."""
    rows = size * sum(len(_rows(shard)) for shard in shards)
    if rows != int(rows):
        return None
    left = int(rows)
    changed = [shard.clone() for shard in shards]
    for shard in changed:
        count = min(left, len(_rows(shard)))
        _rows(shard)[:count] = 0
        left -= count
    return changed


def swapped_chunk(shards: Values, size: float) -> Values | None:
    """Two neighbouring chunks of rows of the first shard, each this share of the whole tensor; None where it is no
    whole number of rows, or too many."""
    rows = size * sum(len(_rows(shard)) for shard in shards)
    count = int(rows)
    if rows != count or 2 * count > len(_rows(shards[0])):
        return None
    changed = [shards[0].clone(), *shards[1:]]
    _rows(changed[0])[:count] = _rows(shards[0])[count : 2 * count]
    _rows(changed[0])[count : 2 * count] = _rows(shards[0])[:count]
    return changed


def lost_term(shards: Values, size: float) -> Values:
    """The values are taken to be the sum of n = 1 / size independent terms of equal variance, of which one is left out.
    Given the sum x, such a term is x / n and something independent of x, of variance (1 - 1/n) / n of x's."""
    generator = torch.Generator().manual_seed(0)
    count = sum(shard.numel() for shard in shards)
    rms = math.sqrt(sum(shard.double().square().sum().item() for shard in shards) / count)
    changed = []
    for shard in shards:
        noise = torch.randn(shard.shape, generator=generator, dtype=torch.float64) * rms * math.sqrt((1 - size) * size)
        changed.append((shard.double() * (1 - size) - noise).to(shard.dtype))
    return changed


def flipped_bit(shards: Values, size: int) -> Values | None:
    """Bit `size` of the exponent, 0 being the lowest, of the element of the first shard whose size is nearest to the
    root mean square: 2^(2^size) times as large where the bit was not set, as small where it was. None where there is no
    such bit."""
    exponent_bits, mantissa_bits, integer = _LAYOUTS[shards[0].dtype]
    if size >= exponent_bits:
        return None
    sizes = shards[0].double().abs()
    element = int((sizes - sizes.square().mean().sqrt()).abs().argmin())
    bits = shards[0].view(integer).clone()
    bits.view(-1)[element] ^= 1 << (mantissa_bits + size)
    return [bits.view(shards[0].dtype), *shards[1:]]


def changed_row(shards: Values, size: float) -> Values:
    """The middle row of the first shard times 1 + size."""
    changed = [shards[0].clone(), *shards[1:]]
    rows = _rows(changed[0])
    middle = len(rows) // 2
    rows[middle] = (rows[middle].double() * (1 + size)).to(rows.dtype)
    return changed


def changed_element(shards: Values, size: float) -> Values:
    """The middle element of the first shard plus so many times the root mean square of all."""
    count = sum(shard.numel() for shard in shards)
    rms = math.sqrt(sum(shard.double().square().sum().item() for shard in shards) / count)
    changed = [shards[0].clone(), *shards[1:]]
    elements = changed[0].view(-1)
    middle = len(elements) // 2
    elements[middle] = (elements[middle].double() + size * rms).to(elements.dtype)
    return changed


def _rows(shard: torch.Tensor) -> torch.Tensor:
    """A view of it: all dimensions but the last are rows."""
    return shard.view(-1, shard.shape[-1])


@dataclass(frozen=True)
class Mutation:
    name: str
    apply: Callable
    sizes: list  # largest first
    words: Callable  # of a size
    ordered: bool = True  # what is caught at one size should be caught at all larger ones


_SHARES = [2.0**-k for k in range(1, 9)]

MUTATIONS = [
    Mutation("uniform scaling", scaled, [2.0**-k for k in range(25)], lambda s: f"1 + 2^{int(math.log2(s))}"),
    Mutation("zeroed rows", zeroed_rows, _SHARES, lambda s: f"1/{round(1 / s)} of the rows"),
    Mutation("swapped chunk", swapped_chunk, _SHARES, lambda s: f"2 x 1/{round(1 / s)} of the rows"),
    Mutation(
        "lost term of a sum", lost_term, [2.0**-k for k in range(1, 49)], lambda s: f"1 of 2^{int(-math.log2(s))}"
    ),
    Mutation("one changed row", changed_row, [2.0**-k for k in range(-3, 9)], lambda s: f"times 1 + {s:g}"),
    Mutation("one changed element", changed_element, [2.0**-k for k in range(-6, 7)], lambda s: f"{s:g} rms off"),
    Mutation("flipped exponent bit", flipped_bit, list(range(7, -1, -1)), lambda b: f"bit {b}", ordered=False),
]
