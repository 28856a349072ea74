"""Writes traces of one rank with many small tensors, without recording them: `reference`, `same`, and `different`, in
which every second tensor has three times the reference's values.

    python many_tensors.py DIRECTORY COUNT"""

import pathlib
import sys

import index
import numpy

SHAPE = (4,)
# IndexRow in src/format/format.h, as index.ROW has it.
ROW = numpy.dtype(
    [(name, "<i4") for name in ("iteration", "microbatch", "chunk")]
    + [(name, "u1") for name in ("pass", "kind", "dtype", "ndim")]
    + [(name, "<u8") for name in ("order", "offset", "bytes", "checksum", "name", "module", "mapping", "shape")]
    + [(name, "<u4") for name in ("name_length", "module_length", "mapping_length", "zero")]
)
assert ROW.itemsize == index.ROW.size


def write(directory, count, factors):
    """A trace of `count` outputs, whose factors are repeated in turn."""
    directory.mkdir()
    values = numpy.arange(1, 1 + SHAPE[0], dtype="float32")
    kinds = numpy.zeros((len(factors), index.ALIGNMENT // values.itemsize), "float32")
    kinds[:, : SHAPE[0]] = numpy.outer(numpy.array(factors, "float32"), values)
    which = numpy.arange(count) % len(factors)
    names = [f"layers.{i}.mlp".encode() for i in range(count)]
    lengths = numpy.fromiter(map(len, names), "<u4", count)

    rows = numpy.zeros(count, ROW)
    rows["pass"], rows["kind"], rows["dtype"], rows["ndim"] = 1, index.OUTPUT, index.FLOAT32, len(SHAPE)
    rows["order"] = numpy.arange(1, count + 1)
    rows["offset"] = index.HEADER + index.ALIGNMENT * numpy.arange(count)
    rows["bytes"] = values.nbytes
    checksums = [index.xxh3(kind[: SHAPE[0]].tobytes()) for kind in kinds]
    rows["checksum"] = numpy.array(checksums, "<u8")[which]
    rows["name_length"], rows["name"] = lengths, numpy.cumsum(lengths, dtype="<u8") - lengths
    rows["shape"] = len(SHAPE) * numpy.arange(count)
    run = {
        "ttrace_version": 1, "run_id": directory.name, "world_size": 1, "rank": 0, "axes": "[]", "views": "[]",
        "aliases": "{}", "coordinates": "{}", "compute_dtype": "float32", "provenance": "{}",
    }  # fmt: skip
    path = directory / "rank-00000.h5"
    data_end = index.HEADER + index.ALIGNMENT * count
    shapes = numpy.tile(numpy.array(SHAPE, "<i8"), count)
    index.write_rank(path, run, rows.tobytes(), b"".join(names), shapes.tobytes(), data_end)
    with path.open("r+b") as file:
        file.seek(index.HEADER)
        kinds[which].tofile(file)


def main():
    directory, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    for name, factors in {"reference": (1,), "same": (1,), "different": (1, 3)}.items():
        write(directory / name, count, factors)


if __name__ == "__main__":
    main()
