"""A trace is an ordinary HDF5 file: other people's tools read it."""

import ctypes
import glob
import json
import os
import struct
import subprocess

import h5py
import numpy as np
from conftest import PROGRAM
from recorder import Dtype, Recorder

GROUP = "tensors/0/0/forward/output/0"


def bfloat16_bytes(values):
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()


def recorded_file(directory, name, data, dtype, shape, strides=None):
    recorder = Recorder(directory)
    recorder.record(name, data, dtype, shape, strides)
    recorder.close()
    return directory / "rank-00000.h5"


def test_h5py_reads_every_common_dtype(trace_directory):
    codes = {
        "float64": Dtype.FLOAT64,
        "float32": Dtype.FLOAT32,
        "float16": Dtype.FLOAT16,
        "int8": Dtype.INT8,
        "int16": Dtype.INT16,
        "int32": Dtype.INT32,
        "int64": Dtype.INT64,
        "uint8": Dtype.UINT8,
        "bool": Dtype.BOOL,
    }
    arrays = {
        name: (np.arange(6).reshape(2, 3) % 2 if name == "bool" else np.arange(6).reshape(2, 3)).astype(name)
        for name in codes
    }
    recorder = Recorder(trace_directory)
    for name, array in arrays.items():
        recorder.record(name, array.ctypes.data, codes[name], array.shape)
    recorder.close()
    with h5py.File(trace_directory / "rank-00000.h5") as file:
        for name, array in arrays.items():
            assert file[GROUP][name].dtype == array.dtype
            assert np.array_equal(file[GROUP][name][()], array)


def test_h5py_reads_each_of_the_tensors_that_share_their_bytes(trace_directory):
    values = np.arange(5000, dtype=np.float32)
    recorder = Recorder(trace_directory)
    for name, shape in (("a", (5000,)), ("b", (50, 100))):
        recorder.record(name, values.tobytes(), Dtype.FLOAT32, shape)
    values[7] = -1
    recorder.record("changed", values.tobytes(), Dtype.FLOAT32, (5000,))
    recorder.close()
    with h5py.File(trace_directory / "rank-00000.h5") as file:
        a, b, changed = (file[GROUP][name] for name in ("a", "b", "changed"))
        assert a.id.get_offset() == b.id.get_offset() != changed.id.get_offset()
        assert np.array_equal(a[()], b[()].reshape(-1)) and b.shape == (50, 100)
        assert a[7] == 7 and changed[7] == -1
    printed = subprocess.run([PROGRAM, "inspect", trace_directory, "--verify"], capture_output=True, text=True)
    assert "3 tensors, 58.6 KiB (" in printed.stdout and "every checksum agrees" in printed.stdout


def test_h5py_decodes_bfloat16(trace_directory):
    values = np.array([0.0, -0.0, 1.0, -2.5, 3.0e38, 1.0e-38, 1.0e-40, 0.00781250], np.float32)
    values = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    path = recorded_file(trace_directory, "x", bfloat16_bytes(values), Dtype.BFLOAT16, (8,))
    with h5py.File(path) as file:
        decoded = file[GROUP]["x"][()]
    assert decoded.astype(np.float32).tobytes() == values.tobytes()


def test_h5py_decodes_fp8(trace_directory):
    recorder = Recorder(trace_directory)
    codes = bytes(range(256))
    recorder.record("e4m3", codes, Dtype.FLOAT8_E4M3FN, (256,))
    recorder.record("e5m2", codes, Dtype.FLOAT8_E5M2, (256,))
    recorder.close()
    with h5py.File(trace_directory / "rank-00000.h5") as file:
        e4m3 = file[GROUP]["e4m3"][()].astype(np.float32)
        e5m2 = file[GROUP]["e5m2"][()].astype(np.float32)
    # e5m2 is the upper byte of fp16.
    assert np.array_equal(
        e5m2, (np.arange(256) << 8).astype(np.uint16).view(np.float16).astype(np.float32), equal_nan=True
    )
    for code in range(256):
        exponent, fraction = code >> 3 & 15, code & 7
        # HDF5 knows no format without infinities: the top exponent's 256 to 448 come out as Inf and NaN.
        # ttrace itself reads the bits.
        if exponent < 15:
            value = (1 + fraction / 8) * 2.0 ** (exponent - 7) if exponent else fraction * 2.0**-9
            assert e4m3[code] == (-value if code & 128 else value)


