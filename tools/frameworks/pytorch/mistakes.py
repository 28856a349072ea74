"""Trains as train.py does, with a mistake put in: `mistakes.py --wrong NAME`, and options of train.py.

causal       each token attends to all of its sequence
rotary       the last layer's positions are off by one
scale        the scores of a layer are divided by the square root of the head size twice
unsynced     DDP: gradients are not reduced
undivided    FSDP2: gradients are the ranks' sum, not their mean
unsummed     tensor parallelism: of what a linear adds up over the ranks, the first rank's part is all
early-clip   gradients are clipped before they are unscaled
decay        AdamW's weight decay is added to the gradient
recompute    what activation checkpointing runs again has other positions
late         the side stream is not waited for
flip         a bit of a weight is another one on the second rank, from the fifth step on"""

import argparse
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import device
import model
import parallel
import torch
import train
from torch import Tensor, nn


def causal(options: argparse.Namespace) -> None:
    attention = model.F.scaled_dot_product_attention
    model.F.scaled_dot_product_attention = lambda *heads, is_causal: attention(*heads, is_causal=False)


def rotary(options: argparse.Namespace) -> None:
    change_model(lambda built: turn(built.layers["3"].attention, lambda: True))


def scale(options: argparse.Namespace) -> None:
    def change(built: nn.Module) -> None:
        attention = built.layers["1"].attention
        multiply(attention.wq, attention.head_size**-0.5)

    change_model(change)


def unsynced(options: argparse.Namespace) -> None:
    train.Trainer.gradient_sync = lambda trainer, last: trainer.model.no_sync()


def undivided(options: argparse.Namespace) -> None:
    shard = parallel.shard

    def undivided_shard(built: nn.Module, *arguments: Any) -> nn.Module:
        shard(built, *arguments)
        for module in (*built.layers.values(), built):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo cannot multiply on the way
        return built

    parallel.shard = undivided_shard


def unsummed(options: argparse.Namespace) -> None:
    if os.environ["RANK"] != "0":
        change_model(lambda built: multiply(built.layers["1"].feed_forward.w2, 0))


def early_clip(options: argparse.Namespace) -> None:
    class Scaler(torch.amp.GradScaler):
        is_clipped = False

        def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
            if self.is_clipped:
                super().unscale_(optimizer)
            self.is_clipped = not self.is_clipped  # it asks for itself when it steps

    torch.amp.GradScaler = Scaler


def decay(options: argparse.Namespace) -> None:
    torch.optim.AdamW = functools.partial(torch.optim.Adam, weight_decay=0.01)


def recompute(options: argparse.Namespace) -> None:
    change_model(lambda built: turn(built.layers["1"].attention, lambda: torch._C._current_graph_task_id() != -1))


def late(options: argparse.Namespace) -> None:
    if options.device == "cpu":  # where nothing is late: zeros, as memory may be that nobody has written to yet
        change_model(lambda built: multiply(built.layers["1"].feed_forward, 0))
        return

    def begin_late(stream: torch.cuda.Stream, other: torch.cuda.Stream) -> None:
        if other == torch.cuda.current_stream():
            with torch.cuda.stream(stream):
                torch.cuda._sleep(20_000_000)  # cycles, some 10 ms

    device.wait_for = begin_late


def flip(options: argparse.Namespace) -> None:
    step = train.Trainer.step

    def flipping(trainer: train.Trainer, number: int) -> tuple[float, float]:
        result = step(trainer, number)
        if number == 4 and os.environ["RANK"] == "1":
            weight = next(trainer.model.parameters()).data
            bits = getattr(weight, "_local_tensor", weight).view(-1)[7:8].view(torch.int32)
            bits ^= 0x00400000
        return result

    train.Trainer.step = flipping


def change_model(change: Callable[[nn.Module], object]) -> None:
    """Before it is made parallel."""
    build = train.build_model

    def build_changed(arguments: argparse.Namespace) -> nn.Module:
        built = build(arguments)
        change(built)
        return built

    train.build_model = build_changed


def multiply(module: nn.Module, factor: float) -> None:
    """What `module` returns."""
    forward = module.forward
    module.forward = functools.wraps(forward)(lambda *given: forward(*given) * factor)


def turn(attention: nn.Module, is_turned: Callable[[], bool]) -> None:
    """Has it take each position for the next one."""
    forward = attention.forward

    @functools.wraps(forward)
    def turned(hidden: Tensor, angles: Tensor) -> Tensor:
        return forward(hidden, angles.roll(1, 0) if is_turned() else angles)

    attention.forward = turned


MISTAKES = {
    function.__name__.replace("_", "-"): function
    for function in (
        *(causal, rotary, scale, unsynced, undivided, unsummed),
        *(early_clip, decay, recompute, late, flip),
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("--wrong", choices=MISTAKES, required=True)
    wrong, rest = parser.parse_known_args()
    sys.argv = [sys.argv[0], *rest]
    MISTAKES[wrong.wrong](train.parse_arguments())
    train.main()


if __name__ == "__main__":
    main()
