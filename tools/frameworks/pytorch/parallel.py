"""The strategies of PyTorch itself, as its tutorials apply them to a model that every rank has built whole."""

import argparse
from functools import partial

import torch
import torch.distributed as dist
from model import Block, Transformer, next_token_loss
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, _PipelineSchedule, get_schedule_class
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel


def parallelize(model: Transformer, arguments: argparse.Namespace) -> tuple[nn.Module, int, int]:
    """The parallel model; how many ranks have micro-batches of their own, and which of these this one is."""
    world, rank, device = dist.get_world_size(), dist.get_rank(), arguments.device
    match arguments.strategy:
        case "ddp":
            options = {name: getattr(arguments, name) for name in ("find_unused_parameters", "static_graph")}
            return DistributedDataParallel(model, **options), world, rank
        case "fsdp1":
            policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
            original = not arguments.flat_parameters
            model = FullyShardedDataParallel(
                model, auto_wrap_policy=policy, use_orig_params=original, device_id=torch.device(device)
            )
            return model, world, rank
        case "fsdp2":
            return shard(model, init_device_mesh(device, (world,), mesh_dim_names=("dp",)), arguments), world, rank
        case "hsdp":
            mesh = init_device_mesh(device, (2, world // 2), mesh_dim_names=("dp_replicate", "dp_shard"))
            return shard(model, mesh, arguments), world, rank
        case "tp":
            return split(model, init_device_mesh(device, (world,), mesh_dim_names=("tp",))), 1, 0
        case "fsdp2-tp":
            mesh = init_device_mesh(device, (world // 2, 2), mesh_dim_names=("dp", "tp"))
            model = shard(split(model, mesh["tp"]), mesh["dp"], arguments)
            return model, mesh["dp"].size(), mesh["dp"].get_local_rank()
    return model, 1, 0  # context-parallel: every rank has a part of each sequence


def shard(model: Transformer, mesh: DeviceMesh, arguments: argparse.Namespace) -> nn.Module:
    """FSDP2; hybrid where the mesh has two dimensions."""
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    policy = mixed if arguments.mixed_precision else MixedPrecisionPolicy()
    offload = OffloadPolicy()
    if arguments.offload == "parameters":
        offload = CPUOffloadPolicy(pin_memory=arguments.device != "cpu")
    for module in (*model.layers.values(), model):
        fully_shard(module, mesh=mesh, mp_policy=policy, offload_policy=offload)
    return model


def split(model: Transformer, mesh: DeviceMesh) -> Transformer:
    """Tensor parallelism with sequence parallelism between the layers' linears."""
    sequence = Shard(1)
    whole_input = PrepareModuleInput(input_layouts=(sequence,), desired_input_layouts=(Replicate(),))
    plan = {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=sequence),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=sequence, output_layouts=Replicate()),
    }
    layer_plan = {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(input_layouts=(sequence, None), desired_input_layouts=(Replicate(), None)),
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=sequence),
        "ffn_norm": SequenceParallel(),
        "feed_forward": whole_input,
        "feed_forward.w1": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(output_layouts=sequence),
        "feed_forward.w3": ColwiseParallel(),
    }
    for layer in model.layers.values():
        parallelize_module(layer, mesh, layer_plan)
    return parallelize_module(model, mesh, plan)


def pipeline(build, arguments: argparse.Namespace) -> tuple[nn.ModuleList, _PipelineSchedule]:
    """This rank's stages, each cut out of a model that `build()` returns, and the schedule that runs them."""
    world, rank, schedule_name = dist.get_world_size(), dist.get_rank(), arguments.schedule
    schedule_class = get_schedule_class(schedule_name)
    if not issubclass(schedule_class, PipelineScheduleMulti):
        numbers, count = [rank], world
    elif schedule_name.startswith("ZBV"):
        numbers, count = [rank, 2 * world - 1 - rank], 2 * world
    else:
        numbers, count = [rank, world + rank], 2 * world
    modules = nn.ModuleList(cut_stage(build(), number, count) for number in numbers)
    stages = [
        PipelineStage(module, number, count, torch.device(arguments.device))
        for module, number in zip(modules, numbers, strict=True)
    ]
    several = issubclass(schedule_class, PipelineScheduleMulti)
    schedule = schedule_class(
        stages if several else stages[0],
        arguments.micro_batches,
        loss_fn=next_token_loss,
        scale_grads=not arguments.no_scale_grads,
    )
    return modules, schedule


def cut_stage(model: Transformer, stage: int, stages: int) -> Transformer:
    """Drops from `model` what the other stages have."""
    layers = len(model.layers)
    for number in range(layers):
        if not layers * stage // stages <= number < layers * (stage + 1) // stages:
            del model.layers[str(number)]
    if stage > 0:
        model.tok_embeddings = None
    if stage < stages - 1:
        model.norm = model.output = None
    return model
