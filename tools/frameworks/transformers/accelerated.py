"""Fine-tunes a tiny pretrained model in a loop around `accelerate.Accelerator`: by one process, or under torchrun with
DDP, FSDP2 or DeepSpeed."""

import argparse
import os

import torch
from accelerate import Accelerator, DeepSpeedPlugin, FullyShardedDataParallelPlugin
from data import Tokens
from make_models import CONFIGURATIONS, checkpoint_of
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

MICRO_BATCHES, MICRO_BATCH_SIZE = 4, 2


def deepspeed_plugin(stage: int, micro_batches: int) -> DeepSpeedPlugin:
    """On CPU with none of DeepSpeed's own operators, one of which it would compile: gloo alone."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    deepspeed.ops.__compatible_ops__ = {}
    deepspeed.comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    return DeepSpeedPlugin(zero_stage=stage, gradient_accumulation_steps=micro_batches, gradient_clipping=1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=CONFIGURATIONS, default="llama")
    parser.add_argument("--fsdp", action="store_true", help="version 2; else DDP")
    parser.add_argument("--deepspeed", type=int, choices=(1, 2, 3), help="the stage of ZeRO")
    arguments = parser.parse_args()
    world = int(os.environ.get("WORLD_SIZE", "1"))
    options = {}
    if arguments.fsdp:
        options["fsdp_plugin"] = FullyShardedDataParallelPlugin(
            fsdp_version=2,
            auto_wrap_policy="transformer_based_wrap",
            transformer_cls_names_to_wrap=["LlamaDecoderLayer"],
        )
    if arguments.deepspeed:
        options["deepspeed_plugin"] = deepspeed_plugin(arguments.deepspeed, MICRO_BATCHES // world)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=MICRO_BATCHES // world, **options)
    model = AutoModelForCausalLM.from_pretrained(checkpoint_of(arguments.model))
    model.train()
    loader = DataLoader(Tokens(MICRO_BATCHES, MICRO_BATCH_SIZE), batch_size=MICRO_BATCH_SIZE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
                print(f"rank {accelerator.process_index} loss {loss.item():.6f} norm {norm}", flush=True)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.end_training()


if __name__ == "__main__":
    main()
