"""NumPy arrays as a trace can hold them. NumPy itself is not imported: who has an array has it."""

from typing import Any

from .library import MAX_DIMS, Dtype, TensorView

_DTYPES = {dtype.text: dtype for dtype in Dtype}  # bfloat16 and fp8 as ml_dtypes names them


class NotRecordable(Exception):
    """The text says what the array is: "a tensor of dtype complex64"."""


def view_of_array(array: Any) -> tuple[Any, TensorView]:
    """What owns the memory, and where it is. Raises NotRecordable."""
    if hasattr(array, "mask") and hasattr(array, "filled"):  # its data alone would be another array
        raise NotRecordable("a masked array; expected its values with what stands for masked ones: .filled(0)")
    if array.dtype.name not in _DTYPES or array.dtype.hasobject:
        raise NotRecordable(f"a tensor of dtype {array.dtype.name}")
    if array.ndim > MAX_DIMS:
        raise NotRecordable(f"a tensor of {array.ndim} dimensions")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if any(step % array.itemsize for step in array.strides):
        array = array.copy()
    strides = None if array.flags.c_contiguous else tuple(step // array.itemsize for step in array.strides)
    return array, TensorView(array.ctypes.data, _DTYPES[array.dtype.name], array.shape, strides)
