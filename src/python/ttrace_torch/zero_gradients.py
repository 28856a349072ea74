"""Parameters of whose gradients nothing but zeros was recorded, though more iterations would show others: what lies
behind something that begins at zero, such as the A of a LoRA behind its B.

They are told by families, whose names differ in numbers only, as a check tells them (src/judge/zero_gradients.h). Each
rank decides by what it holds itself, without a word to others: where one records more iterations than another, those
that all have are compared (src/load/further.h)."""

import torch

from .tensors import local_part

MOST_FURTHER = 2  # iterations: zeros in three are taken to be so by design


class ZeroGradients:
    def __init__(self) -> None:
        self._is_seen: dict[str, bool | torch.Tensor] = {}  # of each family, whether an element is not zero

    def add(self, name: str, gradient: torch.Tensor) -> None:
        """Of the parameter `name`, as an optimizer is about to use it. Waits for no device."""
        family, part = family_of(name), local_part(gradient).detach()
        is_seen = self._is_seen.get(family, False)
        if is_seen is True or (part.layout is torch.strided and part.numel() == 0):
            return
        if part.layout is not torch.strided or part.is_meta:
            self._is_seen[family] = True
            return
        has_some = part.any()
        if part.device.type == "cpu":
            self._is_seen[family] = bool(has_some)
        else:
            self._is_seen[family] = has_some if is_seen is False else is_seen.to(part.device) | has_some

    def families(self) -> list[str]:
        """Those with nothing but zeros so far."""
        self._is_seen = {family: bool(is_seen) for family, is_seen in self._is_seen.items()}
        return sorted(family for family, is_seen in self._is_seen.items() if not is_seen)


def family_of(name: str) -> str:
    """The name with `#` for numbers, as `without_numbers` of src/base/tensor_name.h."""
    return ".".join("#" if part.isascii() and part.isdigit() else part for part in name.split("."))
