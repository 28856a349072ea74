"""Products that are right, of many sizes and distributions of operands: does `ttrace abft` call one of them wrong?

`tools/laboratory/right-products [--products N] [--dtypes float32 ...]` checks at least N products of each dtype by the
defaults. Each linear is three products: forward, its input's gradient and its weight's. Their inner lengths go up to
16,384; their operands are of both signs, of one, with few values, all equal, with heavy tails, or far apart in size.
10,000 of each dtype make the page RIGHT_PRODUCTS.md beside this file; of fewer it is printed."""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

COMMAND = "tools/laboratory/right-products"
PRODUCTS = 10_000
DTYPES = ("float64", "float32", "tf32", "bfloat16", "float16")
DISTRIBUTIONS = {
    "normal": "N(1e-6, 1)",
    "uniform": "U(-1, 1)",
    "positive": "of N(1, 1) the magnitude",
    "uniform positive": "U(0, 1)",
    "equal rows": "one row, the magnitudes of N(0, 1), again and again",
    "constant": "one number",
    "few values": "multiples of 1/7, positive",
    "mask of a constant": "a weight of 0.1s, an input of zeros and ones",
    "lognormal": "exp(N(0, 2)), positive, over five decades at most",
    "heavy tails": "Cauchy, cut off at 64",
    "mixed scales": "N(0, 1), each index of the inner dimension times a power of two from 2^-6 to 2^6",
}
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
    (4, 16, 16384),
)
PRODUCTS_OF_A_ROUND = 3 * len(DISTRIBUTIONS) * len(SIZES)  # forward, and two backward
ROUNDS_OF_A_RUN = 10  # at most: 5 GiB of fp64
KINDS = ("output", "grad_input", "param_grad")

Counts = Counter[tuple[str, str]]  # by distribution and verdict


