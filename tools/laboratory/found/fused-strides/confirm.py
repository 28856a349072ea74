"""Without ttrace: what a step of a fused optimizer on the CPU makes of weights, against the same one not fused."""

import torch
from program import OPTIMIZERS, Network, step


def resumed() -> None:
    before = Network()
    for name in OPTIMIZERS:
        for channels_last in (False, True):
            plain, fused = (step(name, fused, channels_last) for fused in (False, True))
            error = torch.dist(plain.first.weight, fused.first.weight) / torch.dist(
                plain.first.weight, before.first.weight
            )
            layout = "channels_last" if channels_last else "contiguous"
            print(f"{name}, {layout} parameters, contiguous state: the update is wrong by {error.item():.3g}")


def one_step(gradient: torch.Tensor) -> list[float]:
    parameter = torch.nn.Parameter(torch.zeros(2, 3))
    parameter.grad = gradient
    torch.optim.SGD([parameter], lr=1.0, fused=True).step()
    return (-parameter).tolist()


def main() -> None:
    resumed()
    gradient = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    print("SGD(lr=1, fused=True) takes from zeros, of the gradient [[1, 2, 3], [4, 5, 6]]:")
    print("  contiguous:", one_step(gradient))
    print("  transposed:", one_step(gradient.t().contiguous().t()))


if __name__ == "__main__":
    main()
