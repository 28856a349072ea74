"""How the gradient that an optimizer was given follows from the main gradient: clipping by a norm multiplies all by one
number, which is not known beforehand (a program may clip by hand) and so is measured."""

from collections.abc import Collection, Hashable, Iterator

import torch

from .tensors import as_real, local_part, piece_size

_ENOUGH = 1 << 20  # elements: of so many, roundings leave no trace in the factor


def clip_factors(pairs: dict[Hashable, tuple[torch.Tensor, torch.Tensor]]) -> dict[Hashable, float | None]:
    """Of gradients that are clipped together, each as given to the optimizer and as recorded: the number that the
    recorded one was multiplied by, one for all that are not unchanged. None where that does not give, in every element,
    what was given, to 2 ulp, of fp64 to 4; below fp32, whose ulp is no small error, to the bit. Zeros have the number
    of the others.
    """
    factors: dict[Hashable, float | None] = {}
    changed, equal = {}, {}
    for key, (given, main) in pairs.items():
        given, main = as_real(local_part(given).detach()), as_real(local_part(main).detach())
        if _are_equal(given, main):
            factors[key], equal[key] = 1.0, main
        else:
            factors[key] = None
            if given.dtype in (torch.float32, torch.float64) and given.numel() == main.numel():
                changed[key] = given, main
    factor = _common_factor(changed.values())
    for key, (given, main) in changed.items():
        if _is_product(given, factor, main):
            factors[key] = factor
    if factor in factors.values():
        factors |= {key: factor for key, main in equal.items() if not main.any()}
    return factors


def _are_equal(given: torch.Tensor, main: torch.Tensor) -> bool:
    if given.numel() != main.numel():
        return False
    if given.data_ptr() == main.data_ptr() != 0 and given.dtype == main.dtype:
        return True
    if given.dtype == main.dtype and given.device == main.device:
        return torch.equal(given.reshape(-1), main.reshape(-1))
    return all(torch.equal(a, b) for a, b in _pieces(given, main))


def _common_factor(pairs: Collection[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Least squares over the first elements. Whether it is the factor of all, `_is_product` finds out."""
    factor = _least_squares(pairs, 0.0)
    # The sums round by more than an ulp of fp64, which is what is left of it here.
    return factor + _least_squares(pairs, factor)


def _least_squares(pairs: Collection[tuple[torch.Tensor, torch.Tensor]], without: float) -> float:
    """The number times which the second of each pair is what is left of the first."""
    product = square = 0.0
    elements = 0
    for given, main in pairs:
        for a, b in _pieces(given, main):
            product += torch.dot(a - without * b, b).item()
            square += torch.dot(b, b).item()
            elements += b.numel()
            if square and elements >= _ENOUGH:
                return product / square
    return product / square if square else 0.0


def _is_product(given: torch.Tensor, factor: float, main: torch.Tensor) -> bool:
    # Most programs multiply by a number of the gradients' dtype, which the least squares come near enough to.
    is_alike = given.device == main.device and given.dtype == main.dtype and given.shape == main.shape
    if is_alike and torch.equal(given, main * torch.tensor(factor, dtype=given.dtype, device=given.device)):
        return True
    info = torch.finfo(given.dtype)
    subnormal = info.smallest_normal * info.eps
    # One to two ulp, and as much where they are all equal; in fp64, the product of which rounds here too, twice that.
    most = info.eps * (2 if given.dtype == torch.float64 else 1)
    return all(bool(((a - factor * b).abs() <= most * a.abs() + 2 * subnormal).all()) for a, b in _pieces(given, main))


def _pieces(given: torch.Tensor, main: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Of equal sizes, in fp64."""
    given, main = given.reshape(-1), main.reshape(-1)
    size = piece_size(given.device)
    for begin in range(0, given.numel(), size):
        piece = slice(begin, begin + size)
        yield given[piece].double(), main[piece].to(given.device).double()
