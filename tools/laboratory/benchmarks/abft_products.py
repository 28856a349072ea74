"""Makes a random product as the machine's libraries compute it, and times that: fp64, fp32 and fp16 (in fp32, rounded)
by numpy's OpenBLAS, bf16 by PyTorch. Writes A, B and C, row-major, to the directory.

Usage: abft_products.py DIRECTORY DTYPE M K N THREADS ROUNDS; prints JSON."""

import json
import pathlib
import sys
import time


def main():
    directory, dtype = pathlib.Path(sys.argv[1]), sys.argv[2]
    m, k, n, threads, rounds = map(int, sys.argv[3:])
    multiply = by_torch if dtype == "bfloat16" else by_numpy
    seconds, matrices = multiply(dtype, m, k, n, threads, rounds)
    for name, matrix in zip("abc", matrices, strict=True):
        matrix.tofile(directory / name)
    print(json.dumps({"seconds": seconds}))


def timed(product, rounds):
    seconds = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        result = product()
        seconds.append(time.perf_counter() - start)
    return seconds[1:], result  # the first one also makes threads and buffers


def by_numpy(dtype, m, k, n, threads, rounds):
    """Threads are those of OPENBLAS_NUM_THREADS."""
    import numpy

    random = numpy.random.default_rng(1)
    a, b = (random.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n)))
    if dtype == "float16":
        seconds, c = timed(lambda: (a.astype("float32") @ b.astype("float32")).astype(dtype), rounds)
    else:
        seconds, c = timed(lambda: a @ b, rounds)
    return seconds, (a, b, c)


def by_torch(dtype, m, k, n, threads, rounds):
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    a, b = (torch.randn(shape).bfloat16() for shape in ((m, k), (k, n)))
    seconds, c = timed(lambda: a @ b, rounds)
    return seconds, [matrix.view(torch.int16).numpy() for matrix in (a, b, c)]


main()
