"""Time and memory to align the index (no data) of a 405B model on 256, 1,024 and 16,384 ranks: TP 8 with sequence
parallelism, CP 2, PP 16, DP the rest. The cost should grow with the number of shards."""

import itertools
import json
import pathlib
import subprocess

HELP = "aligning the index of a 405B model on up to 16,384 ranks"

ROOT = pathlib.Path(__file__).resolve().parents[3]


def add_options(parser):
    parser.add_argument(
        "--ranks", type=int, nargs="+", default=[256, 1024, 16384], metavar="N", help="numbers of ranks"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="N", help="[1 2]")


def run(options):
    rows = []
    program = options.build / "benchmarks" / "align_scale"
    for ranks, threads in itertools.product(options.ranks, options.threads):
        command = [program, ranks, threads, ROOT / "tools" / "tinygpt" / "llama.yaml", ROOT / "annotations"]
        row = json.loads(subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE).stdout)
        rows.append({**row, "threads": threads})
        print(
            f"{row['ranks']:6} ranks {row['shards']:10,} shards {row['tensors']:7,} tensors, {threads} threads: "
            f"{row['seconds']:7.2f} s, "
            f"{row['seconds'] / row['shards'] * 1e6:.2f} us a shard, "
            f"{row['peak_gib'] - row['index_gib']:.2f} GiB beside an index of {row['index_gib']:.2f} GiB",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0
