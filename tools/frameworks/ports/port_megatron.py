"""../megatron/train.py with the weights of a checkpoint of Hugging Face's Llama; with --experts, of its Mixtral.
`--wrong` makes a mistake that ports have been known to make; all other options are those of train.py."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "megatron"))

import cuda_stand_in  # noqa: F401 - before megatron, whose modules take functions from what it replaces
import megatron_models
import torch
import train
import weights
from checkpoints import checkpoint_of
from megatron.core.transformer.transformer_config import TransformerConfig
from safetensors.torch import load_file

WRONG = {
    "rotary-halves": "the rows of q and k are permuted as for interleaved rotary pairs, which Megatron does not use",
    "qkv-order": "all of q, then all of k, then all of v, and not by groups of heads",
    "epsilon": "RMSNorm with 1e-6 for 1e-5",
    "rope-base": "500000 for 10000",
    "gate-and-up": "an expert's gate is taken for what it lets through, and the other way round",
    "expert-order": "the experts are numbered backwards, and the router's rows are not",
}
RENAMED = {
    "embedding.word_embeddings": "model.embed_tokens",
    "decoder.final_layernorm": "model.norm",
    "output_layer": "lm_head",
    "input_layernorm": "input_layernorm",
    "pre_mlp_layernorm": "post_attention_layernorm",
    "self_attention.linear_proj": "self_attn.o_proj",
    "mlp.linear_fc2": "mlp.down_proj",
    "mlp.router": "block_sparse_moe.gate",
}


class Converter:
    """Megatron's parameters of the whole model, by their names there."""

    def __init__(self, config: TransformerConfig, wrong: str | None):
        self.experts = config.num_moe_experts
        name = "megatron-moe" if self.experts else "megatron"
        self.tensors = load_file(checkpoint_of(name) / "model.safetensors")
        self.groups, self.heads = config.num_query_groups, config.num_attention_heads
        self.head_size, self.wrong = config.kv_channels, wrong

    def whole(self, name: str) -> torch.Tensor:
        module = name.removesuffix(".weight")
        if not name.startswith("decoder.layers."):
            return self.tensors[f"{RENAMED[module]}.weight"]
        _, _, layer, module = module.split(".", 3)
        inside = f"model.layers.{layer}."
        if module == "self_attention.linear_qkv":
            return self._fuse(*(self.tensors[f"{inside}self_attn.{part}_proj.weight"] for part in "qkv"))
        if module == "mlp.linear_fc1":
            return torch.cat([self.tensors[f"{inside}mlp.{part}_proj.weight"] for part in ("gate", "up")])
        if module.startswith("mlp.experts.local_experts."):
            _, _, _, expert, linear = module.split(".")
            return self._of_expert(f"{inside}block_sparse_moe.experts", int(expert), linear)
        return self.tensors[f"{inside}{RENAMED[module]}.weight"]

    def _of_expert(self, experts: str, number: int, linear: str) -> torch.Tensor:
        if self.wrong == "expert-order":
            number = self.experts - 1 - number
        gate, down, up = (self.tensors[f"{experts}.{number}.{part}.weight"] for part in ("w1", "w2", "w3"))
        if linear == "linear_fc2":
            return down
        return torch.cat([up, gate] if self.wrong == "gate-and-up" else [gate, up])

    def _fuse(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self.wrong == "rotary-halves":
            q, k = (self._interleaved(each) for each in (q, k))
        if self.wrong == "qkv-order":
            return torch.cat([q, k, v])
        by_group = [each.view(self.groups, -1, each.shape[1]) for each in (q, k, v)]
        return torch.cat(by_group, 1).reshape(-1, q.shape[1])

    def _interleaved(self, rows: torch.Tensor) -> torch.Tensor:
        halves = rows.view(-1, 2, self.head_size // 2, rows.shape[1])
        return halves.transpose(1, 2).reshape(rows.shape)


def initialise(wrong: str | None, model: torch.nn.Module, config: TransformerConfig, options: object) -> None:
    converter = Converter(config, wrong)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            whole = converter.whole(weights.global_name(model, name, options))
            parameter.copy_(weights.part_of(whole, name, parameter, config))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("--wrong", choices=WRONG)
    arguments, rest = parser.parse_known_args()
    sys.argv = [sys.argv[0], "--model", "llama", "--untied", *rest]
    train.initialise = lambda model, config, options: initialise(arguments.wrong, model, config, options)
    if arguments.wrong == "epsilon":
        norm = megatron_models.Norm.__new__
        megatron_models.Norm.__new__ = lambda kind, config, hidden_size, **_: norm(kind, config, hidden_size, 1e-6)
    if arguments.wrong == "rope-base":
        model = megatron_models.GPTModel
        megatron_models.GPTModel = lambda **options: model(**options, rotary_base=500000)
    train.main()


if __name__ == "__main__":
    main()
