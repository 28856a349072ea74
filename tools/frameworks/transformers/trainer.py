"""Fine-tunes a tiny pretrained model by `transformers.Trainer`: by one process, or under torchrun with DDP, FSDP or
DeepSpeed."""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from data import Tokens
from make_models import CONFIGURATIONS, checkpoint_of
from torch.utils.data import SequentialSampler
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

sys.path.append(str(Path(__file__).resolve().parents[1]))

from bits import digest

MICRO_BATCHES, MICRO_BATCH_SIZE = 4, 2


class InOrder(Trainer):
    """Without shuffling: the samples are the same on any number of ranks."""

    def _get_train_sampler(self, *_) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)


def deepspeed_configuration(stage: int) -> dict:
    """On CPU with none of DeepSpeed's own operators, one of which it would compile: gloo alone."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    deepspeed.ops.__compatible_ops__ = {}
    deepspeed.comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    return {
        "zero_optimization": {"stage": stage},
        "gradient_clipping": "auto",
        "gradient_accumulation_steps": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "zero_allow_untested_optimizer": True,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=CONFIGURATIONS, default="llama")
    parser.add_argument("--fsdp", type=int, choices=(1, 2), help="the version of FSDP; else DDP")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cuda: all ranks share one card")
    parser.add_argument("--digest", action="store_true", help="print one of the parameters at the end")
    parser.add_argument("--shifted", action="store_true", help="a mistake: labels, which the model shifts, are shifted")
    parser.add_argument("--deepspeed", type=int, choices=(1, 2, 3), help="the stage of ZeRO")
    arguments = parser.parse_args()
    world = int(os.environ.get("WORLD_SIZE", "1"))
    model = AutoModelForCausalLM.from_pretrained(checkpoint_of(arguments.model))
    options = {"ddp_backend": "gloo"} if world > 1 else {}
    if arguments.fsdp:
        layer = type(model.model.layers[0]).__name__
        options |= {
            "fsdp": "full_shard auto_wrap",
            "fsdp_config": {"fsdp_version": arguments.fsdp, "transformer_layer_cls_to_wrap": [layer]},
        }
    if arguments.deepspeed:
        options = {"deepspeed": deepspeed_configuration(arguments.deepspeed)}
    with tempfile.TemporaryDirectory() as output:
        training = TrainingArguments(
            output_dir=output,
            per_device_train_batch_size=MICRO_BATCH_SIZE,
            gradient_accumulation_steps=MICRO_BATCHES // world,
            max_steps=1,
            learning_rate=1e-3,
            use_cpu=arguments.device == "cpu",
            report_to=[],
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
            **options,
        )
        tokens = Tokens(MICRO_BATCHES, MICRO_BATCH_SIZE, shifted=arguments.shifted)
        InOrder(model=model, args=training, train_dataset=tokens).train()
    if arguments.digest:
        print(f"rank {os.environ.get('RANK', '0')} digest {digest(model)}", flush=True)


if __name__ == "__main__":
    main()
