"""Stands in for torch.cuda and NCCL where there is no GPU, so that megatron-core trains unchanged on CPU over gloo.

Import it before megatron. Whatever is asked for on a CUDA device comes to lie on the CPU; streams, events and memory
counters do nothing. Collectives that gloo lacks (averages, bf16, reduce-scatter) are made of those that it has."""

import contextlib
import functools
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

CPU = torch.device("cpu")
FACTORIES = (
    "arange as_tensor empty empty_like eye full linspace ones ones_like rand randint randn tensor zeros zeros_like"
)


def _install() -> None:
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # megatron-core compiles small functions, for minutes on CPU
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    warnings.filterwarnings("ignore")  # of kernels for GPUs that are not there
    _place_on_the_cpu()
    _pretend_there_is_a_device(torch.cuda)
    for module in (dist, c10d):
        module.all_reduce = all_reduce
        module.all_gather_into_tensor = module._all_gather_base = all_gather_into_tensor
        module.reduce_scatter_tensor = module._reduce_scatter_base = reduce_scatter_tensor
        module.all_to_all_single = all_to_all_single
        module.new_group = new_group
        module._coalescing_manager = _coalescing_manager


# Devices.


def _is_cuda(device: Any) -> bool:
    return (isinstance(device, int) and not isinstance(device, bool)) or "cuda" in str(device)


def _on_cpu(function: Callable) -> Callable:
    """`function` with "cuda" among its arguments read as "cpu"."""

    @functools.wraps(function)
    def placed(*args: Any, **kwargs: Any) -> Any:
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = CPU
        args = tuple(CPU if isinstance(each, (str, torch.device)) and _is_cuda(each) else each for each in args)
        return function(*args, **kwargs)

    return placed


def _place_on_the_cpu() -> None:
    for name in FACTORIES.split():
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    torch.Tensor.to = _on_cpu(torch.Tensor.to)
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *_, **__: self
    type_of = torch.Tensor.type

    def type_as_on_cuda(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Megatron's optimizer looks for "torch.cuda.FloatTensor"."""
        answer = type_of(tensor, *args, **kwargs)
        return answer.replace("torch.", "torch.cuda.", 1) if isinstance(answer, str) else answer

    torch.Tensor.type = type_as_on_cuda


class Stream:
    def __init__(self, *_: Any, **__: Any):
        pass

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: Any) -> bool:
        return False

    def record_event(self, *_: Any) -> "Event":
        return Event()

    def wait_stream(self, *_: Any) -> None:
        pass

    wait_event = synchronize = wait_stream


class Event:
    def __init__(self, *_: Any, **__: Any):
        pass

    def query(self) -> bool:
        return True

    def record(self, *_: Any) -> None:
        pass

    synchronize = wait = record


class _Generators:
    def __getitem__(self, _: int) -> torch.Generator:
        return torch.default_generator

    def __len__(self) -> int:
        return 1


class _Properties:
    multi_processor_count, major, minor, total_memory, name = 1, 8, 0, 1 << 34, "cpu"


def _pretend_there_is_a_device(cuda: Any) -> None:
    cuda.current_device = lambda: CPU
    cuda.device_count = lambda: 1
    cuda.get_device_capability = lambda *_, **__: (8, 0)
    cuda.get_device_properties = lambda *_, **__: _Properties()
    cuda.Stream, cuda.Event = Stream, Event
    cuda.current_stream = cuda.default_stream = lambda *_, **__: Stream()
    cuda.stream = cuda.device = lambda *_, **__: contextlib.nullcontext()
    cuda.is_current_stream_capturing = lambda: False
    cuda.synchronize = cuda.empty_cache = lambda *_, **__: None
    cuda.memory_allocated = cuda.max_memory_allocated = cuda.memory_reserved = lambda *_, **__: 0
    cuda.nvtx.range_push = cuda.nvtx.range_pop = lambda *_, **__: None
    cuda.get_rng_state = cuda.random.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.set_rng_state = cuda.random.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    cuda.manual_seed = torch.manual_seed
    cuda.default_generators = _Generators()
    cuda._lazy_call = lambda callback, **_: callback()
    cuda._lazy_init = lambda: None


# Collectives.


class Done:
    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


_all_reduce, _all_gather, _all_to_all = dist.all_reduce, dist.all_gather_into_tensor, dist.all_to_all_single
_new_group = dist.new_group


def _summed(tensor: torch.Tensor, op: Any, group: Any) -> torch.Tensor:
    """A copy, reduced over the group; of bf16 in fp32."""
    average = op == dist.ReduceOp.AVG
    copy = tensor.detach().contiguous().clone()
    copy = copy.float() if copy.dtype == torch.bfloat16 else copy
    _all_reduce(copy, op=dist.ReduceOp.SUM if average else op, group=group)
    return copy.div_(dist.get_world_size(group)) if average else copy


def all_reduce(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    tensor.detach().copy_(_summed(tensor, op, group))
    return Done() if async_op else None


def reduce_scatter_tensor(
    output: torch.Tensor, given: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Any:
    parts = _summed(given.view(-1), op, group).chunk(dist.get_world_size(group))
    output.detach().view(-1).copy_(parts[dist.get_rank(group)])
    return Done() if async_op else None


def all_gather_into_tensor(output: torch.Tensor, given: torch.Tensor, group: Any = None, async_op: bool = False) -> Any:
    _all_gather(output, given.contiguous(), group=group)
    return Done() if async_op else None


def all_to_all_single(
    output: torch.Tensor,
    given: torch.Tensor,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    sizes = [
        each.tolist() if isinstance(each, torch.Tensor) else each for each in (output_split_sizes, input_split_sizes)
    ]
    _all_to_all(output, given.contiguous(), *sizes, group=group)
    return Done() if async_op else None


def new_group(*args: Any, **kwargs: Any) -> Any:
    nccl_options = {"backend", "pg_options"}
    kept = {key: value for key, value in kwargs.items() if key not in nccl_options and value is not None}
    return _new_group(*args, **kept, backend="gloo")


@contextlib.contextmanager
def _coalescing_manager(*_: Any, **__: Any) -> Iterator[Done]:
    yield Done()


_install()
