"""LoRA in a small Llama by Trainer: variable lengths, accumulation.

package: peft and transformers' Trainer
parallel: DDP by Trainer, 2 ranks
mistake: tokens are not averaged across devices
shows: (model):num_items_in_batch input, *:loss output, loss scalar
"""

import os

import before_torchvision  # noqa: F401
import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

WRONG = bool(os.environ.get("MISTAKE"))


class Texts(Dataset):
    def __init__(self, n=64):
        g = torch.Generator().manual_seed(5)
        self.items = [
            torch.randint(3, 60, (int(torch.randint(6, 16, (1,), generator=g)),), generator=g) for _ in range(n)
        ]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return {"input_ids": self.items[i]}


def collate(items):
    ids, labels = torch.zeros(len(items), 16, dtype=torch.long), torch.full((len(items), 16), -100)
    mask = torch.zeros(len(items), 16, dtype=torch.long)
    for i, it in enumerate(items):
        n = len(it["input_ids"])
        ids[i, :n], labels[i, :n], mask[i, :n] = it["input_ids"], it["input_ids"], 1
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


per_device = 8 // int(os.environ.get("WORLD_SIZE", 1))
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
model = get_peft_model(
    model,
    LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False, lora_dropout=0.0
    ),
)
args = TrainingArguments(
    "out_trainer",
    per_device_train_batch_size=per_device,
    gradient_accumulation_steps=2,
    max_steps=3,
    learning_rate=1e-3,
    lr_scheduler_type="cosine",
    warmup_steps=1,
    logging_steps=1,
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    train_sampling_strategy="sequential",
    average_tokens_across_devices=not WRONG,
)
Trainer(model=model, args=args, train_dataset=Texts(), data_collator=collate).train()