def test_small_floats_have_the_bits_of_hdf5_2(trace_directory):
    """h5py's HDF5 2.0 has these types predefined: H5Tequal says whether ours are the same."""
    recorder = Recorder(trace_directory)
    names = {
        "H5T_FLOAT_BFLOAT16LE_g": Dtype.BFLOAT16,
        "H5T_FLOAT_F8E4M3_g": Dtype.FLOAT8_E4M3FN,
        "H5T_FLOAT_F8E5M2_g": Dtype.FLOAT8_E5M2,
    }
    for name, dtype in names.items():
        recorder.record(name, bytes(16), dtype, (4,))
    recorder.close()
    (library,) = glob.glob(os.path.join(os.path.dirname(h5py.__path__[0]), "h5py.libs", "libhdf5-*.so*"))
    hdf5 = ctypes.CDLL(library)
    hdf5.H5Tequal.argtypes = [ctypes.c_int64, ctypes.c_int64]
    with h5py.File(trace_directory / "rank-00000.h5") as file:
        for name in names:
            predefined = ctypes.c_int64.in_dll(hdf5, name).value
            assert hdf5.H5Tequal(file[GROUP][name].id.get_type().id, predefined) == 1


def test_h5dump_prints_a_transposed_bfloat16_tensor(trace_directory):
    data = bfloat16_bytes([1, 2, 3, 4, 5, 6.5])
    path = recorded_file(trace_directory, "layers.0.mlp", data, Dtype.BFLOAT16, (3, 2), strides=(1, 3))
    run = subprocess.run(["h5dump", "-d", f"/{GROUP}/layers.0.mlp", path], capture_output=True, text=True, check=True)
    assert run.stderr == ""
    assert (
        run.stdout
        == f'''HDF5 "{path}" {{
DATASET "/{GROUP}/layers.0.mlp" {{
   DATATYPE  16-bit little-endian floating-point 16-bit precision
   DATASPACE  SIMPLE {{ ( 3, 2 ) / ( 3, 2 ) }}
   DATA {{
   (0,0): 1, 4,
   (1,0): 2, 5,
   (2,0): 3, 6.5
   }}
}}
}}
'''
    )


def test_every_tensor_is_a_dataset_at_the_place_that_the_index_names(trace_directory):
    count = 3000
    recorder = Recorder(trace_directory, rank=1, world_size=2, axes="tp=2")
    for number in range(count):
        shape = (number % 5, 3) if number % 7 else ()
        data = struct.pack("<15f", *range(number, number + 15))
        recorder.record(f"layers.{number}/x", data, Dtype.FLOAT32, shape, microbatch=number % 3)
    recorder.close()
    with h5py.File(trace_directory / "rank-00001.h5") as file:
        assert dict(file.attrs) == {
            "ttrace_version": 1,
            "run_id": "run-1",
            "world_size": 2,
            "rank": 1,
            "axes": '[["tp",2]]',
            "views": "[]",
            "aliases": "{}",
            "coordinates": '{"tp":1}',
            "compute_dtype": "",
            "provenance": "{}",
            "complete": 1,
        }
        index, text, shapes = (file["ttrace"][name][()] for name in ("index", "text", "shapes"))
        assert len(index) == count
        for number, row in enumerate(index):
            name = bytes(text[row["name"] : row["name"] + row["name_length"]]).decode()
            assert name == f"layers.{number}/x"
            dataset = file[f"tensors/0/{row['microbatch']}/forward/output/0"][name.replace("/", "\u2215")]
            assert list(dataset.shape) == list(shapes[row["shape"] : row["shape"] + row["ndim"]])
            assert dataset.nbytes == row["bytes"]
            if dataset.nbytes:
                assert dataset.id.get_offset() == row["offset"] and row["offset"] % 64 == 0
                assert np.array_equal(dataset[()].ravel(), np.arange(number, number + dataset.size, dtype=np.float32))


def test_the_index_leads_to_a_recorded_mapping(trace_directory):
    mapping = {"axes": [{"axis": "tp", "size": 2, "placement": "shard", "dim": 0}], "shape": [8]}
    recorder = Recorder(trace_directory)
    recorder.record("a", bytes(16), Dtype.FLOAT32, (4,), mapping=json.dumps(mapping))
    recorder.record("b", bytes(16), Dtype.FLOAT32, (4,))
    recorder.close()
    with h5py.File(trace_directory / "rank-00000.h5") as file:
        (a, b), text = file["ttrace/index"][()], file["ttrace/text"][()].tobytes()
    assert json.loads(text[a["mapping"] : a["mapping"] + a["mapping_length"]]) == mapping
    assert b["mapping_length"] == 0
