"""Sketches of a device's tensors, made there: it sends 80 or 152 bytes for each cell of 16,384 elements, not the
elements. What a sketch is, src/sketch/cells.h says; what its fingerprint is, src/sketch/fingerprint.h. Those
of libttrace are equal but for the rounding of sums, which here are all made in fp64.

These are plain operations of PyTorch, in the program's own stream: what changes the tensor later comes after them. They
go through the tensor in slabs, so that what they need beside it is some 0.15 GB at most."""

import functools
import math
from collections.abc import Sequence

import torch

_LANES = 16  # sums of a cell
_CHUNK = 128  # elements of a cell that share a permutation of the lanes
_MOST_CELL_ELEMENTS = 16384
_SLAB_ELEMENTS = 1 << 22
_PIECE_WORDS = 1024  # of the fingerprint
_SPREAD = 0x9E3779B97F4A7C15
_EXPONENT = 32  # of sums that are too large for their type


def sketch_of(tensor: torch.Tensor, edges: Sequence[int]) -> torch.Tensor:
    """The cells, as libttrace stores them, and then 8 bytes of fingerprint: uint8, in one dimension, on the tensor's
    device. `edges` are those of Recorder.cell_edges. Raises RuntimeError, as of a device without fp64 or memory."""
    tensor = tensor.detach()
    cells = _cells_of(tensor, edges)
    return torch.cat([cells.reshape(-1), fingerprint(tensor).reshape(1).view(torch.uint8)])


