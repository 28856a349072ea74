"""Megatron-core: the groups of `megatron.core.parallel_state`.

Ranks are in the order tp, cp, dp, pp (its default, `order="tp-cp-ep-dp-pp"`); the coordinates are stated all the
same, so that another order is recorded rightly. Sequence parallelism (`sp`) is an alias, since it uses the ranks of tp;
whether it is on is in the configuration that each module has. Experts are spread over the same ranks in groups of their
own, in the order etp, ep, edp, pp.

Its DistributedOptimizer lays the parameters of a buffer one after the other and gives each data parallel rank an equal
part of that. bf16 parameters have the part's fp32 master as `main_param` (None on ranks that own nothing of them),
and `main_grad` as a view into the buffer, of which the rank's part alone is reduced.

Each pipeline stage numbers its layers from 0. How the layers are divided is said by options of the configuration; the
numbers that the program gives to layers are not asked, since they may be wrong. Where the other tensors of its own
models lie is written in annotations that come with ttrace; the options say which of these fit."""

import functools
import sys
from types import ModuleType
from typing import Any

import torch

from ..living import instances_named, instances_of
from ..mesh_position import MeshPosition
from ..shares import Share, owned_share
from .adapter import Adapter, Clipping, Function, Level

_MODULE = "megatron.core.parallel_state"


class Megatron(Adapter, module=_MODULE, level=Level.PROGRAM):
    checkpoints = tuple(Function(f"megatron.core.tensor_parallel{part}", "checkpoint") for part in ("", ".random"))
    # Clips the masters' gradients in place, which are the parameters' `main_grad` themselves.
    clipping = (Clipping("megatron.core.optimizer.optimizer", "clip_grad_by_total_norm_fp32", norm="argument"),)
    # Calls the engine directly, because the output's data is freed by then.
    backward = (Function("megatron.core.pipeline_parallel.schedules", "custom_backward"),)

    def find(self, world_size: int) -> tuple[str, str] | None:
        state = sys.modules[_MODULE]
        if not state.model_parallel_is_initialized():
            return None
        sizes = {
            "tp": state.get_tensor_model_parallel_world_size(),
            "cp": state.get_context_parallel_world_size(),
            "dp": state.get_data_parallel_world_size(),
            "pp": state.get_pipeline_model_parallel_world_size(),
        }
        ranks = {
            "tp": state.get_tensor_model_parallel_rank(),
            "cp": state.get_context_parallel_rank(),
            "dp": state.get_data_parallel_rank(),
            "pp": state.get_pipeline_model_parallel_rank(),
        }
        axes = _text(sizes) + (",sp=tp" if _splits_the_sequence() else "")
        expert_sizes, expert_ranks = _experts(state, "world_size"), _experts(state, "rank")
        if expert_sizes and expert_ranks:
            axes += "/" + _text({**expert_sizes, "pp": sizes["pp"]})
            ranks.update(expert_ranks)
        return axes, _text(ranks)

    def words(self, model: torch.nn.Module, position: MeshPosition) -> dict[str, Any]:
        sizes = position.sizes()
        said = _pipeline(model) if sizes.get("pp", 1) > 1 else {}
        if preset := _preset(model, sizes):
            said["preset"] = preset
        if sizes.get("dp", 1) > 1 and sizes.get("cp", 1) == 1 and _averages_gradients(model):
            said["loss_scale"] = "dp"
        return said

    def summed_later_over(self, parameter: torch.nn.Parameter, name: str) -> tuple[str, ...] | None:
        """The axes over which `finalize_model_grads` sums it, since in backward the ranks of tp have each seen their
        part of the sequence, or their own heads. With cp it sums every gradient, and nothing says how those lie that tp
        splits: None then."""
        state = sys.modules[_MODULE]
        if not state.model_parallel_is_initialized() or state.get_context_parallel_world_size() > 1:
            return None
        is_of_heads = "q_layernorm" in name or "k_layernorm" in name  # by its name it is summed, too
        is_expert = not getattr(parameter, "allreduce", True)  # on a mesh of its own
        return ("tp",) if (getattr(parameter, "sequence_parallel", False) or is_of_heads) and not is_expert else None

    def share(self, parameter: torch.nn.Parameter) -> Share | None:
        for optimizer in _distributed_optimizers():
            if not any(parameter in buffer.param_index_map for buffer in optimizer.buffers):
                continue
            late = optimizer.ddp_config.overlap_param_gather  # by the forward pre-hooks of the modules that use it
            if parameter not in optimizer.model_param_gbuf_map:
                return owned_share(parameter, 0, 0, None, late)
            part = optimizer._get_model_param_range_map(parameter)["param"]
            return owned_share(parameter, part.start, part.end, _master(optimizer, parameter), late)
        return None


def _experts(state: ModuleType, what: str) -> dict[str, int] | None:
    """Sizes or coordinates in the experts' groups; None before Megatron-core 0.9, which has fewer of these."""
    groups = {"etp": "expert_tensor_parallel", "ep": "expert_model_parallel", "edp": "expert_data_parallel"}
    calls = {axis: getattr(state, f"get_{group}_{what}", None) for axis, group in groups.items()}
    return {axis: call() for axis, call in calls.items()} if all(calls.values()) else None


