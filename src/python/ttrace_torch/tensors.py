"""What a tensor is, and its bytes in host memory for libttrace to read."""

from collections.abc import Iterator

import torch

from .library import MAX_DIMS, Dtype, TensorView

_DTYPES = {getattr(torch, dtype.text): dtype for dtype in Dtype if hasattr(torch, dtype.text)}
# Dtypes that traces do not have, and one of theirs that holds each of their numbers exactly.
_WIDER = {
    "float8_e8m0fnu": torch.bfloat16,  # scales of MXFP8
    "float8_e4m3fnuz": torch.bfloat16,
    "float8_e5m2fnuz": torch.bfloat16,
    "float4_e2m1fn_x2": torch.float8_e4m3fn,  # two numbers in a byte, the first in its lower half
    "uint16": torch.int32,
    "uint32": torch.int64,
}
_WIDENED = {getattr(torch, name): wider for name, wider in _WIDER.items() if hasattr(torch, name)}
_SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
_MOST_DENSE = 1 << 28  # elements of a sparse tensor that is recorded densely: 1 GiB in fp32
_PACKED = getattr(torch, "float4_e2m1fn_x2", None)
_E2M1 = torch.tensor([sign * value for sign in (1, -1) for value in (0.0, 0.5, 1, 1.5, 2, 3, 4, 6)]).to(
    torch.float8_e4m3fn  # OCP MX formats, table 5
)
_PLAIN = (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.nn.Parameter))

INSIDE_GRAPH = "computed inside a CUDA graph that is being captured"
INSIDE_TRANSFORM = "computed inside a transform of torch.func"
LOSS_OF_NO_MODEL = "its backward() reaches no model, whose outputs' gradients are given to a later one"
INSIDE_BACKWARD = "computed in the backward of a torch.autograd.Function alone"


class NotTraceable(Exception):
    """The text says what the tensor is: "a sparse tensor"."""


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).rpartition(".")[2]


