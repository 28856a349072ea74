"""V-ABFT's e_max of this machine's PyTorch, by section 3.6: tables 1, 2 and 7, to N = 8192, and FP8."""

import math
import statistics

import torch

from evaluations.markdown import table

SIZES = (128, 512, 2048, 8192)
ROWS = {128: 64, 512: 32, 2048: 32, 8192: 16}  # of C in a trial; its checksums need no others
TRIALS = {128: 60, 512: 30, 2048: 6, 8192: 1}
UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
PAPER = {
    "float64": "3.6 to 4.8 u on a CPU, constant",
    "float32": "5.0 to 6.1 u on a CPU, constant",
    "bfloat16": "2.0 u, constant",
    "float16": "2.0 u, constant",
    "float8_e4m3fn": "2.0 u of fp16, constant",
    "float8_e5m2": "2.0 u of fp16, constant",
}


def measure() -> list[str]:
    torch.manual_seed(7)
    rows = []
    for dtype in PAPER:
        unit = UNIT.get(dtype, UNIT["float16"])
        errors = [[error_of(dtype, size) for _ in range(TRIALS[size])] for size in SIZES]
        largest = [max(of_size) for of_size in errors]
        found = [value / unit for value in largest]
        spread = statistics.pstdev(found) / statistics.fmean(found)
        e_max = 1.2 * max(largest)
        rows.append([dtype, *(f"{value:.2f}" for value in found), f"{spread:.0%}", f"{e_max:.1e}", PAPER[dtype]])
    header = ["operands", *(f"N = {size}, over u" for size in SIZES), "CV", "e_max", "paper, tables 1, 2 and 7"]
    counts = ", ".join(f"{TRIALS[size] * ROWS[size]:,}" for size in SIZES)
    return [
        "The largest of |sum of a row of C - its checksum| / |checksum|, of A [rows, N] and B [N, N] with elements "
        f"|N(1, 1)|, {counts} rows of the sizes; both sums in the output's dtype, as PyTorch computes them (of 16 "
        "bits: accumulated in fp32, rounded once). e_max has the paper's margin of 20 %. FP8 is `torch._scaled_mm`, "
        "operands of 8 bits with an output of fp16, and u is fp16's. The paper has 2000 trials of each size, on an "
        "Ascend 910B and an H100, neither of which is here.",
        "",
        *table(header, rows),
        "",
        "What decides is the output's dtype, as the paper says: FP8 rounds as fp16 does. Of fp32 and fp64 the order "
        "of the sums decides, which is this machine's BLAS's; `ttrace abft` allows more by default, (16 + N/2) u, "
        "since right products of constant operands need it ([right products](../evaluations/RIGHT_PRODUCTS.md)). "
        "Linears with operands of FP8 are _not checkable_: no trace has the codes that are multiplied.",
    ]


def error_of(dtype: str, size: int) -> float:
    """The largest relative difference of the two sums of a row, in one product."""
    scale = 2.0 ** min(0, 7 - math.ceil(math.log2(size)))  # so that no sum of fp16 overflows
    a, b = ((1 + torch.randn(*shape)).abs() * scale for shape in ((ROWS[size], size), (size, size)))
    if dtype.startswith("float8"):
        a, b = (matrix.to(getattr(torch, dtype)) for matrix in (a, b))
        sums = row_sums(fp8_product(a, b))
        # The sums of B's rows are more than FP8 can hold: A times them is a product of fp16 operands.
        checksums = times(a.half(), row_sums(b.half()))
    else:
        a, b = (matrix.to(getattr(torch, dtype)) for matrix in (a, b))
        sums, checksums = row_sums(times(a, b)), times(a, row_sums(b))
    sums, checksums = sums.double(), checksums.double()
    return float(((sums - checksums).abs() / checksums.abs()).max())


def fp8_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    one = torch.tensor(1.0)
    return torch._scaled_mm(a, b.t().contiguous().t(), scale_a=one, scale_b=one, out_dtype=torch.float16)


def times(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """16 bits: accumulated in fp32 and rounded once. PyTorch does so itself, but takes minutes for N = 8192 here."""
    return (a.float() @ b.float()).to(a.dtype) if a.itemsize == 2 else a @ b


def row_sums(matrix: torch.Tensor) -> torch.Tensor:
    return times(matrix, torch.ones(matrix.shape[1], 1, dtype=matrix.dtype))
