"""EEC-ABFT (ATTNChecker, sections 4.2 and 4.3): INF, NaN and near-INF in a product, placed and corrected by plain and
weighted checksums of its columns and rows, which pass through the product from its operands. Here for tensors of
PyTorch's in fp32 or fp64, many matrices at once; `reproductions/extreme.cpp` has it in C++."""

from dataclasses import dataclass

import torch

NEAR_INFINITY = 1e10  # the paper's T_near-INF


@dataclass(frozen=True)
class Checksums:
    """Of each line: what its sum and its sum weighted 1, 2, 3, ... are to be, and how far rounding may take the plain
    sum off: 2 n u |A| |B| along the line, n being what is added up on either path, and the smallest normal number for
    each multiplication, below which it may be flushed to zero."""

    plain: torch.Tensor
    weighted: torch.Tensor
    allowed: torch.Tensor


def weights(length: int, like: torch.Tensor) -> torch.Tensor:
    return torch.arange(1, length + 1, dtype=like.dtype, device=like.device)


def of_columns(a: torch.Tensor, b: torch.Tensor) -> Checksums:
    """Of the columns of A B: those of A, times B."""
    rows = a.shape[-2]
    plain, weighted = a.sum(-2, keepdim=True), (weights(rows, a)[:, None] * a).sum(-2, keepdim=True)
    inner, limits = a.shape[-1], torch.finfo(a.dtype)
    allowed = (rows + inner) * limits.eps * (a.abs().sum(-2, keepdim=True) @ b.abs()) + rows * (inner + 1) * limits.tiny
    return Checksums(*(sums.squeeze(-2) for sums in (plain @ b, weighted @ b, allowed)))


def of_rows(a: torch.Tensor, b: torch.Tensor) -> Checksums:
    """Of the rows of A B: A times those of B. They are the columns of its transpose."""
    return of_columns(b.mT, a.mT)


def corrected_lines(lines: torch.Tensor, checksums: Checksums) -> torch.Tensor:
    """Section 4.2, of each line (the last dimension): one wrong element is where the only extreme one is, or where the
    ratio of the two differences says (cases 1 to 3), and becomes what its line's checksum and its other elements leave
    for it. A line with several extreme elements (case 4), or whose sums do not agree afterwards, stays as it is."""
    result = lines.clone()
    by_place = weights(lines.shape[-1], lines)
    wrong = ~agree(lines, checksums, by_place)
    line = lines[wrong]
    plain, weighted, allowed = (getattr(checksums, name)[wrong] for name in ("plain", "weighted", "allowed"))
    extreme = ~(line.abs() <= NEAR_INFINITY)
    ratio = (weighted - (by_place * line).sum(-1)) / (plain - line.sum(-1))
    by_ratio = ratio.nan_to_num(1).round().clamp(1, lines.shape[-1]).long() - 1
    place = torch.where(extreme.any(-1), extreme.int().argmax(-1), by_ratio).unsqueeze(-1)
    others = line.scatter(-1, place, 0).sum(-1)
    repaired = line.scatter(-1, place, (plain - others).unsqueeze(-1))
    good = agree(repaired, Checksums(plain, weighted, allowed), by_place) & (extreme.sum(-1) <= 1)
    result[wrong] = torch.where(good.unsqueeze(-1), repaired, line)
    return result


def agree(lines: torch.Tensor, checksums: Checksums, by_place: torch.Tensor) -> torch.Tensor:
    """Whether both sums of each line are what its checksums say, within rounding. NaN is not."""
    plain = (checksums.plain - lines.sum(-1)).abs() <= checksums.allowed
    weighted = (checksums.weighted - (by_place * lines).sum(-1)).abs() <= lines.shape[-1] * checksums.allowed
    return plain & weighted


def is_right(product: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the sums of all columns and rows are those of A B."""
    columns = agree(product.mT, of_columns(a, b), weights(product.shape[-2], product))
    return bool(columns.all() and agree(product, of_rows(a, b), weights(product.shape[-1], product)).all())


def corrected(product: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A B, of which `product` [..., rows, columns] may have one wrong element, row or column. Section 4.3: columns
    first, which correct an element or a row; of a wrong column they see too much or nothing, and the rows correct it.
    What made a row wrong may have made its own checksums wrong, so rows that the columns corrected are left to them."""
    by_columns = corrected_lines(product.mT, of_columns(a, b)).mT
    is_done = ((by_columns != product) & ~by_columns.isnan()).any(-1, keepdim=True)
    return torch.where(is_done, by_columns, corrected_lines(by_columns, of_rows(a, b)))