def is_floating(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point


def is_dtensor(tensor: torch.Tensor) -> bool:
    if type(tensor) in _PLAIN:  # looking for an attribute that is not there takes long
        return False
    return isinstance(getattr(tensor, "_local_tensor", None), torch.Tensor)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Of a DTensor, this rank's part, when it has arrived."""
    if type(tensor) in _PLAIN:
        return tensor
    tensor = tensor._local_tensor if is_dtensor(tensor) else tensor
    return tensor.wait() if type(tensor).__name__ == "AsyncCollectiveTensor" else tensor


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """Of complex numbers their pairs, in a dimension of two behind the others; of others the tensor itself."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def piece_size(device: torch.device) -> int:
    """How many elements to work on at a time, where each makes some numbers of 8 bytes that nobody keeps: on the host
    those stay in the cache, elsewhere an operation is to be worth its launch."""
    return 1 << 15 if device.type == "cpu" else 1 << 20


def has_plain_values(tensor: torch.Tensor) -> bool:
    """Whether the elements of this rank's part are floating-point or complex numbers in memory, one after the other or
    strided."""
    tensor = local_part(tensor)
    is_plain = isinstance(tensor, _PLAIN) and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    is_number = is_floating(tensor) or tensor.is_complex()
    if not (is_plain and is_number and tensor.layout is torch.strided) or tensor.is_meta or tensor.is_nested:
        return False
    return not torch._C._has_storage(tensor) or _has_memory(tensor)


def _has_memory(tensor: torch.Tensor) -> bool:
    """False where the program has freed what the tensor lies in, as FSDP does with what it has gathered: a view then
    has an address all the same, behind which there is nothing. The tensor has a storage."""
    if tensor.numel() == 0:
        return True
    end = tensor.storage_offset() + tensor.numel()
    if not tensor.is_contiguous():
        end = tensor.storage_offset() + 1
        end += sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.untyped_storage().nbytes() >= end * tensor.element_size() and not tensor._is_zerotensor()


def is_capturing() -> bool:
    """Whether what this thread asks of a CUDA device just now goes into a graph and is not run. Then nothing can be
    read, and what waits for the device, or takes pinned memory, ends the capture by an error."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def in_transform() -> bool:
    """Whether the program is inside a transform of torch.func (vmap, grad, ...), whose tensors have no storage."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def traceable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as libttrace can read it once its bytes are in host memory, the same one where possible; of a DTensor
    this rank's part. Raises NotTraceable."""
    if type(tensor) is not torch.Tensor:
        if torch.nn.parameter.is_lazy(tensor):
            raise NotTraceable("a lazy parameter: it has no value before its module is called")
        tensor = local_part(tensor)
        dispatch = type(tensor).__torch_dispatch__
        if not isinstance(tensor, _PLAIN) or dispatch is not torch.Tensor.__torch_dispatch__:
            raise NotTraceable(f"a {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        tensor = _dense(tensor)
    if tensor.is_nested:
        raise NotTraceable("a nested tensor")
    is_cpu = tensor.is_cpu
    if not is_cpu and tensor.is_meta:
        raise NotTraceable("a tensor without data (device meta)")
    if not torch._C._has_storage(tensor):
        raise NotTraceable("a tensor without storage, as inside a transform of torch.func")
    if not _has_memory(tensor):
        raise NotTraceable("a tensor without memory, which the program has freed or never taken")
    if tensor.dtype not in _DTYPES and not tensor.is_complex() and tensor.dtype not in _WIDENED:
        raise NotTraceable(f"a tensor of dtype {dtype_name(tensor.dtype)}")
    if tensor.dim() + tensor.is_complex() > MAX_DIMS:
        raise NotTraceable(f"a tensor of {tensor.dim()} dimensions")
    if not is_cpu and is_capturing():
        raise NotTraceable(INSIDE_GRAPH)
    if tensor.dtype not in _DTYPES:
        tensor = _in_recorded_dtype(tensor.detach())
    return tensor.detach().resolve_neg() if tensor.is_neg() else tensor


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """The elements that a sparse tensor stands for. Raises NotTraceable."""
    layout = dtype_name(tensor.layout)
    if tensor.layout not in _SPARSE:
        raise NotTraceable(f"a {layout} tensor")
    if tensor.numel() > _MOST_DENSE:
        raise NotTraceable(f"a {layout} tensor of {tensor.numel()} elements, more than {_MOST_DENSE}")
    return tensor.detach().to_dense()


def _in_recorded_dtype(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers, exactly, in a dtype that traces have. Complex ones are pairs (`as_real`); of packed ones, the
    last dimension is twice as large."""
    if tensor.is_complex():
        return as_real(tensor)
    if tensor.dtype == _PACKED:
        halves = tensor.contiguous().view(torch.uint8)
        codes = torch.stack((halves & 0xF, halves >> 4), dim=-1).flatten(-2)
        return _E2M1.to(codes.device)[codes.int()]
    return tensor.to(_WIDENED[tensor.dtype])


def view_as_it_is(tensor: torch.Tensor) -> TensorView | None:
    """Of a plain tensor in host memory, which most are: `view_of(traceable(tensor))`, each property asked for once.
    None of any other. The tensor must outlive the view."""
    if type(tensor) not in _PLAIN or not tensor.is_cpu or tensor.layout is not torch.strided or tensor.is_neg():
        return None
    if tensor.is_nested:
        return None
    dtype, shape = _DTYPES.get(tensor.dtype), tensor.shape
    if dtype is None or len(shape) > MAX_DIMS:
        return None
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # it has no storage
        return None
    if not _has_memory(tensor):
        return None
    return TensorView(address, dtype, shape, None if tensor.is_contiguous() else tensor.stride())


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that view_of takes, the same one where possible. Waits for the device. Raises NotTraceable."""
    tensor = traceable(tensor)
    return tensor if tensor.is_cpu else tensor.detach().to("cpu")


def dtype_of(tensor: torch.Tensor) -> Dtype:
    """Of a traceable one."""
    return _DTYPES[tensor.dtype]


def view_of(host: torch.Tensor) -> TensorView:
    """Of a traceable tensor in host memory, which must outlive the view."""
    strides = None if host.is_contiguous() else host.stride()
    return TensorView(host.data_ptr(), dtype_of(host), host.shape, strides)


def named_parameters(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Shared ones with each name; those of a clone are the parameters that it was made of. A class may have a method of
    its own in the place of PyTorch's, as TorchRL's losses do, with other arguments and other names, and so of
    `parameters`, which is not called either."""
    for name, parameter in _parameters_as_they_are(module):
        leaf = None if parameter.grad_fn is None else _made_of(parameter)
        yield name, parameter if leaf is None else leaf


def _parameters_as_they_are(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return torch.nn.Module.named_parameters(module, remove_duplicate=False)


def has_parameters(module: torch.nn.Module) -> bool:
    return next(_parameters_as_they_are(module), None) is not None


def is_clone(module: torch.nn.Module) -> bool:
    """Whether its parameters are computed from others, so that gradients go through to those: what learns fast in
    meta-learning (Finn et al., MAML, arXiv 1703.03400), as learn2learn's `clone_module` makes it for each task."""
    computed = [parameter for _, parameter in _parameters_as_they_are(module) if parameter.grad_fn is not None]
    return bool(computed) and all(_made_of(parameter) is not None for parameter in computed)


def _made_of(parameter: torch.Tensor) -> torch.Tensor | None:
    """The leaf that `parameter` was before a clone and updates by `p - lr * g`, each of which has it for its first
    operand; None where there is none of its shape."""
    node = parameter.grad_fn
    while node is not None and not hasattr(node, "variable"):
        node = node.next_functions[0][0] if node.next_functions else None
    leaf = None if node is None else node.variable
    return leaf if leaf is not None and leaf.shape == parameter.shape else None
