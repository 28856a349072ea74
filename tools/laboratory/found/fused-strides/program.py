"""Goes on training a small convolutional network from a checkpoint, whose tensors are contiguous."""

import argparse
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

OPTIMIZERS = {
    "AdamW": (torch.optim.AdamW, ("exp_avg", "exp_avg_sq")),
    "Adagrad": (torch.optim.Adagrad, ("sum",)),
    "SGD": (lambda parameters, **options: torch.optim.SGD(parameters, momentum=0.9, **options), ("momentum_buffer",)),
}


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 8, 3)
        self.second = nn.Conv2d(8, 8, 3)
        self.head = nn.Linear(8, 10)

    def forward(self, images: Tensor) -> Tensor:
        hidden = torch.tanh(self.second(torch.tanh(self.first(images))))
        return self.head(hidden.mean((2, 3)))


def batch() -> tuple[Tensor, Tensor]:
    """[16, 3, 12, 12] and [16]"""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(16, 3, 12, 12, generator=generator), torch.randint(10, (16,), generator=generator)


def checkpoint(parameters: Iterable[Tensor], names: tuple[str, ...]) -> dict:
    """What an optimizer knows after five steps. Stands for a file: one in safetensors has contiguous tensors only."""
    generator = torch.Generator().manual_seed(2)
    state = {
        number: {"step": torch.tensor(5.0)}
        | {name: torch.rand(parameter.shape, generator=generator) / 1e4 for name in names}
        for number, parameter in enumerate(parameters)
    }
    return {"state": state}


def step(name: str, fused: bool, channels_last: bool) -> Network:
    model = Network()
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    make, names = OPTIMIZERS[name]
    optimizer = make(model.parameters(), lr=1e-2, fused=fused)
    state = checkpoint(model.parameters(), names)
    optimizer.load_state_dict(state | {"param_groups": optimizer.state_dict()["param_groups"]})
    images, labels = batch()
    F.cross_entropy(model(images), labels).backward()
    optimizer.step()
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="AdamW")
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--contiguous", action="store_true", help="not channels_last: the correct twin")
    arguments = parser.parse_args()
    step(arguments.optimizer, arguments.fused, not arguments.contiguous)


if __name__ == "__main__":
    main()
