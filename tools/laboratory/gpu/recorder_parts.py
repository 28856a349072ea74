"""What of the recorder runs on the device, by itself: sketches that are made there hold what those of the host do, and
copies arrive with the values that tensors had, though the program changes them at once. Prints what does not, and ends
with 1. With `--wrong` a bit of what is sketched is another one, and copies are taken before they have arrived."""

import argparse
import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(os.environ["TTRACE_PROGRAM"]).resolve().parents[1] / "share/ttrace"))

from ttrace_torch import side_stream
from ttrace_torch.device_sketches import sketch_of
from ttrace_torch.transfers import Transfers

SHAPE, EDGES = (300, 500), (128, 128)
# By dtype: bytes of a cell, the type of its sums, and how far sums made in another order may be apart, of its norm.
CELLS = {
    torch.float32: (152, torch.float64, 1e-14),
    torch.float64: (152, torch.float64, 1e-14),
    torch.bfloat16: (80, torch.float32, 1e-6),
    torch.float16: (80, torch.float32, 1e-6),
}
SUMS, FINGERPRINT = 16, 8  # of a cell, and bytes of a tensor


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--wrong", action="store_true")
    arguments = parser.parse_args()
    device, wrong = torch.device(arguments.device), arguments.wrong
    problems = [problem for dtype in CELLS for problem in sketches(device, dtype, wrong)] + copies(device, wrong)
    print("\n".join(problems) or "sketches and copies are as they should be")
    return 1 if problems else 0


def sketches(device: torch.device, dtype: torch.dtype, wrong: bool) -> list[str]:
    values = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)).to(dtype)
    values[7, 11], values[200, 300] = float("nan"), float("-inf")
    on_device = values.to(device, copy=True)
    if wrong:
        on_device.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])[3, 4] ^= 1
    mine, theirs = (sketch_of(each, EDGES).cpu() for each in (values, on_device))
    problems = []
    if not torch.equal(mine[-FINGERPRINT:], theirs[-FINGERPRINT:]):
        problems.append(f"{dtype}: the fingerprint is another one")
    size, number, allowed = CELLS[dtype]
    mine, theirs = (each[:-FINGERPRINT].view(-1, size) for each in (mine, theirs))
    end = SUMS * number.itemsize
    norms = mine[:, end : end + 8].contiguous().view(torch.float64).sqrt()
    sums = [each[:, :end].contiguous().view(number).double() for each in (mine, theirs)]
    if not (sums[0] - sums[1]).abs().le(allowed * norms).all():
        problems.append(f"{dtype}: sums are {((sums[0] - sums[1]).abs() / norms).max():.2g} of the cell's norm apart")
    counts = -4 if size == 80 else -8  # how many are not finite, and the sums' exponent
    if not torch.equal(mine[:, counts:], theirs[:, counts:]):
        problems.append(f"{dtype}: another number of elements is not finite")
    return problems


def copies(device: torch.device, wrong: bool) -> list[str]:
    if wrong:
        side_stream.Copy.has_arrived = lambda copy: True
        side_stream.Copy.wait = lambda copy: None
    received: list[float] = []
    transfers, work = Transfers(), torch.ones(2048, 2048, device=device)

    def receive(host: torch.Tensor) -> None:
        received.extend((host.flatten()[0].item(), host.flatten()[-1].item()))

    expected = []
    # Sizes below and above what may wait; each is another number of elements, transposed, on the device or the host.
    for number in range(1, 60):
        rows = (80 << 20) // 4 if number == 30 and device.type != "cpu" else 1000 * number
        tensor = torch.full((rows, 4), float(number), device="cpu" if number % 7 == 0 else device).t()
        if device.type != "cpu":
            work = work @ work / 2048  # the device is behind the host
        transfers.add(tensor, receive)
        tensor.fill_(-1.0)
        expected += [float(number)] * 2
    transfers.finish()
    different = sum(got != wanted for got, wanted in zip(received, expected, strict=True))
    return [f"{different} of {len(expected)} elements arrived with other values"] if different else []


if __name__ == "__main__":
    sys.exit(main())
