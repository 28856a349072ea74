"""Copies of a device's tensors to the host, for which the program waits nowhere.

The tensor is copied on the device first, in the stream that the program computes with: at the speed of the device's
memory, and before anything can change it, which for a kernel of the program's own no version counter would tell. A
second stream, which waits for the first, takes that copy to pinned memory of the host; an event behind it says when it
is there. Until then the copy is held, so that its memory is not given to others. Pinned memory is PyTorch's to cache:
what was freed is used again, in sizes that are powers of two, without a call that waits for the device.

`torch.cuda`, `torch.xpu` and what other makers add alike have the same streams and events. Elsewhere (`torch.mps` has
no streams) copies wait for the device.

Written from PyTorch's documentation ("CUDA semantics"); it has not met a real device."""

from typing import Any

import torch

OutOfDeviceMemory = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)  # the first since 2.5


class Copy:
    """One that is under way."""

    def __init__(self, host: torch.Tensor, on_device: torch.Tensor, event: Any):
        self.host = host  # whose values count once it has arrived
        self._on_device, self._event = on_device, event

    def has_arrived(self) -> bool:
        """Without waiting. Raises RuntimeError where the device has failed."""
        return self._event.query()

    def wait(self) -> None:
        """Until it has arrived. Raises RuntimeError where the device has failed."""
        self._event.synchronize()


class SideStream:
    """Of one device, beside those of the program."""

    def __init__(self, device: torch.device):
        self._of_device = getattr(torch, device.type)
        self._stream = self._of_device.Stream(device)

    def begin(self, tensor: torch.Tensor) -> Copy:
        """Not to be called while a graph is captured. Raises OutOfDeviceMemory."""
        on_device = tensor.detach().clone(memory_format=torch.contiguous_format)
        host = torch.empty(on_device.shape, dtype=on_device.dtype, device="cpu", pin_memory=True)
        self._stream.wait_stream(self._of_device.current_stream(on_device.device))
        with self._of_device.stream(self._stream):
            host.copy_(on_device, non_blocking=True)
        return Copy(host, on_device, self._stream.record_event())


def side_stream_of(device: torch.device) -> SideStream | None:
    """None where copies must wait for the device."""
    names = ("Stream", "stream", "current_stream")
    has_streams = device.type != "cpu" and all(hasattr(getattr(torch, device.type, None), name) for name in names)
    return SideStream(device) if has_streams else None
