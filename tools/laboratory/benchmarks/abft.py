"""Times the verification of recorded products, in turn with the machine's plain memory-read bandwidth and with
multiplying again: by the OpenBLAS that comes with numpy, bf16 by PyTorch, which numpy does not know. Then what
protection costs the library's own attention, int8 products and EmbeddingBags, beside the papers' figures. The machine
is shared with whatever else runs on it: each figure is the median of several rounds, each the best of a few runs. GB/s
are of A, B and C together."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HELP = "verification of recorded products, and the overhead of protection"

HERE = pathlib.Path(__file__).resolve().parent
ROUNDS = 5  # of everything, in turn
TIMES = 3  # within a round
WIDTHS = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def add_options(parser):
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 4096], metavar="N", help="of square products")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtypes", nargs="+", choices=WIDTHS, default=list(WIDTHS), metavar="DTYPE")
    parser.add_argument(
        "--python", default=str(HERE.parents[2] / ".venv" / "bin" / "python"), help="with numpy and torch"
    )


def run(options):
    programs = {name: options.build / "benchmarks" / name for name in ("abft_verify", "abft_overhead", "memory_read")}
    print(
        f"{options.threads} threads; GB/s of A, B and C together\n\n"
        f"{'product':22} {'verified in':>12} {'GB/s':>6} {'of memory':>10} {'multiplied in':>14} {'overhead':>9}"
    )
    products = []
    for size in options.sizes:
        for dtype in options.dtypes:
            products.append(measure(options, programs, dtype, size))
            print(product_line(products[-1]), flush=True)
    print("\nV-ABFT has 11.98 % for its fused product with checks and corrections (section 6.8)\n")
    overheads = json.loads(captured([programs["abft_overhead"]]))
    print(overhead_table(overheads))
    if options.json:
        options.json.write_text(json.dumps({"products": products, "overheads": overheads}, indent=2) + "\n")
    return 0


def measure(options, programs, dtype, size):
    shape = [str(size)] * 3 + [str(options.threads), str(TIMES)]
    environment = os.environ | {name: str(options.threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    memory, verified, multiplied = [], [], []
    with tempfile.TemporaryDirectory(prefix="ttrace-bench-") as directory:
        for turn in range(ROUNDS):
            print(f"bench: {dtype} {size}, {turn + 1} of {ROUNDS}", file=sys.stderr)
            command = [options.python, HERE / "abft_products.py", directory, dtype, *shape]
            multiplied.append(min(json.loads(captured(command, environment))["seconds"]))
            result = json.loads(captured([programs["abft_verify"], directory, dtype, *shape]))
            if not result["verified"]:
                sys.exit(f"tools/bench: a right product of {dtype} was not verified")
            verified.append(min(result["seconds"]))
            memory.append(float(captured([programs["memory_read"], str(options.threads)])))
    read = 3 * size * size * WIDTHS[dtype]
    seconds, product = statistics.median(verified), statistics.median(multiplied)
    return {
        "dtype": dtype,
        "size": size,
        "verify_seconds": seconds,
        "verify_gbps": read / seconds / 1e9,
        "memory_read_gbps": statistics.median(memory),
        "multiply_seconds": product,
        "overhead": seconds / product,
    }


def captured(command, environment=None):
    return subprocess.run(
        [str(word) for word in command],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ).stdout


def product_line(p):
    share = p["verify_gbps"] / p["memory_read_gbps"]
    return (
        f"{p['dtype'] + ' ' + str(p['size']) + '^3':22} {p['verify_seconds'] * 1e3:9.2f} ms {p['verify_gbps']:6.2f} "
        f"{share:10.0%} {p['multiply_seconds'] * 1e3:11.1f} ms {p['overhead']:9.1%}"
    )


def overhead_table(overheads):
    lines = ["protection of the library's own operators: overhead (the papers')"]
    for case in overheads["attention"]:
        lines.append(f"attention, {case['sequence']} x {case['width']}, fp32: {case['overhead']:.1f} % (7 to 11 %)")
    shares = [case["overhead"] for case in overheads["int8"]]
    lines.append(
        f"int8 products, {len(shares)} shapes: {statistics.median(shares):.1f} %, {max(shares):.1f} % at most "
        "(under 20 %)"
    )
    for case in overheads["embedding_bag"]:
        lines.append(f"EmbeddingBag, dimension {case['dimension']}: {case['overhead']:.1f} % (under 26 %)")
    return "\n".join(lines)
