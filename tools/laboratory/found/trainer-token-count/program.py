"""Fine-tunes a tiny GPT-2 for one step of four micro-batches: in a plain loop, or by `transformers.Trainer`, by one
process or under torchrun."""

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "frameworks" / "transformers"))

import torch
from data import Tokens
from make_models import checkpoint_of
from torch.utils.data import SequentialSampler
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

MICRO_BATCHES, MICRO_BATCH_SIZE = 4, 2


class InOrder(Trainer):
    """Without shuffling: the samples are the same on any number of ranks."""

    def _get_train_sampler(self, *_) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)


def train_plainly(model: torch.nn.Module) -> None:
    """As Trainer does, but the mean is over what is predicted."""
    model.train()
    samples = Tokens(MICRO_BATCHES, MICRO_BATCH_SIZE).samples
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    predicted = torch.tensor(float(samples[:, 1:].numel()))
    for micro_batch in samples.split(MICRO_BATCH_SIZE):
        model(input_ids=micro_batch, labels=micro_batch, num_items_in_batch=predicted).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def train(model: torch.nn.Module) -> None:
    world = int(os.environ.get("WORLD_SIZE", "1"))
    with tempfile.TemporaryDirectory() as output:
        training = TrainingArguments(
            output_dir=output,
            per_device_train_batch_size=MICRO_BATCH_SIZE,
            gradient_accumulation_steps=MICRO_BATCHES // world,
            max_steps=1,
            learning_rate=1e-3,
            optim="adamw_torch",
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            ddp_backend="gloo" if world > 1 else None,
        )
        InOrder(model=model, args=training, train_dataset=Tokens(MICRO_BATCHES, MICRO_BATCH_SIZE)).train()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainer", action="store_true", help="not the plain loop")
    parser.add_argument("--loss-type", help="what the model's loss is called; by default what the model says")
    arguments = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(checkpoint_of("gpt2"))
    model.loss_type = arguments.loss_type or model.loss_type
    if arguments.trainer:
        train(model)
    else:
        train_plainly(model)


if __name__ == "__main__":
    main()
