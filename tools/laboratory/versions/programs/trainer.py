"""A small Llama by Trainer, two micro-batches a rank, padded labels.

package: transformers
parallel: DDP by Trainer, 2 ranks
mistake: rank 1 learns from labels that are moved by one
shows: (model):labels input, loss scalar
"""

import os
import tempfile

import torch
from torch.utils.data import Dataset, SequentialSampler
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

RANKS, RANK = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
WRONG = bool(os.environ.get("MISTAKE")) and RANK == 1


class Texts(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(5)
        self.ids = torch.randint(3, 60, (32, 16), generator=generator)
        self.lengths = torch.randint(6, 16, (32,), generator=generator)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        ids = self.ids[index]
        labels = ids.clone()
        labels[self.lengths[index] :] = -100
        return {"input_ids": ids, "labels": labels.roll(1) if WRONG else labels}


class InOrder(Trainer):
    """Without shuffling: the samples are the same on any number of ranks."""

    def _get_train_sampler(self, *_):
        return SequentialSampler(self.train_dataset)


set_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )
)
with tempfile.TemporaryDirectory() as output:
    arguments = TrainingArguments(
        output,
        per_device_train_batch_size=8 // RANKS,
        gradient_accumulation_steps=2,
        max_steps=2,
        learning_rate=1e-3,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        **({"ddp_backend": "gloo"} if RANKS > 1 else {}),
    )
    InOrder(model=model, args=arguments, train_dataset=Texts()).train()
