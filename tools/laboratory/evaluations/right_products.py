"""Products that are right, of many sizes and distributions of operands: does `ttrace abft` call one of them wrong?

    PYTHONPATH=tools/laboratory python -m evaluations.right_products [--products 10000] [--dtypes float32 ...]

Each linear is three products: forward, its input's gradient and its weight's. Their inner lengths go up to 16,384;
their operands are of both signs, of one, with few values, all equal, or far apart in size. Prints a line for each
dtype, and ends with 1 where a product was called wrong."""

import argparse
import csv
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

DTYPES = ("float64", "float32", "bfloat16", "float16")
DISTRIBUTIONS = (
    "normal",
    "uniform",
    "positive",
    "uniform positive",
    "equal rows",
    "constant",
    "few values",
    "mask of a constant",
    "lognormal",
)
# (rows, inner, columns): each product's inner length is one of them.
SIZES = (
    (64, 64, 64),
    (1, 256, 256),
    (256, 16, 64),
    (64, 1024, 64),
    (16, 4096, 64),
    (4, 16384, 16),
    (1, 16384, 8),
    (4096, 8, 16),
)
PRODUCTS_OF_A_ROUND = 3 * len(DISTRIBUTIONS) * len(SIZES)  # forward, and two backward
ROUNDS_OF_A_RUN = 10  # at most: 3 GiB of fp64
KINDS = ("output", "grad_input", "param_grad")


def count(dtype: str, products: int) -> dict[str, int]:
    """Checks at least so many products of a dtype; returns how many were right, called wrong, and not checkable."""
    counts = {"pass": 0, "fail": 0, "untrusted": 0}
    rounds = -(-products // PRODUCTS_OF_A_ROUND)
    for first in range(0, rounds, ROUNDS_OF_A_RUN):
        with tempfile.TemporaryDirectory(prefix="ttrace-right-products-") as directory:
            for verdict in verdicts(dtype, first, min(ROUNDS_OF_A_RUN, rounds - first), Path(directory) / "trace"):
                counts[verdict] += 1
    return counts


def verdicts(dtype: str, seed: int, rounds: int, trace: Path) -> list[str]:
    ttrace = os.environ.get("TTRACE_PROGRAM", "ttrace")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    program = [sys.executable, "-m", "evaluations.right_products", "--train", dtype, str(seed), str(rounds)]
    collect = [ttrace, "collect", "-o", str(trace), "--", *program]
    subprocess.run(collect, check=True, capture_output=True, env=environment)
    checked = subprocess.run([ttrace, "abft", str(trace), "--csv", "-"], capture_output=True, text=True)
    rows = csv.DictReader(io.StringIO(checked.stdout))
    return [row["verdict"] for row in rows if row["kind"] in KINDS and row["name"].startswith("linears.")]


def train(dtype: str, seed: int, rounds: int) -> None:
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    of_dtype = getattr(torch, dtype)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            shapes = [(distribution, size) for distribution in DISTRIBUTIONS for size in SIZES] * rounds
            self.of = [distribution for distribution, _ in shapes]
            self.rows = [rows for _, (rows, _, _) in shapes]
            self.linears = torch.nn.ModuleList(
                torch.nn.Linear(inner, columns, bias=False, dtype=of_dtype) for _, (_, inner, columns) in shapes
            )
            for distribution, linear in zip(self.of, self.linears, strict=True):
                with torch.no_grad():
                    scale = 2.0 ** -(linear.in_features.bit_length() // 2)
                    linear.weight.copy_(scale * drawn(torch, distribution, linear.weight.shape, is_weight=True))

        def forward(self):
            losses = []
            for number, (distribution, rows, linear) in enumerate(zip(self.of, self.rows, self.linears, strict=True)):
                inner, columns = linear.in_features, linear.out_features
                scale = 2.0 ** -(inner.bit_length() // 2)  # so that no sum of fp16 overflows
                x = (scale * drawn(torch, distribution, (rows, inner))).to(of_dtype).requires_grad_()
                y = linear(x)
                weights = drawn(torch, distribution, (rows, columns)).to(of_dtype) * 0.0625
                losses.append((y * weights).sum() if (number + seed) % 2 else (y * y.detach()).sum())
            return sum(loss.double() for loss in losses)

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    net().backward()
    optimizer.step()


def drawn(torch, distribution: str, shape, is_weight: bool = False):
    normal = torch.randn(*shape)
    match distribution:
        case "normal":
            return normal + 1e-6
        case "uniform":
            return 2 * torch.rand(*shape) - 1
        case "positive":
            return (1 + normal).abs()
        case "uniform positive":
            return torch.rand(*shape)
        case "equal rows":
            return normal[:1].abs().expand(*shape).contiguous()
        case "constant":
            return torch.full(tuple(shape), float(torch.rand(())) + 0.1)
        case "few values":
            return (normal.abs() * 4).round() / 7
        case "mask of a constant":
            return torch.full(tuple(shape), 0.1) if is_weight else (normal > 0).float()
        case "lognormal":
            return (2 * normal).clamp(-6, 4).exp() / 16


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--products", type=int, default=10_000, help="of each dtype (default: 10,000)")
    parser.add_argument("--dtypes", nargs="+", default=DTYPES, choices=DTYPES, metavar="DTYPE")
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train[0], int(options.train[1]), int(options.train[2]))
        return 0
    false_alarms = 0
    for dtype in options.dtypes:
        counts = count(dtype, options.products)
        false_alarms += counts["fail"]
        print(
            f"{dtype}: {counts['fail']} of {counts['pass'] + counts['fail']} right products called wrong, "
            f"{counts['untrusted']} not checkable",
            flush=True,
        )
    return 1 if false_alarms else 0


if __name__ == "__main__":
    sys.exit(main())
