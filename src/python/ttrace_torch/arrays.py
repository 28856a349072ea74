"""NumPy arrays as a trace can hold them. NumPy is imported where an array is made: who has one has it."""

from typing import Any

from .library import MAX_DIMS, Dtype, TensorView

_DTYPES = {dtype.text: dtype for dtype in Dtype}  # bfloat16 and fp8 as ml_dtypes names them


class NotRecordable(Exception):
    """The text says what the array is: "a tensor of dtype complex64"."""


def array_of(values: Any) -> Any:
    """What NumPy makes of it. Raises NotRecordable where that would lack what makes it different from plain numbers: a
    mask, a unit, or whatever else a subclass of arrays or of torch's tensors keeps beside them."""
    import numpy

    _refuse_subclasses(values, numpy.ndarray, (numpy.ndarray, numpy.memmap, numpy.matrix))
    return numpy.asarray(values)


def _refuse_subclasses(values: Any, array: type, plain: tuple[type, ...]) -> None:
    if isinstance(values, (list, tuple)):
        for value in values:
            _refuse_subclasses(value, array, plain)
        return
    of = type(values)
    is_tensor = any(base.__module__ == "torch" and base.__name__ == "Tensor" for base in of.__mro__[1:])
    if (isinstance(values, array) and of not in plain) or (is_tensor and of.__name__ not in ("Parameter", "Buffer")):
        raise NotRecordable(f"a {of.__name__}, of which a trace would hold the plain values alone")


def view_of_array(array: Any) -> tuple[Any, TensorView]:
    """What owns the memory, and where it is. Raises NotRecordable."""
    if array.dtype.name not in _DTYPES or array.dtype.hasobject:
        raise NotRecordable(f"a tensor of dtype {array.dtype.name}")
    if array.ndim > MAX_DIMS:
        raise NotRecordable(f"a tensor of {array.ndim} dimensions")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if any(step % array.itemsize for step in array.strides):
        array = array.copy()
    strides = None if array.flags.c_contiguous else tuple(step // array.itemsize for step in array.strides)
    return array, TensorView(array.ctypes.data, _DTYPES[array.dtype.name], array.shape, strides)
