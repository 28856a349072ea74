"""The kinds, passes, dtypes and statuses are the same in C, in C++ and in Python."""

import ctypes
import pathlib
import re

import pytest
from conftest import inspect
from recorder import Recorder

from ttrace_torch.library import _PACKED, MAX_DIMS, Dtype, Kind, Pass, Status, TraceError, _Identity, _Record, _Tensor

ROOT = pathlib.Path(__file__).parents[2]


def enumerators(header, declaration, prefix):
    """Name -> number, of an enumeration that begins with the text `declaration`."""
    body = (ROOT / header).read_text().partition(declaration)[2].partition("}")[0]
    return {name: int(number) for name, number in re.findall(rf"\b{prefix}(\w+) = (\d+)", body)}


@pytest.mark.parametrize("ours", [Kind, Pass, Dtype, Status])
def test_python_has_the_names_and_numbers_of_the_c_header(ours):
    theirs = enumerators("include/ttrace/ttrace.h", f"typedef enum ttrace_{ours.__name__.lower()} {{", "TTRACE_")
    assert theirs == {member.name: member.value for member in ours}


def test_arguments_are_packed_as_c_reads_them():
    for ndim, packed in enumerate(_PACKED):
        assert packed.size == _Record.shape.offset + 8 * ndim
    numbers = list(range(1, 18 + MAX_DIMS))
    record = _Record.from_buffer_copy(_PACKED[MAX_DIMS].pack(*numbers) + bytes(8 * MAX_DIMS))
    identity, tensor = record.identity, record.tensor
    assert [identity.struct_size, identity.iteration, identity.microbatch, identity.chunk] == numbers[:4]
    assert [identity.pass_, identity.kind] == numbers[4:6]
    assert [tensor.struct_size, tensor.data, tensor.dtype, tensor.ndim] == numbers[8:12]
    assert [tensor.sketch, tensor.fingerprint, *record.shape] == numbers[15:]
    addresses = (ctypes.c_uint64 * 2).from_buffer_copy(record, _Identity.name.offset)
    assert list(addresses) == numbers[6:8]
    addresses = (ctypes.c_uint64 * 3).from_buffer_copy(record, _Record.tensor.offset + _Tensor.shape.offset)
    assert list(addresses) == numbers[12:15]


@pytest.mark.parametrize(
    "header, declaration, ours",
    [
        ("src/base/trace.h", "enum class Kind ", Kind),
        ("src/base/trace.h", "enum class Pass ", Pass),
        ("src/numeric/dtype.h", "enum class Dtype ", Dtype),
        ("src/record/trace_writer.h", "enum class RecordStatus ", Status),
    ],
)
def test_cpp_has_the_names_and_numbers_of_python(header, declaration, ours):
    theirs = {name.lower(): number for name, number in enumerators(header, declaration, "k").items()}
    expected = {member.name.lower().replace("_", ""): member.value for member in ours if member != Status.OK}
    if ours is Dtype:
        expected["float8e4m3"] = expected.pop("float8e4m3fn")  # C++ has the short name
    assert theirs == expected


def test_the_program_says_the_names_that_python_has(trace_directory):
    given = [(Kind.OUTPUT, pass_, Dtype.UINT8) for pass_ in Pass]
    given += [(kind, Pass.FORWARD, Dtype.UINT8) for kind in Kind if kind != Kind.OUTPUT]
    given += [(Kind.OUTPUT, Pass.FORWARD, dtype) for dtype in Dtype if dtype != Dtype.UINT8]
    recorder = Recorder(trace_directory)
    for number, (kind, pass_, dtype) in enumerate(given):
        recorder.record(f"layers.{number:02}", bytes(8), dtype, (1,), kind=kind, pass_=pass_)
    recorder.close()
    (rank,) = inspect(trace_directory)["ranks"]
    said = {tensor["name"]: (tensor["kind"], tensor["pass"], tensor["dtype"]) for tensor in rank["tensors"]}
    expected = [(kind.text, pass_.text, dtype.text) for kind, pass_, dtype in given]
    assert [said[name] for name in sorted(said)] == expected


@pytest.mark.parametrize(
    "kind, pass_, dtype",
    [
        (max(Kind) + 1, Pass.FORWARD, Dtype.UINT8),
        (Kind.OUTPUT, max(Pass) + 1, Dtype.UINT8),
        (Kind.OUTPUT, Pass.FORWARD, max(Dtype) + 1),
    ],
)
def test_libttrace_knows_no_number_beyond_those_of_python(trace_directory, kind, pass_, dtype):
    recorder = Recorder(trace_directory)
    with pytest.raises(TraceError) as raised:
        recorder.record("a", bytes(8), dtype, (1,), kind=kind, pass_=pass_)
    assert raised.value.status == Status.INVALID
    recorder.close()
