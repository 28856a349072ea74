"""Trains a small GPT, Llama or hybrid model with megatron-core as its users do, on CPU. `--help` has the options."""

import argparse
import functools
import os
import tempfile
import time
from collections.abc import Iterator

import cuda_stand_in  # noqa: F401 - before megatron, which looks for a GPU
import options as command_line
import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron_models import known_to, make_chunks, make_config
from weights import initialise

Batch = tuple[torch.Tensor, torch.Tensor]  # token ids [micro-batch size, sequence + 1], and which of them count


def main() -> None:
    options = command_line.parse()
    torch.set_num_threads(1)
    begin_parallel(options)
    config = make_config(options)
    chunks = make_chunks(options, config)
    for chunk in chunks:
        initialise(chunk, config, options)
    chunks, optimizer = make_trainable(options, config, chunks)
    for step in range(options.steps):
        started, cpu = time.perf_counter(), time.thread_time()
        train_step(options, chunks, optimizer, step)
        if options.print_times and dist.get_rank() == 0:
            seconds, cpu = time.perf_counter() - started, time.thread_time() - cpu
            print(f"step {step} seconds {seconds:.6f} cpu {cpu:.6f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def begin_parallel(options: argparse.Namespace) -> None:
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        meeting = os.path.join(tempfile.mkdtemp(), "ranks")
        dist.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{meeting}")
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=options.tp,
        pipeline_model_parallel_size=options.pp,
        virtual_pipeline_model_parallel_size=options.vpp,
        expert_model_parallel_size=options.ep,
        expert_tensor_parallel_size=options.etp,
    )
    model_parallel_cuda_manual_seed(options.seed)


def make_trainable(options: argparse.Namespace, config: TransformerConfig, chunks: list) -> tuple[list, object]:
    """The chunks, each in Megatron's DistributedDataParallel, and the optimizer of all."""
    if options.bf16:
        chunks = [Float16Module(config, chunk) for chunk in chunks]
    overlap = options.overlap_gradients or options.overlap_gather
    ddp_config = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True,
        overlap_grad_reduce=overlap,
        use_distributed_optimizer=options.distributed_optimizer,
        overlap_param_gather=options.overlap_gather,
        bucket_size=40_000 if overlap else None,
    )
    chunks = [
        DistributedDataParallel(config, ddp_config, chunk, disable_bucketing=number > 0 and not options.overlap_gather)
        for number, chunk in enumerate(chunks)
    ]
    optimizer_config = OptimizerConfig(
        optimizer="adam",
        lr=options.learning_rate,
        weight_decay=0.01,
        clip_grad=options.clip,
        bf16=options.bf16,
        params_dtype=config.params_dtype,
        use_distributed_optimizer=options.distributed_optimizer,
        **known_to(OptimizerConfig, overlap_param_gather=options.overlap_gather),
    )
    optimizer = get_megatron_optimizer(optimizer_config, chunks)
    config.grad_scale_func = optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads
    if overlap:
        config.no_sync_func = _one_or_all([chunk.no_sync for chunk in chunks])
    if options.overlap_gather:
        config.param_sync_func = _one_or_all([chunk.start_param_sync for chunk in chunks])
    return chunks, optimizer


def _one_or_all(values: list) -> object:
    return values[0] if len(values) == 1 else values


def train_step(options: argparse.Namespace, chunks: list, optimizer: object, step: int) -> None:
    for chunk in chunks:
        chunk.zero_grad_buffer()
    optimizer.zero_grad()
    losses = get_forward_backward_func()(
        forward_step_func=functools.partial(forward_step, options),
        data_iterator=_one_or_all([batches(options, step) for _ in chunks]),
        model=_one_or_all(chunks),
        num_microbatches=options.micro_batches // parallel_state.get_data_parallel_world_size(),
        seq_length=options.sequence,
        micro_batch_size=options.micro_batch_size,
        forward_only=False,
    )
    _, gradient_norm, _ = optimizer.step()
    if parallel_state.is_pipeline_last_stage():
        loss, count = (sum(values) for values in zip(*(each["loss"] for each in losses), strict=True))
        total = torch.stack([loss, count])
        dist.all_reduce(total, group=parallel_state.get_data_parallel_group())
        if parallel_state.get_data_parallel_rank() == parallel_state.get_tensor_model_parallel_rank() == 0:
            print(f"step {step} loss {total[0] / total[1]:.9f} grad_norm {gradient_norm:.9f}", flush=True)


def batches(options: argparse.Namespace, step: int) -> Iterator[Batch]:
    """This data-parallel rank's: each rank in turn takes a micro-batch of the whole list."""
    generator = torch.Generator().manual_seed(1000 + step)
    shape = (options.micro_batches, options.micro_batch_size, options.sequence)
    tokens = torch.randint(0, options.vocabulary, (*shape[:2], shape[2] + 1), generator=generator)
    counts = torch.rand(shape, generator=generator) < 0.9
    rank, ranks = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
    yield from zip(tokens[rank::ranks], counts[rank::ranks], strict=True)


def forward_step(options: argparse.Namespace, batch: Iterator[Batch], model: torch.nn.Module) -> tuple:
    tokens, counts = next(batch)
    positions = torch.arange(options.sequence).repeat(options.micro_batch_size, 1)
    later = torch.ones(options.sequence, options.sequence).triu(1).bool()[None, None]
    further = {"loss_mask": counts.float()} if options.mtp else {}  # which predictions of further tokens count
    output = model(tokens[:, :-1].contiguous(), positions, later, labels=tokens[:, 1:].contiguous(), **further)
    return output, functools.partial(loss_of, options, counts)


def loss_of(options: argparse.Namespace, counts: torch.Tensor, token_losses: torch.Tensor) -> tuple:
    counts = counts.view(-1).float()
    total = (token_losses.float().view(-1) * counts).sum()
    if options.per_token_loss:
        return total, counts.sum().int(), {"loss": (total.detach().clone(), counts.sum())}
    mean = total / counts.sum()
    return mean, {"loss": (mean.detach().clone(), torch.ones(()))}


if __name__ == "__main__":
    main()