def _cells_of(tensor: torch.Tensor, edges: Sequence[int]) -> torch.Tensor:
    """Shape [*grid, bytes of a cell]."""
    grid = [-(-size // edge) for size, edge in zip(tensor.shape, edges, strict=True)]
    along = max(range(len(grid)), key=grid.__getitem__)
    step = max(1, _SLAB_ELEMENTS * grid[along] // tensor.numel())  # of the grid
    slabs = []
    for begin in range(0, grid[along], step):
        first = begin * edges[along]
        size = min(step * edges[along], tensor.shape[along] - first)
        slab_grid = [*grid[:along], min(step, grid[along] - begin), *grid[along + 1 :]]
        cells = _stored(_elements_by_cell(tensor.narrow(along, first, size), slab_grid, edges))
        slabs.append(cells.view(*slab_grid, -1))
    return torch.cat(slabs, dim=along)


def _elements_by_cell(tensor: torch.Tensor, grid: Sequence[int], edges: Sequence[int]) -> torch.Tensor:
    """Shape [cells, elements of a cell], zeros where cells stick out."""
    whole = [count * edge for count, edge in zip(grid, edges, strict=True)]
    if whole != list(tensor.shape):
        padded = tensor.new_zeros(whole)
        padded[tuple(slice(size) for size in tensor.shape)] = tensor
        tensor = padded
    split = tensor.reshape([part for pair in zip(grid, edges, strict=True) for part in pair])
    dims = range(len(edges))
    return split.permute([2 * d for d in dims] + [2 * d + 1 for d in dims]).reshape(math.prod(grid), math.prod(edges))


def _stored(elements: torch.Tensor) -> torch.Tensor:
    """Of [cells, elements of a cell]: [cells, bytes of a cell]."""
    cells, count = elements.shape
    is_wide = elements.element_size() >= 4
    number = torch.float64 if is_wide else torch.float32
    integers = torch.int32 if is_wide else torch.int16
    values = elements.double()
    is_finite = values.isfinite()
    nonfinite = count - is_finite.sum(1)
    values = torch.where(is_finite, values, 0.0)
    squares, largest = values.square().sum(1), values.abs().amax(1)

    signs, lanes = _table(elements.device)
    chunks = count // _CHUNK
    values = values.view(cells, -1, _LANES) * signs[: count // _LANES]
    by_lane = values.view(cells, chunks, _CHUNK // _LANES, _LANES).sum(2).view(cells, -1)
    sums = by_lane[:, lanes[:, :chunks]].sum(2)

    exponents = torch.where((sums.abs() <= torch.finfo(number).max).all(1), 0, _EXPONENT)
    sums = sums * torch.exp2(-exponents.double()).unsqueeze(1)
    columns = [
        sums.to(number),
        squares.unsqueeze(1),
        largest.to(number).unsqueeze(1),
        nonfinite.to(integers).unsqueeze(1),
        exponents.to(integers).unsqueeze(1),
    ]
    return torch.cat([column.contiguous().view(torch.uint8) for column in columns], dim=1)


def fingerprint(tensor: torch.Tensor) -> torch.Tensor:
    """Of its bytes, row-major: a number of int64, on its device."""
    flat = tensor.detach().contiguous().view(-1)
    if flat.storage_offset() * flat.element_size() % 8 != 0:
        flat = flat.clone()
    piece = 8 * _PIECE_WORDS // flat.element_size()
    slab = _SLAB_ELEMENTS // piece * piece
    whole = flat.numel() // piece * piece
    slabs = [(flat[begin : min(begin + slab, whole)], begin // piece) for begin in range(0, whole, slab)]
    if whole < flat.numel():
        last = flat.new_zeros(piece)
        last[: flat.numel() - whole] = flat[whole:]
        slabs.append((last, whole // piece))
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    for pieces, first in slabs:
        total += _sum_of_pieces(pieces, first)
    return total


def _sum_of_pieces(pieces: torch.Tensor, first: int) -> torch.Tensor:
    """Of whole ones, the first of which is number `first`."""
    words = pieces.view(torch.int64).view(-1, _PIECE_WORDS) * _signed(_SPREAD)
    words ^= _shifted(words, 32)
    words *= _word_factors(words.device)
    return (words.sum(1) * _piece_factors(words.device, first, words.shape[0])).sum()


@functools.lru_cache(maxsize=8)
def _word_factors(device: torch.device) -> torch.Tensor:
    return _mix64(torch.arange(_PIECE_WORDS, dtype=torch.int64, device=device) + (1 << 34)) | 1


@functools.lru_cache(maxsize=1 << 10)  # a model's parameters have few sizes, and each comes in every step
def _piece_factors(device: torch.device, first: int, count: int) -> torch.Tensor:
    return _mix64(torch.arange(first, first + count, dtype=torch.int64, device=device) + (1 << 35)) | 1


@functools.lru_cache(maxsize=8)
def _table(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Version 1 of src/sketch/signs.h. Signs: 1 or -1, shape [groups of 16 elements, 16]. Lanes, shape [16, chunks]: of
    each sum and chunk, which of the sums by chunk and lane is added to it."""
    groups, chunks = _MOST_CELL_ELEMENTS // _LANES, _MOST_CELL_ELEMENTS // _CHUNK
    up_to = functools.partial(torch.arange, dtype=torch.int64, device=device)
    bits = _shifted(_mix64(up_to(groups) + (1 << 32)), 48)
    permuted = _shifted(_mix64(up_to(chunks) + (1 << 32 | 1 << 16)), 60)
    signs = 1.0 - 2.0 * (bits.unsqueeze(1) >> up_to(_LANES) & 1).double()
    return signs, up_to(chunks) * _LANES + (up_to(_LANES).unsqueeze(1) ^ permuted)


def _mix64(x: torch.Tensor) -> torch.Tensor:
    x = (x ^ _shifted(x, 33)) * _signed(0xFF51AFD7ED558CCD)
    x = (x ^ _shifted(x, 33)) * _signed(0xC4CEB9FE1A85EC53)
    return x ^ _shifted(x, 33)


def _shifted(x: torch.Tensor, bits: int) -> torch.Tensor:
    """To the right, with zeros from the left."""
    return (x >> bits) & ((1 << 64 - bits) - 1)


def _signed(word: int) -> int:
    """The number of int64 with these bits."""
    return word - (1 << 64) if word >> 63 else word