def _splits_the_sequence() -> bool:
    """Whether all modules say that sequence parallelism is on."""
    kind = getattr(sys.modules.get("megatron.core.model_parallel_config"), "ModelParallelConfig", None)
    if kind is None:
        return False
    configs = (getattr(module, "config", None) for module in instances_of(torch.nn.Module))
    return {config.sequence_parallel for config in configs if isinstance(config, kind)} == {True}


def _text(numbers: dict[str, int]) -> str:
    return ",".join(f"{name}={number}" for name, number in numbers.items())


def _averages_gradients(model: torch.nn.Module) -> bool:
    """Its DistributedDataParallel averages gradients over dp, unless the loss is summed over tokens. With cp it depends
    on the release how the schedule scales the loss."""
    wrappers = _modules_of(model, "megatron.core.distributed", "DistributedDataParallel").values()
    return {wrapper.config.calculate_per_token_loss for wrapper in wrappers} == {False}


def _pipeline(model: torch.nn.Module) -> dict[str, Any]:
    """How the layers of a model with one stack of them are divided among the stages, and what its last stage has a copy
    of."""
    blocks = _modules_of(model, "megatron.core.transformer.transformer_block", "TransformerBlock")
    if len(blocks) != 1:
        return {}
    ((path, block),) = blocks.items()
    said: dict[str, Any] = {
        "pipeline": {"axis": "pp", "layers": f"{path.rpartition('.')[2]}.layers", **_unevenness(block.config)}
    }
    language_models = _modules_of(
        model, "megatron.core.models.common.language_module.language_module", "LanguageModule"
    ).values()
    if any(getattr(each, "share_embeddings_and_output_weights", False) for each in language_models):
        said["tied"] = {"output_layer.weight": "embedding.word_embeddings.weight"}
    return said


def _preset(model: torch.nn.Module, sizes: dict[str, int]) -> list[str]:
    """The preset that fits the model, and values of its parameters; [] where none is known to."""
    models = _modules_of(model, "megatron.core.models.gpt.gpt_model", "GPTModel")
    hybrids = _modules_of(model, "megatron.core.models.hybrid.hybrid_model", "HybridModel")
    # The model itself, in wrappers: not a part of another one.
    whole = [each for path, each in (models | hybrids).items() if set(path.split(".")) <= {"", "module"}]
    if len(whole) != 1:
        return []
    (module,) = whole
    config, has_experts = module.config, bool(getattr(module.config, "num_moe_experts", None))
    # The presets do not know these kinds of attention, nor experts that are one module, nor keys that ranks share.
    other_modules = ("multi_latent_attention", "experimental_attention_variant", "heterogeneous_block_specs")
    if any(getattr(config, option, None) for option in other_modules) or (
        has_experts and getattr(config, "moe_grouped_gemm", False)
    ):
        return []
    if config.num_query_groups < sizes.get("tp", 1) or sizes.get("cp", 1) > 1:
        return []
    blocks = "[1, 1]" if config.gated_linear_unit else "[1]"
    parameters = ["loss_scale=1"]  # where gradients are averaged, the word of that name wins
    if getattr(config, "mtp_num_layers", None):
        parameters.append(f"mtp_blocks=[{', '.join(['1'] * (config.mtp_num_layers + 1))}]")
    if has_experts:
        parameters.append(f"expert_blocks={blocks}")
    if models and module.position_embedding_type == "learned_absolute":
        return [] if config.gated_linear_unit else ["megatron_moe" if has_experts else "megatron_gpt", *parameters]
    return ["megatron_mixtral" if has_experts else "megatron_llama", f"mlp_blocks={blocks}", *parameters]


def _unevenness(config: Any) -> dict[str, Any]:
    layout = getattr(config, "pipeline_model_parallel_layout", None)
    if layout is not None:  # by stage and chunk; `per_stage` is in the order of the model
        chunks = zip(*layout.layout, strict=True)
        return {"per_stage": [sum(layer.name == "decoder" for layer in part) for chunk in chunks for part in chunk]}
    options = {
        "first": "num_layers_in_first_pipeline_stage",
        "last": "num_layers_in_last_pipeline_stage",
        "embedding": "account_for_embedding_in_pipeline_split",
        "head": "account_for_loss_in_pipeline_split",
    }
    values = {key: getattr(config, option, None) for key, option in options.items()}
    return {key: value for key, value in values.items() if value is not None and value is not False}


def _modules_of(model: torch.nn.Module, module: str, name: str) -> dict[str, torch.nn.Module]:
    """By path, those of the class `name` of `module`; none where the program has not imported that."""
    kind = getattr(sys.modules.get(module), name, None)
    return {path: each for path, each in model.named_modules() if kind is not None and isinstance(each, kind)}


def _master(optimizer: Any, parameter: torch.nn.Parameter) -> torch.Tensor | None:
    master = getattr(parameter, "main_param", None)
    if master is not None:
        return master
    # An fp32 parameter's part is a view of it.
    for group, parts in zip(optimizer.model_fp32_groups, optimizer.shard_fp32_groups, strict=True):
        for whole, part in zip(group, parts, strict=True):
            if whole is parameter:
                return part
    return None


@functools.cache
def _distributed_optimizers() -> list:
    """Those that have parameters. Megatron-core keeps no list of them; they are there when this is first asked, by the
    end of the first backward."""
    optimizers = instances_named(("megatron.core.optimizer.distrib_optimizer", "DistributedOptimizer"))
    return [each for each in optimizers if hasattr(each, "gbuf_ranges")]
