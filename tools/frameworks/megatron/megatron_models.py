"""The model that the options ask for: GPTModel or HybridModel, made of megatron-core's own modules alone."""

import argparse
import inspect
from collections.abc import Callable
from typing import Any

import torch
import yaml
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.transformer.transformer_config import TransformerConfig


def make_config(options: argparse.Namespace) -> TransformerConfig:
    dtype = torch.bfloat16 if options.bf16 else torch.float32
    choices: dict[str, Any] = {}
    if options.model == "llama":
        choices |= {"normalization": "RMSNorm", "gated_linear_unit": True, "add_bias_linear": False}
        choices |= {"activation_func": torch.nn.functional.silu, "num_query_groups": options.kv_heads}
    if options.first_stage_layers:
        choices["num_layers_in_first_pipeline_stage"] = options.first_stage_layers
    if options.recompute == "full":
        choices |= {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    if options.recompute == "selective":
        choices |= {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]}
    if options.experts:
        choices |= {"num_moe_experts": options.experts, "moe_router_topk": options.top_k, "add_bias_linear": False}
        choices |= {"moe_token_dispatcher_type": options.dispatcher, "moe_grouped_gemm": False}
        choices |= {"moe_router_load_balancing_type": "aux_loss", "moe_aux_loss_coeff": options.auxiliary_loss}
        choices |= {"expert_model_parallel_size": options.ep, "expert_tensor_parallel_size": options.etp}
    if options.mtp:
        choices |= {"mtp_num_layers": options.mtp, "mtp_loss_scaling_factor": 0.3}
    choices |= yaml.safe_load("\n".join(each.replace("=", ": ", 1) for each in options.config)) or {}
    if options.vpp:
        choices |= {"overlap_p2p_comm": True, "batch_p2p_comm": False}
    return TransformerConfig(
        num_layers=_layers(options),
        hidden_size=options.hidden,
        num_attention_heads=options.heads,
        ffn_hidden_size=4 * options.hidden,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=options.bf16,
        attention_softmax_in_fp32=True,
        qk_layernorm=options.qk_norm,
        **known_to(TransformerConfig, softmax_type=options.softmax),
        tensor_model_parallel_size=options.tp,
        sequence_parallel=options.sp,
        pipeline_model_parallel_size=options.pp,
        virtual_pipeline_model_parallel_size=options.vpp,
        calculate_per_token_loss=options.per_token_loss,
        # Kernels for GPUs.
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        **choices,
    )


def make_chunks(options: argparse.Namespace, config: TransformerConfig) -> list[torch.nn.Module]:
    """This stage's part of the model, in one piece or in `--vpp`."""
    return [_make_chunk(options, config, stage) for stage in ([None] if options.vpp is None else range(options.vpp))]


def _make_chunk(options: argparse.Namespace, config: TransformerConfig, vp_stage: int | None) -> torch.nn.Module:
    virtual = {} if vp_stage is None else {"ignore_virtual": False, "vp_stage": vp_stage}
    arguments = {
        "config": config,
        "vocab_size": options.vocabulary,
        "max_sequence_length": options.sequence,
        "pre_process": parallel_state.is_pipeline_first_stage(**virtual),
        "post_process": parallel_state.is_pipeline_last_stage(**virtual),
        "share_embeddings_and_output_weights": not options.untied,
        "position_embedding_type": "learned_absolute" if options.model == "gpt" else "rope",
        "vp_stage": vp_stage,
    }
    if options.model == "hybrid":
        return _make_hybrid(options, arguments)
    block = get_gpt_decoder_block_spec(config, use_transformer_engine=False, vp_stage=vp_stage)
    block.layer_norm = Norm
    for layer in block.layer_specs:
        layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = Norm
        if config.qk_layernorm:
            attention = layer.submodules.self_attention.submodules
            attention.q_layernorm = attention.k_layernorm = Norm
    if options.mtp and arguments["post_process"]:
        arguments["mtp_block_spec"] = _mtp_spec(config, block, vp_stage)
    return GPTModel(transformer_layer_spec=block, **arguments)


def _mtp_spec(config: TransformerConfig, block: Any, vp_stage: int | None) -> Any:
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_mtp_block_spec

    spec = get_gpt_mtp_block_spec(config, block, use_transformer_engine=False, vp_stage=vp_stage)
    for layer in spec.layer_specs:
        layer.submodules.enorm = layer.submodules.hnorm = layer.submodules.layer_norm = Norm
    return spec


def _make_hybrid(options: argparse.Namespace, arguments: dict[str, Any]) -> torch.nn.Module:
    """Layers of attention (*) and of MLP (-) in turn. The package's own list of modules is TransformerEngine's."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.hybrid import hybrid_block
    from megatron.core.models.hybrid.hybrid_block import HybridStack, HybridStackSubmodules
    from megatron.core.models.hybrid.hybrid_model import HybridModel
    from megatron.core.ssm.mlp_layer import MLPLayer
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules

    whole = get_gpt_layer_local_spec().submodules
    attention = TransformerLayerSubmodules(
        input_layernorm=Norm, self_attention=whole.self_attention, self_attn_bda=whole.self_attn_bda
    )
    mlp = TransformerLayerSubmodules(pre_mlp_layernorm=Norm, mlp=whole.mlp, mlp_bda=whole.mlp_bda)
    hybrid_block.TENorm = Norm  # of the final norm, which no list names
    stack = ModuleSpec(
        module=HybridStack,
        submodules=HybridStackSubmodules(
            attention_layer=ModuleSpec(module=TransformerLayer, submodules=attention),
            mlp_layer=ModuleSpec(module=MLPLayer, submodules=mlp),
        ),
    )
    pattern = "|".join(["*-" * (options.layers // options.pp)] * options.pp)
    return HybridModel(hybrid_stack_spec=stack, hybrid_layer_pattern=pattern, **arguments)


def _layers(options: argparse.Namespace) -> int:
    return 2 * options.layers if options.model == "hybrid" else options.layers


class Norm:
    """PyTorch's norm, with the mark of Apex's and TransformerEngine's on parameters whose gradients are to be summed
    over the ranks that share the sequence. Megatron's own wrapper of PyTorch's norm refuses sequence parallelism."""

    def __new__(cls, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> torch.nn.Module:
        kind = torch.nn.RMSNorm if config.normalization == "RMSNorm" else torch.nn.LayerNorm
        norm = kind(hidden_size, eps=eps)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel
        return norm


def known_to(function: Callable, **arguments: Any) -> dict[str, Any]:
    """Those arguments that `function` of this version of megatron-core takes."""
    return {name: value for name, value in arguments.items() if name in inspect.signature(function).parameters}
