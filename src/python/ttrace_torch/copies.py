"""Copies of tensors until they have changed. On a CPU fresh memory takes longer to get than to fill: copies are made in
that of the iteration before."""

from typing import Generic, TypeVar

import torch

_MOST_BYTES = 1 << 30  # that are held from one iteration to the next

Key = TypeVar("Key")


class Copies(Generic[Key]):
    def __init__(self) -> None:
        self.kept: dict[Key, torch.Tensor] = {}
        self._spare: dict[Key, torch.Tensor] = {}

    def keep(self, key: Key, tensor: torch.Tensor) -> None:
        tensor, spare = tensor.detach(), self._spare.pop(key, None)
        if spare is not None and spare.shape == tensor.shape and spare.dtype == tensor.dtype and _is_plain(tensor):
            self.kept[key] = spare.copy_(tensor)
        else:
            self.kept[key] = tensor.clone()

    def forget(self) -> None:
        """All copies. The next ones are made in their memory."""
        self._spare |= {key: copy for key, copy in self.kept.items() if _is_plain(copy)}
        self.kept = {}
        size = 0
        for key, copy in list(self._spare.items()):
            size += copy.numel() * copy.element_size()
            if size > _MOST_BYTES:
                del self._spare[key]

    def release(self) -> None:
        """The memory of forgotten copies."""
        self._spare = {}


def _is_plain(tensor: torch.Tensor) -> bool:
    """Others' memory is not ours to use again, or, on a device, is kept by PyTorch."""
    return type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.layout is torch.strided
