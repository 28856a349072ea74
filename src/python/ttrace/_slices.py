"""Indices as NumPy takes them, as boxes of a tensor."""

import operator


def box_of(index: object, shape: tuple[int, ...]) -> tuple[list[int], list[int], set[int]]:
    """Start and size of the box that `index` says, and the dimensions that it drops: those of which it names one
    element. Raises IndexError and TypeError where NumPy does, and ValueError for a step other than 1, which no box
    has."""
    parts = index if isinstance(index, tuple) else (index,)
    named = sum(part is not Ellipsis for part in parts)
    if len(parts) > named + 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if named > len(shape):
        raise IndexError(f"too many indices: the tensor has {len(shape)} dimensions, but {named} were indexed")
    missing = (slice(None),) * (len(shape) - named)
    place = next((place for place, part in enumerate(parts) if part is Ellipsis), len(parts))
    whole = parts[:place] + missing + parts[place + 1 :]
    start, size, dropped = [], [], set()
    for dimension, (part, length) in enumerate(zip(whole, shape, strict=True)):
        begin, end, is_one = _range_of(part, dimension, length)
        start.append(begin)
        size.append(end - begin)
        if is_one:
            dropped.add(dimension)
    return start, size, dropped


def _range_of(part: object, dimension: int, length: int) -> tuple[int, int, bool]:
    if isinstance(part, slice):
        begin, end, step = part.indices(length)
        if step != 1:
            raise ValueError(f"step {step}; expected 1: the array of a slice takes others, as in t[0:8].numpy()[::2]")
        return begin, max(begin, end), False
    if isinstance(part, bool) or not hasattr(part, "__index__"):
        raise TypeError(f"an index of type {type(part).__name__}; expected integers, slices and an ellipsis")
    index = operator.index(part)
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of bounds for dimension {dimension} with size {length}")
    begin = index % length
    return begin, begin + 1, True
