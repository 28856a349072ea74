"""Time and memory to read, check and align the index of a model of 128 layers on up to 16,384 ranks (TP 8, PP 16, DP
the rest), from its files, with one process and several under `mpirun`, of one thread and of several. The files have
holes in place of their tensors, and only one tensor is compared."""

import ctypes
import itertools
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

HELP = "reading and aligning the index of up to 16,384 ranks, with 1, 2 and 4 processes"

TP, PP, LAYERS, MODULES, PARAMETERS = 8, 16, 128, 28, 6
PARAMETER_KINDS = (5, 7, 8, 9)  # param, main_grad, param_delta, param_after: src/base/trace.h
OUTPUT, GRAD_OUTPUT, FLOAT32 = 2, 3, 2
HEADER, ALIGNMENT = 4096, 64

# IndexRow in src/format/format.h: iteration, micro-batch, chunk, pass, kind, dtype, dimensions; order, offset, bytes,
# checksum; where name, module, mapping and shape lie; the lengths of the first three, and 0.
ROW = struct.Struct("<3i4B8Q4I")

ANNOTATIONS = """\
layers.*.module.*:
  output: {tp_dim: 1}
  grad_output: {tp_dim: 1}
layers.*.module.*.weight:
  tp_dim: 1
parallelism:
  pipeline: {layers: layers}
"""

# Runs a command and notes its peak memory and its seconds of CPU, by the rank that a launcher gave it.
MEASURE = """
import os, resource, subprocess, sys
subprocess.run(sys.argv[2:])
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1] + os.environ.get("OMPI_COMM_WORLD_RANK", "0"), "w") as file:
    file.write(f"{usage.ru_maxrss / 2**20} {usage.ru_utime + usage.ru_stime}")
"""


def xxh3(data, seed=0):
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH3_64bits_withSeed.restype = ctypes.c_uint64
    return library.XXH3_64bits_withSeed(bytes(data), ctypes.c_size_t(len(data)), ctypes.c_uint64(seed))


def tables(layers, microbatches, shape):
    """The index, names and shapes of one rank, with the end of its tensors."""
    rows, count, names, size = bytearray(), 0, bytearray(), 4 * shape[0] * shape[1]
    checksum, offset = xxh3(bytes(size)), HEADER

    def add(kind, microbatch, name):
        nonlocal offset, count
        rows.extend(ROW.pack(0, microbatch, 0, 1, kind, FLOAT32, 2, count + 1, offset, size, checksum, len(names), 0, 0,
                             len(shape) * count, len(name), 0, 0, 0))  # fmt: skip
        names.extend(name.encode())
        count += 1
        offset += -(-size // ALIGNMENT) * ALIGNMENT

    for layer in range(layers):
        for microbatch in range(microbatches):
            for module in range(MODULES):
                for kind in (OUTPUT, GRAD_OUTPUT):
                    add(kind, microbatch, f"layers.{layer}.module.{module}")
        for parameter in range(PARAMETERS):
            for kind in PARAMETER_KINDS:
                add(kind, -1, f"layers.{layer}.module.{parameter}.weight")
    return rows, names, struct.pack("<2q", *shape) * count, offset


def write_rank(path, run, index, names, shapes, data_end):
    run = json.dumps(run).encode()
    run += b" " * (-len(run) % 8)
    metadata, extents = bytearray(), []
    for table in (run, index, names, shapes):
        extents += [data_end + len(metadata), len(table)]
        metadata += table + bytes(-len(table) % 8)
    seal = struct.pack("<8sII10QQ", b"TTRACE\r\n", 1, 1, data_end, len(metadata), *extents, 0)
    header = bytearray(HEADER)
    header[:8] = b"\x89HDF\r\n\x1a\n"
    header[64 : 64 + len(seal)] = seal
    struct.pack_into("<Q", header, 64 + len(seal) - 8, xxh3(metadata, xxh3(header)))
    with open(path, "wb") as file:
        file.write(header)
        file.seek(data_end)
        file.write(metadata)


def write_trace(folder, axes, layers, microbatches, shape):
    folder.mkdir()
    index = tables(layers, microbatches, shape)
    world = 1
    for _, size in axes:
        world *= size
    for rank in range(world):
        coordinates, rest = {}, rank
        for axis, size in axes:
            coordinates[axis] = rest % size
            rest //= size
        run = {
            "ttrace_version": 1, "run_id": folder.name, "world_size": world, "rank": rank, "axes": json.dumps(axes),
            "views": "[]", "aliases": "{}", "coordinates": json.dumps(coordinates), "compute_dtype": "float32",
            "provenance": "{}",
        }  # fmt: skip
        write_rank(folder / f"rank-{rank:05}.h5", run, *index)
    return world * len(index[0]) // ROW.size


def measure(program, folder, processes, threads):
    """Seconds, and of each process the peak memory in GiB and the seconds of CPU."""
    launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(processes)]
    check = [program, "check", "--reference", "reference", "--candidate", "candidate", "-a", "a.yaml"]
    only = ["--only", "layers.0.module.0.weight", "--threads", str(threads), "--quiet"]
    command = [sys.executable, "-c", MEASURE, str(folder / "used-"), *check, *only]
    started = time.monotonic()
    result = subprocess.run(launcher * (processes > 1) + command, cwd=folder, capture_output=True, text=True)
    seconds = time.monotonic() - started
    if "could-not-look" not in result.stdout:  # nothing but zeros was compared
        sys.exit(f"tools/bench index: {result.stdout}{result.stderr}")
    used = [(folder / f"used-{rank}").read_text().split() for rank in range(processes)]
    return seconds, [float(gib) for gib, _ in used], [float(cpu) for _, cpu in used]


def add_options(parser):
    parser.add_argument("--ranks", type=int, default=16384, metavar="N", help="a multiple of 128 [%(default)s]")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4], metavar="N")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="N", help="of each process [1 2]")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="measure each so often, in turn")


def run(options):
    data_parallel = options.ranks // (TP * PP)
    program, rows = (options.build / "bin" / "ttrace").resolve(), []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "a.yaml").write_text(ANNOTATIONS)
        write_trace(folder / "reference", [], LAYERS, data_parallel, (4, 8 * TP))
        axes = [["tp", TP], ["dp", data_parallel], ["pp", PP]]
        shards = write_trace(folder / "candidate", axes, LAYERS // PP, 1, (4, 8))
        for processes, threads in list(itertools.product(options.processes, options.threads)) * options.repeat:
            seconds, memory, cpu = measure(program, folder, processes, threads)
            rows.append({"ranks": options.ranks, "shards": shards, "processes": processes, "threads": threads,
                         "seconds": seconds, "gib": memory, "cpu": cpu, "load": os.getloadavg()[0]})  # fmt: skip
            others = f"; the others {max(cpu[1:]):.2f} s, {max(memory[1:]):.2f} GiB" if processes > 1 else ""
            print(f"{options.ranks:6} ranks {shards:10,} shards, {processes} processes of {threads} threads: "
                  f"{seconds:7.2f} s; "
                  f"process 0 {cpu[0]:.2f} s of CPU, {memory[0]:.2f} GiB{others}", flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0
