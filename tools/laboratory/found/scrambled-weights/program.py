"""Fine-tunes a tiny model whose checkpoint has other tensors than its modules: by one process, or under torchrun by
FSDP or tensor parallelism as transformers applies it."""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import AutoModelForCausalLM, HrmTextConfig, OlmoHybridConfig
from transformers.distributed import DistributedConfig

VOCABULARY = 96
_SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CONFIGURATIONS = {
    "olmo_hybrid": OlmoHybridConfig(
        **_SHAPE,
        num_hidden_layers=2,
        layer_types=["linear_attention", "full_attention"],
        linear_key_head_dim=4,
        linear_value_head_dim=8,
    ),
    "hrm_text": HrmTextConfig(**_SHAPE, num_hidden_layers=1, head_dim=8, prefix_lm=False),
}


def save_checkpoint(name: str, path: str) -> None:
    """Stands for a download. Every rank makes the same, before there is a process group: later rank 0 alone saves."""
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(CONFIGURATIONS[name], dtype=torch.float32).save_pretrained(path)


def load(path: str, **sizes: int) -> nn.Module:
    """`sizes`: of DistributedConfig."""
    options = {"distributed_config": DistributedConfig(**sizes)} if sizes else {}
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **options).train()


def load_again(model: nn.Module, whole: nn.Module) -> None:
    """Gives `model` the parameters of `whole`, each distributed as a whole."""
    with torch.no_grad():
        for parameter, right in zip(model.parameters(), whole.parameters(), strict=True):
            if isinstance(parameter, DTensor):
                right = distribute_tensor(right, parameter.device_mesh, parameter.placements)
            parameter.copy_(right)


def tokens(rank: int = 0, ranks: int = 1) -> torch.Tensor:
    """This rank's micro-batches of two, each [2, 16]"""
    generator = torch.Generator().manual_seed(7)
    return torch.randint(3, VOCABULARY, (2, 2, 16), generator=generator)[rank::ranks]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=CONFIGURATIONS, default="olmo_hybrid")
    parser.add_argument("--fsdp", type=int, default=1)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--load-again", action="store_true", help="whole parameters, distributed: the correct twin")
    arguments = parser.parse_args()
    sizes = {"fsdp_size": arguments.fsdp, "tp_size": arguments.tp} if arguments.fsdp * arguments.tp > 1 else {}
    with tempfile.TemporaryDirectory() as path:
        save_checkpoint(arguments.model, path)
        if sizes:
            dist.init_process_group("gloo")
        model = load(path, **sizes)
        if arguments.load_again:
            load_again(model, load(path))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    mine = tokens(int(os.environ.get("RANK", "0")) if arguments.fsdp > 1 else 0, arguments.fsdp)
    for batch in mine:
        (model(input_ids=batch, labels=batch).loss / len(mine)).backward()
    optimizer.step()
    if sizes:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
