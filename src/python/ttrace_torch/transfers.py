"""Tensors on their way to libttrace: those of a device are handed over when they have arrived on the host, and what is
recorded after them waits behind them. A trace is in the order in which tensors were recorded.

A program without a device never has any that wait: its tensors are handed over at once, where they lie."""

import functools
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from . import side_stream
from .problems import CollectError
from .side_stream import Copy, OutOfDeviceMemory, SideStream
from .tensors import NotTraceable, is_capturing

# Of tensors that wait, each once on the device and once in pinned memory: a hundredth of a large device's memory or
# less, which the bus empties in some 10 ms. A tensor larger than that is waited for.
_MOST_BYTES = 256 << 20

HandOver = Callable[[torch.Tensor], None]  # takes it in host memory, and does not keep it


class _Arrived:
    """A copy in host memory of what was there before."""

    def __init__(self, tensor: torch.Tensor):
        self.host = tensor

    def has_arrived(self) -> bool:
        return True

    def wait(self) -> None:
        pass


class Transfers:
    """Its methods raise what handing over does; CollectError where a device fails."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Copy | _Arrived, HandOver]] = deque()
        self._bytes = 0  # of what waits
        self._streams: dict[torch.device, SideStream | None] = {}

    def add(self, tensor: torch.Tensor, hand_over: HandOver) -> None:
        """`tensor` is traceable; it may change when this has returned. Raises NotTraceable."""
        stream, size = self._stream_of(tensor.device), tensor.numel() * tensor.element_size()
        if stream is None and tensor.is_cpu:
            self._add_from_host(tensor, hand_over)
            return
        if stream is None or size > _MOST_BYTES:
            self._copy_now(tensor, hand_over)
            return
        self._make_room_for(size)
        try:
            copy = stream.begin(tensor)
        except RuntimeError as error:
            if not isinstance(error, OutOfDeviceMemory):  # no pinned memory is to be had, now or at all
                self._streams[tensor.device] = None
            self._copy_now(tensor, hand_over)
            return
        self._append(copy, hand_over)

    def pass_from_host(self) -> bool:
        """Whether a tensor in host memory need not be added: nothing waits that comes before it."""
        return not self._waiting and self._stream_of_host is None

    def crosses_bus(self, tensor: torch.Tensor) -> bool:
        """Whether `add` lets a copy of it come from a device, while the program goes on."""
        return self._stream_of(tensor.device) is not None

    def finish(self) -> None:
        """Waits for all that is under way, and hands it over."""
        while self._waiting:
            self._hand_over_first()

    def _add_from_host(self, tensor: torch.Tensor, hand_over: HandOver) -> None:
        if self._waiting and not is_capturing():
            self._make_room_for(tensor.numel() * tensor.element_size())
        if self._waiting:
            self._append(_Arrived(tensor.detach().clone()), hand_over)
        else:
            hand_over(tensor)

    def _append(self, copy: Copy | _Arrived, hand_over: HandOver) -> None:
        self._waiting.append((copy, hand_over))
        self._bytes += copy.host.numel() * copy.host.element_size()

    def _copy_now(self, tensor: torch.Tensor, hand_over: HandOver) -> None:
        self.finish()
        try:
            host = _asked(lambda: tensor.detach().to("cpu"))
        except OutOfDeviceMemory:  # which a tensor takes that is not contiguous
            raise NotTraceable("a tensor that its device has no memory to copy") from None
        hand_over(host)

    @functools.cached_property
    def _stream_of_host(self) -> SideStream | None:
        return self._stream_of(torch.device("cpu"))

    def _stream_of(self, device: torch.device) -> SideStream | None:
        if device not in self._streams:
            self._streams[device] = side_stream.side_stream_of(device)
        return self._streams[device]

    def _make_room_for(self, size: int) -> None:
        """Hands over what has arrived, and more until there is room."""
        while self._waiting and (self._bytes + size > _MOST_BYTES or _asked(self._waiting[0][0].has_arrived)):
            self._hand_over_first()

    def _hand_over_first(self) -> None:
        copy, hand_over = self._waiting.popleft()
        self._bytes -= copy.host.numel() * copy.host.element_size()
        _asked(copy.wait)
        hand_over(copy.host)


def _asked(question: Callable[[], Any]) -> Any:
    """question(), of a device."""
    try:
        return question()
    except OutOfDeviceMemory:
        raise
    except RuntimeError as error:
        first_line = str(error).partition("\n")[0]
        raise CollectError(f"a tensor could not be copied from its device: {first_line}") from error
