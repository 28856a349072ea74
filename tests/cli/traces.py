"""Records traces through libttrace, as a program would: see include/ttrace/ttrace.h."""

import ctypes
import os
import pathlib
import struct
import sys
from dataclasses import dataclass, replace

import numpy

PROGRAM = pathlib.Path(os.environ["TTRACE_PROGRAM"]).resolve()
LIBRARY = PROGRAM.parent.parent / "lib" / "libttrace.so"
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "src" / "python"))

from ttrace_torch import library  # noqa: E402 (found by the path just set)
from ttrace_torch.library import Dtype, Kind, Pass, TensorId, TensorView  # noqa: E402 (the same)


@dataclass
class Tensor:
    name: str
    values: numpy.ndarray  # of bfloat16: its bits, as uint16
    kind: str = "output"
    iteration: int = 0
    microbatch: int = 0
    dtype: str = ""  # that of `values` where empty
    module_class: str = ""
    mapping: str = ""  # JSON, see src/base/mapping.h
    sketch: bool = False  # where it is large enough

    def with_values(self, values):
        return replace(self, values=values)


def bfloat16(tensor):
    """The tensor in bfloat16; its values must be exact in it."""
    bits = tensor.values.astype("float32").view("uint32")
    assert not (bits & 0xFFFF).any()
    return replace(tensor, values=(bits >> 16).astype("uint16"), dtype="bfloat16")


class Recorder:
    """One rank of one run."""

    def __init__(
        self,
        directory,
        rank=0,
        world_size=1,
        run_id="run",
        axes="",
        coordinates="",
        compute_dtype="float32",
        provenance="",
    ):
        self._recorder = library.Recorder(
            str(LIBRARY),
            str(directory),
            run_id=run_id,
            rank=rank,
            world_size=world_size,
            axes=axes,
            coordinates=coordinates,
        )
        self._recorder.describe(compute_dtype, provenance)

    def record(self, tensor):
        values = numpy.ascontiguousarray(tensor.values).reshape(tensor.values.shape)
        kind, dtype = Kind[tensor.kind.upper()], Dtype[(tensor.dtype or str(values.dtype)).upper()]
        tensor_id = TensorId(tensor.iteration, tensor.microbatch, 0, Pass.FORWARD, kind, tensor.name)
        view = TensorView(values.ctypes.data, dtype, values.shape)
        facts = {"module_class": tensor.module_class, "mapping": tensor.mapping, "sketch": tensor.sketch}
        self._recorder.record(tensor_id, view, **facts)

    def close(self, complete=True):
        self._recorder.close(complete)


def record_rank(directory, tensors, complete=True, **run):
    recorder = Recorder(directory, **run)
    for tensor in tensors:
        recorder.record(tensor)
    recorder.close(complete)


def record_run(directory, tensors_of_rank, axes="", **run):
    """A trace of as many ranks as there are lists of tensors."""
    run = {"run_id": directory.name, **run}
    for rank, tensors in enumerate(tensors_of_rank):
        record_rank(directory, tensors, rank=rank, world_size=len(tensors_of_rank), axes=axes, **run)
    return directory


def digest_of(directory):
    """What a tolerance file calls the reference's digest: src/load/trace_reader.h. Of complete ranks."""
    import h5py  # here: processes that only record start sooner

    lines = []
    for path in sorted(directory.glob("rank-*.h5")):
        with h5py.File(path) as file:
            tables = {name: file[f"ttrace/{name}"][()] for name in ("index", "text", "shapes")}
            rank = int(file.attrs["rank"])
        for row in sorted(tables["index"], key=lambda row: row["order"]):
            start, length = int(row["name"]), int(row["name_length"])
            name = bytes(tables["text"][start : start + length]).decode()
            shape = tables["shapes"][int(row["shape"]) :][: int(row["ndim"])]
            words = [rank, row["iteration"], row["microbatch"], row["chunk"]]
            words += [
                Pass(row["pass"]).name.lower(),
                Kind(row["kind"]).name.lower(),
                Dtype(row["dtype"] & 63).name.lower(),  # without what says that it is a sketch
            ]
            lines.append(" ".join(map(str, [*words, f"[{','.join(map(str, shape))}]", row["checksum"], name])) + "\n")
    return f"{checksum_of(''.join(lines).encode(), 0):016x}"


def checksum_of(data, seed):
    """XXH3-64."""
    xxhash = ctypes.CDLL("libxxhash.so.0")
    xxhash.XXH3_64bits_withSeed.restype = ctypes.c_uint64
    return xxhash.XXH3_64bits_withSeed(bytes(data), ctypes.c_size_t(len(data)), ctypes.c_uint64(seed))


def edit_index(path, row, **fields):
    """Makes the index of a rank's file lie about one tensor; the seal no longer fits."""
    import h5py  # here: processes that only record start sooner

    with h5py.File(path, "r+") as file:
        rows = file["ttrace/index"][()]
        for name, value in fields.items():
            rows[name][row] = value
        file["ttrace/index"][...] = rows


def seal_again(path):
    """Gives an edited file the seal of an honest one: src/format/format.h."""
    data = bytearray(path.read_bytes())
    (metadata,) = struct.unpack_from("<Q", data, 80)
    data[160:168] = bytes(8)
    struct.pack_into("<Q", data, 160, checksum_of(data[metadata:], checksum_of(data[:4096], 0)))
    path.write_bytes(data)
