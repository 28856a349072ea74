"""Trains the transformer of model.py on random tokens: by one process, or under torchrun by one of PyTorch's own ways
to use several. Data-parallel ranks take turns with the micro-batches of the same global batch."""

import argparse
import contextlib
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
from device import ATTENTION, captured, make_repeatable, on_side_stream, saved_activations
from model import SEQUENCE, VOCABULARY, Transformer, next_token_loss
from parallel import parallelize, pipeline
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import context_parallel
from torch.nn.attention import sdpa_kernel

sys.path.append(str(Path(__file__).resolve().parents[1]))

from bits import digest

# By what `--compile` says: options of torch.compile.
COMPILERS = {
    "aot_eager": {"backend": "aot_eager"},
    "inductor": {"backend": "inductor"},
    "reduce-overhead": {"mode": "reduce-overhead"},
}
STRATEGIES = ("single", "ddp", "fsdp1", "fsdp2", "hsdp", "tp", "fsdp2-tp", "context-parallel", "pipeline")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--strategy", choices=STRATEGIES, default="single")
    add("--device", default="cpu", help="cuda: all ranks share one card")
    add("--backend", default="gloo", help="of the process group")
    add("--find-unused-parameters", action="store_true", help="of DDP")
    add("--static-graph", action="store_true", help="of DDP")
    add("--no-sync", action="store_true", help="DDP, FSDP2: reduce gradients in the last micro-batch alone")
    add("--flat-parameters", action="store_true", help="FSDP1: use_orig_params=False")
    add("--mixed-precision", action="store_true", help="FSDP2: compute in bf16")
    add("--schedule", default="1F1B", help="of the pipeline")
    add("--no-scale-grads", action="store_true", help="pipeline: divide the loss, not the gradients")
    add("--dtype", choices=("float32", "bfloat16"), default="float32")
    add("--autocast", choices=("bfloat16", "float16"), help="float16 comes with a GradScaler")
    add("--checkpoint", choices=("reentrant", "non-reentrant"), help="activation checkpointing of each layer")
    add("--compile", nargs="?", const="aot_eager", choices=COMPILERS, help="each layer, by torch.compile")
    add("--attention", choices=ATTENTION, help="the kernel; else PyTorch chooses")
    add("--matmul-precision", choices=("highest", "high"), default="highest", help="of float32; high: TF32")
    add("--optimizer", choices=("for-loop", "foreach", "fused"), help="how AdamW goes through parameters")
    add("--offload", choices=("parameters", "activations"), help="to the host: FSDP2's parameters, or what is saved")
    add("--side-stream", action="store_true", help="run the feed-forward parts on a stream of their own")
    add("--capture", action="store_true", help="steps after the first are replays of a CUDA graph")
    add("--deterministic", action="store_true", help="kernels that give the same bits in each run")
    add("--digest", action="store_true", help="print one of the parameters at the end")
    add("--micro-batches", type=int, default=4, help="of a step, over all ranks")
    add("--micro-batch-size", type=int, default=2)
    add("--steps", type=int, default=1)
    return parser.parse_args()


def build_model(arguments: argparse.Namespace) -> Transformer:
    torch.manual_seed(0)
    reentrant = arguments.checkpoint and arguments.checkpoint == "reentrant"
    return Transformer(reentrant).to(getattr(torch, arguments.dtype)).to(arguments.device)


def micro_batches(arguments: argparse.Namespace, step: int) -> list[tuple[Tensor, Tensor]]:
    """Tokens and labels, both [b, s], of all ranks."""
    generator = torch.Generator().manual_seed(step + 1)
    shape = (arguments.micro_batches, arguments.micro_batch_size, SEQUENCE + 1)
    text = torch.randint(VOCABULARY, shape, generator=generator).to(arguments.device)
    return [(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()) for tokens in text]


