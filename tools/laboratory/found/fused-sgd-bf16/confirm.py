"""Without ttrace: which elements a step of fused SGD on the CPU moves."""

import torch


def main() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for size in (15, 16, 40, 64):
            parameter = torch.nn.Parameter(torch.ones(size, dtype=dtype))
            parameter.grad = torch.ones_like(parameter)
            torch.optim.SGD([parameter], lr=0.5, fused=True).step()
            moved = int((parameter != 1).sum())
            print(f"{str(dtype).removeprefix('torch.')}: {moved} of {size} elements have moved")


if __name__ == "__main__":
    main()
