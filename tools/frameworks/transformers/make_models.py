"""Tiny models with random weights, saved as `from_pretrained` loads them: make_models.py [NAME...]"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    PreTrainedConfig,
    Qwen3MoeConfig,
)

VOCABULARY = 96
DIRECTORY = Path(__file__).resolve().parents[3] / "build/frameworks/models"
_SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
_EXPERTS = {"num_experts_per_tok": 2, "router_aux_loss_coef": 0.01, "output_router_logits": True}

CONFIGURATIONS: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**_SHAPE, intermediate_size=64),
    "gpt2": GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    ),
    "mixtral": MixtralConfig(**_SHAPE, **_EXPERTS, intermediate_size=48, num_local_experts=4),
    "qwen3_moe": Qwen3MoeConfig(
        **_SHAPE, **_EXPERTS, intermediate_size=64, moe_intermediate_size=24, head_dim=8, num_experts=4
    ),
    "deepseek_v3": DeepseekV3Config(
        **{**_SHAPE, "num_key_value_heads": 4},
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_rope_head_dim=4,
        qk_nope_head_dim=8,
        v_head_dim=8,
        intermediate_size=64,
        moe_intermediate_size=32,
        first_k_dense_replace=1,
        n_routed_experts=8,
        n_group=4,
        topk_group=2,
        num_experts_per_tok=2,
    ),
}


def checkpoint_of(name: str) -> Path:
    """The directory of the saved model, which is made where it is not there. Several ranks may ask at once."""
    path = DIRECTORY / name
    if not path.exists():
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        unfinished = tempfile.mkdtemp(dir=DIRECTORY)
        _make(CONFIGURATIONS[name]).save_pretrained(unfinished)
        try:
            os.rename(unfinished, path)
        except OSError:  # another rank was first
            shutil.rmtree(unfinished)
    return path


def _make(configuration: PreTrainedConfig) -> torch.nn.Module:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(configuration, dtype=torch.float32)
    with torch.no_grad():  # norms and biases as after some training: neither all one nor all zero
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.add_(0.1 * torch.randn_like(buffer))
    return model


if __name__ == "__main__":
    for wanted in sys.argv[1:] or CONFIGURATIONS:
        print(checkpoint_of(wanted))