class Trainer:
    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments
        self.schedule = None
        self.ranks, self.rank = 1, 0  # that have micro-batches of their own
        if arguments.strategy == "pipeline":
            self.model, self.schedule = pipeline(lambda: build_model(arguments), arguments)
        else:
            self.model = build_model(arguments)
            for layer in self.model.layers.values():
                if arguments.compile:
                    layer.compile(**COMPILERS[arguments.compile])
                if arguments.side_stream:
                    on_side_stream(layer.feed_forward, arguments.device)
            if arguments.strategy != "single":
                self.model, self.ranks, self.rank = parallelize(self.model, arguments)
        how = {"for-loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
        options = how.get(arguments.optimizer, {}) | ({"capturable": True} if arguments.capture else {})
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, **options)
        self.scaler = torch.amp.GradScaler(arguments.device, enabled=arguments.autocast == "float16")
        self.take = captured(self.run) if arguments.capture else self.run

    def step(self, number: int) -> tuple[float, float]:
        """Loss and gradient norm."""
        loss, norm = self.take(micro_batches(self.arguments, number)[self.rank :: self.ranks])
        return float(loss), float(norm)

    def run(self, batches: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        loss = self.accumulate(batches) if self.schedule is None else self.run_pipeline(batches)
        self.scaler.unscale_(self.optimizer)
        norm = self.clip_gradients()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return loss, norm

    def accumulate(self, batches: list[tuple[Tensor, Tensor]]) -> Tensor:
        total = torch.zeros((), device=self.arguments.device)
        for index, (tokens, labels) in enumerate(batches):
            with self.gradient_sync(last=index == len(batches) - 1), self.split_sequence(tokens, labels):
                with self.autocast(), self.attention(), saved_activations(self.arguments):
                    loss = next_token_loss(self.model(tokens), labels) / len(batches)
                self.scaler.scale(loss).backward()
            total += loss.detach()
        return total

    def run_pipeline(self, batches: list[tuple[Tensor, Tensor]]) -> Tensor:
        tokens, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
        losses: list[Tensor] = []
        arguments = {"target": labels, "losses": losses} if self.has_last_stage() else {}
        self.schedule.step(*([tokens] if dist.get_rank() == 0 else []), **arguments)
        return torch.stack(losses).detach().mean() if losses else torch.tensor(float("nan"))

    def has_last_stage(self) -> bool:
        return any(stage.output is not None for stage in self.model)

    def gradient_sync(self, last: bool) -> contextlib.AbstractContextManager:
        if not self.arguments.no_sync:
            return contextlib.nullcontext()
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_gradient_sync(last)
            return contextlib.nullcontext()
        return contextlib.nullcontext() if last else self.model.no_sync()

    def split_sequence(self, tokens: Tensor, labels: Tensor) -> contextlib.AbstractContextManager:
        if self.arguments.strategy != "context-parallel":
            return contextlib.nullcontext()
        mesh = init_device_mesh(self.arguments.device, (dist.get_world_size(),), mesh_dim_names=("cp",))
        buffers = [tokens, labels, self.model.angles]
        return context_parallel(mesh, buffers=buffers, buffer_seq_dims=[1, 1, 0], no_restore_buffers={tokens, labels})

    def autocast(self) -> contextlib.AbstractContextManager:
        name = self.arguments.autocast
        if not name:
            return contextlib.nullcontext()
        return torch.autocast(self.arguments.device, dtype=getattr(torch, name))

    def attention(self) -> contextlib.AbstractContextManager:
        name = self.arguments.attention
        return sdpa_kernel(ATTENTION[name]) if name else contextlib.nullcontext()

    def clip_gradients(self) -> Tensor:
        parameters = list(self.model.parameters())
        if self.arguments.strategy == "fsdp1":
            return self.model.clip_grad_norm_(1.0)
        if self.arguments.strategy != "pipeline":
            norm = nn.utils.clip_grad_norm_(parameters, 1.0)
            return norm.full_tensor() if isinstance(norm, DTensor) else norm
        square = nn.utils.get_total_norm([parameter.grad for parameter in parameters]).square()
        dist.all_reduce(square)
        nn.utils.clip_grads_with_norm_(parameters, 1.0, square.sqrt())
        return square.sqrt()


def main() -> None:
    arguments = parse_arguments()
    parallel = arguments.strategy != "single"
    torch.set_float32_matmul_precision(arguments.matmul_precision)
    if arguments.deterministic:
        make_repeatable()
    if parallel:
        dist.init_process_group(arguments.backend)
    trainer = Trainer(arguments)
    for number in range(arguments.steps):
        loss, norm = trainer.step(number)
        print(f"rank {os.environ.get('RANK', '0')} step {number} loss {loss:.6f} norm {norm:.6f}", flush=True)
    if arguments.digest:
        print(f"rank {os.environ.get('RANK', '0')} digest {digest(trainer.model)}", flush=True)
    if parallel:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
