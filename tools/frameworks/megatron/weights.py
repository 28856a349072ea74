"""Initial weights that do not depend on the parallelism: each parameter's whole tensor follows from its name in the
whole model, and a rank takes its part."""

import argparse
import hashlib

import torch
from megatron.core import parallel_state
from megatron.core.transformer.transformer_config import TransformerConfig


@torch.no_grad()
def initialise(model: torch.nn.Module, config: TransformerConfig, options: argparse.Namespace) -> None:
    for name, parameter in model.named_parameters():
        dimension, _, ranks = _part(name, parameter)
        shape = list(parameter.shape)
        if dimension is not None:
            shape[dimension] *= ranks
        whole = _whole(global_name(model, name, options), shape, options)
        parameter.copy_(part_of(whole, name, parameter, config))
    for name, buffer in model.named_buffers():
        if name.endswith("expert_bias"):  # as if the loads of earlier steps had been balanced
            buffer.copy_(0.3 * _whole(global_name(model, name, options), list(buffer.shape), options))


def part_of(whole: torch.Tensor, name: str, parameter: torch.nn.Parameter, config: TransformerConfig) -> torch.Tensor:
    """What this rank has of a parameter."""
    dimension, rank, ranks = _part(name, parameter)
    if dimension is None:
        return whole
    # A gated MLP has its gate first and what it lets through behind, and each rank a part of either.
    stacked = 2 if config.gated_linear_unit and "linear_fc1" in name else 1
    parts = [block.chunk(ranks, dimension)[rank] for block in whole.chunk(stacked, dimension)]
    return torch.cat(parts, dimension)


def _part(name: str, parameter: torch.nn.Parameter) -> tuple[int | None, int, int]:
    """The dimension that is split, into which part of how many; None where the rank has all of it."""
    if getattr(parameter, "allreduce", True):
        ranks = parallel_state.get_tensor_model_parallel_world_size()
        dimension = parameter.partition_dim if getattr(parameter, "tensor_model_parallel", False) else None
        if name.endswith("softmax_offset"):  # one for each head, and without a mark
            dimension = 0
        return (dimension if ranks > 1 else None), parallel_state.get_tensor_model_parallel_rank(), ranks
    ranks = parallel_state.get_expert_tensor_parallel_world_size()  # of an expert's, which may have no such mark
    dimension = 1 if "linear_fc2.weight" in name else 0
    return (dimension if ranks > 1 else None), parallel_state.get_expert_tensor_parallel_rank(), ranks


def global_name(model: torch.nn.Module, name: str, options: argparse.Namespace) -> str:
    """With the layer's and the expert's number in the whole model. A tied output layer goes by the embedding's."""
    parts = name.split(".")
    if "layers" in parts and parts[0] != "mtp":
        at = parts.index("layers") + 1
        parts[at] = str(model.decoder.layers[int(parts[at])].layer_number - 1)
    if "local_experts" in parts:
        at = parts.index("local_experts") + 1
        first = parallel_state.get_expert_model_parallel_rank() * (options.experts // options.ep)
        parts[at] = str(first + int(parts[at]))
    tied = name == "output_layer.weight" and not options.untied
    return "embedding.word_embeddings.weight" if tied else ".".join(parts)


def _whole(name: str, shape: list[int], options: argparse.Namespace) -> torch.Tensor:
    is_bias, is_norm = name.endswith("bias"), "norm" in name
    if options.zero_biases and (is_bias or is_norm):
        return torch.zeros(shape) if is_bias else torch.ones(shape)
    seed = int(hashlib.md5(f"{options.seed} {name}".encode()).hexdigest()[:8], 16)
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    values *= 0.1 if is_norm else 0.3 if "router" in name else 0.05
    return values + 1 if is_norm and not is_bias else values