def count(dtype: str, products: int) -> Counts:
    """Checks until at least so many products of a dtype were checkable."""
    counts: Counts = Counter()
    seed = 0
    while (missing := products - checked(counts)) > 0:
        rounds = min(ROUNDS_OF_A_RUN, -(-missing // PRODUCTS_OF_A_ROUND))
        with tempfile.TemporaryDirectory(prefix="ttrace-right-products-") as directory:
            counts.update(verdicts(dtype, seed, rounds, Path(directory) / "trace"))
        seed += 1
    return counts


def of(counts: Counts, verdict: str, distribution: str | None = None) -> int:
    return sum(n for (name, given), n in counts.items() if given == verdict and distribution in (None, name))


def checked(counts: Counts, distribution: str | None = None) -> int:
    return of(counts, "pass", distribution) + of(counts, "fail", distribution)


def verdicts(dtype: str, seed: int, rounds: int, trace: Path) -> list[tuple[str, str]]:
    ttrace = os.environ.get("TTRACE_PROGRAM", "ttrace")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    program = [sys.executable, "-m", "evaluations.right_products", "--train", dtype, str(seed), str(rounds)]
    collect = [ttrace, "collect", "-o", str(trace), "--", *program]
    subprocess.run(collect, check=True, capture_output=True, env=environment)
    table, report = trace.with_suffix(".csv"), trace.with_suffix(".json")
    abft = [ttrace, "abft", str(trace), "--csv", str(table), "--json", str(report)]
    subprocess.run(abft, capture_output=True)
    of_linears = shapes(rounds)

    def of_row(row: dict) -> tuple[str, tuple[int, int, int]]:
        return of_linears[int(row["name"].split(".")[1])]

    def is_product(row: dict) -> bool:
        return row["kind"] in KINDS and row["name"].startswith("linears.")

    for finding in filter(is_product, json.loads(report.read_text())["findings"]):
        if finding["verdict"] == "fail":
            print(dtype, *of_row(finding), finding["kind"], finding["message"], file=sys.stderr, flush=True)
    with table.open() as rows:
        return [(of_row(row)[0], row["verdict"]) for row in filter(is_product, csv.DictReader(rows))]


def shapes(rounds: int) -> list[tuple[str, tuple[int, int, int]]]:
    return [(distribution, size) for distribution in DISTRIBUTIONS for size in SIZES] * rounds


def train(dtype: str, seed: int, rounds: int) -> None:
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    of_dtype = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    if dtype == "tf32":
        torch.set_float32_matmul_precision("high")
        torch.nn.functional.linear = tf32_linear(torch)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linears = torch.nn.ModuleList()
            for distribution, (_, inner, columns) in shapes(rounds):
                linear = torch.nn.Linear(inner, columns, bias=False, dtype=of_dtype)
                with torch.no_grad():
                    linear.weight.copy_(scale_of(inner) * drawn(torch, distribution, linear.weight.shape, True))
                self.linears.append(linear)

        def forward(self):
            losses = []
            for number, (distribution, (rows, inner, columns)) in enumerate(shapes(rounds)):
                x = (scale_of(inner) * drawn(torch, distribution, (rows, inner))).to(of_dtype).requires_grad_()
                y = self.linears[number](x)
                weights = drawn(torch, distribution, (rows, columns)).to(of_dtype) * 0.0625
                losses.append((y * weights).sum() if (number + seed) % 2 else (y * y.detach()).sum())
            return sum(loss.double() for loss in losses)

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    net().backward()
    optimizer.step()


def scale_of(inner: int) -> float:
    return 2.0 ** -(inner.bit_length() // 2)  # so that no sum of fp16 overflows


def tf32_linear(torch):
    """A linear as a GPU with TF32 computes it: operands rounded to 10 bits of mantissa, sums in fp32."""

    def rounded(tensor):
        bits = tensor.detach().contiguous().view(torch.int32)
        return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return rounded(x) @ rounded(weight).t()

        @staticmethod
        def backward(ctx, gradient):
            x, weight = ctx.saved_tensors
            return rounded(gradient) @ rounded(weight), rounded(gradient).t() @ rounded(x)

    return lambda x, weight, bias=None: Product.apply(x, weight)


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
        case "heavy tails":
            return (normal / torch.randn(*shape)).clamp(-64, 64) / 16
        case "mixed scales":
            return normal * 2.0 ** torch.randint(-6, 7, (shape[-1],))


def render(counts: dict[str, Counts], made: str) -> list[str]:
    from .markdown import table

    alarms = sum(of(one, "fail") for one in counts.values())
    all_ = sum(checked(one) for one in counts.values())
    lines = [
        "# Right products: does `ttrace abft` call one wrong?",
        "",
        made,
        "",
        f"{all_:,} products of linears as PyTorch computes them on a CPU, forward and backward, checked by the "
        f"defaults: **{alarms} called wrong**. `tf32` is fp32 with operands that are rounded to TF32 before each "
        "product, as a GPU would, in a program that asks for it (`torch.set_float32_matmul_precision('high')`). Each "
        "cell: products called wrong, of those checked.",
        "",
    ]
    rows = [
        [name, meaning, *(f"{of(one, 'fail', name)} of {checked(one, name):,}" for one in counts.values())]
        for name, meaning in DISTRIBUTIONS.items()
    ]
    rows.append(["all", "", *(f"{of(one, 'fail')} of {checked(one):,}" for one in counts.values())])
    rows.append(["not checkable", "", *(f"{of(one, 'untrusted'):,}" for one in counts.values())])
    lines += table(["operands", "drawn from", *counts], rows)
    sizes = ", ".join("x".join(map(str, size)) for size in SIZES)
    return [*lines, "", f"Rows, inner length and columns of the linears: {sizes}, as often as each other."]


def main() -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--products", type=int, default=PRODUCTS, help=f"of each dtype [{PRODUCTS:,}]")
    parser.add_argument("--dtypes", nargs="+", default=DTYPES, choices=DTYPES, metavar="DTYPE")
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train[0], int(options.train[1]), int(options.train[2]))
        return 0
    from freshness import commit, sentence

    from . import page

    started, measured = time.monotonic(), commit()
    counts = {}
    for dtype in options.dtypes:
        counts[dtype] = count(dtype, options.products)
        wrong, all_ = of(counts[dtype], "fail"), checked(counts[dtype])
        print(f"{dtype}: {wrong} of {all_} right products called wrong", file=sys.stderr, flush=True)
    made = sentence(COMMAND, time.monotonic() - started, [measured], page.machine())
    text = "\n".join(render(counts, made)) + "\n"
    if options.products < PRODUCTS or set(options.dtypes) != set(DTYPES):
        print(text, end="")
    else:
        (page.HERE / "RIGHT_PRODUCTS.md").write_text(text)
    return 1 if any(of(one, "fail") for one in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
