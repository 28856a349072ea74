"""Checksums of products of positive random matrices, as this machine's PyTorch computes them, for `ttrace calibrate` to
read (V-ABFT, section 3.6):

    ttrace calibrate -o e_max.yaml -- python -m ttrace_torch.calibrate --device cuda

The stream is a line of JSON (platform, trials, sizes); for each product C = A B of [N, N] matrices a line `DTYPE N` and
the bytes of two vectors of N numbers in that dtype, the sums of C's rows and A times the sums of B's rows; and a line
`end`. A program on a platform without PyTorch may write the same."""

import argparse
import json
import math
import sys

import torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--trials", type=int, default=10_000, help="rows of C for each size and dtype (default: 10,000)"
    )
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[64, 256, 1024],
        metavar="N",
        help="from the smallest to the largest that your program multiplies (default: 64 256 1024)",
    )
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16", "float16"], metavar="DTYPE")
    options = parser.parse_args()
    device = torch.device(options.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    write_line(
        json.dumps(
            {"platform": f"torch {torch.__version__} on {name}", "trials": options.trials, "sizes": options.sizes}
        )
    )
    generator = torch.Generator(device).manual_seed(7)
    for dtype in options.dtypes:
        for size in options.sizes:
            for _ in range(math.ceil(options.trials / size)):
                a, b = (positive(size, getattr(torch, dtype), generator) for _ in range(2))
                write_line(f"{dtype} {size}")
                ones = torch.ones(size, 1, dtype=a.dtype, device=device)
                for sums in ((a @ b) @ ones, a @ (b @ ones)):
                    sys.stdout.buffer.write(sums.flatten().cpu().contiguous().view(torch.uint8).numpy())
    write_line("end")


def positive(size: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """|N(1, 1)|, so that no checksum cancels to zero (V-ABFT, section 3.6), times a power of two, which changes no
    rounding: the sums of large products stay below what float16 can hold."""
    scale = 2.0 ** min(0, 7 - math.ceil(math.log2(size)))
    normal = torch.randn(size, size, device=generator.device, generator=generator)
    return ((1 + normal).abs() * scale).to(dtype)


def write_line(text: str) -> None:
    sys.stdout.buffer.write(text.encode() + b"\n")


main()
