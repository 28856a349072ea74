"""transformers.Trainer with a GPT-2 of two layers."""

import os
import tempfile

import feed
import torch
import transformers


class InOrder(transformers.Trainer):
    def _get_train_sampler(self, *_) -> torch.utils.data.Sampler:
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def get_train_dataloader(self):
        loader = super().get_train_dataloader()
        return loader if chosen.source == "loader" else list(loader)


chosen = feed.options()
feed.wait(chosen.wait)
transformers.set_seed(0)
without_dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0)
size = transformers.GPT2Config(n_layer=2, n_head=4, n_embd=64, vocab_size=128, n_positions=32, **without_dropout)
data = [{"input_ids": sample, "labels": sample} for sample in feed.Tokens(8 * feed.STEPS, 32, 128)]
with tempfile.TemporaryDirectory() as output:
    training = transformers.TrainingArguments(
        output,
        per_device_train_batch_size=4,
        max_steps=feed.STEPS,
        warmup_steps=2,
        use_cpu=True,
        ddp_backend="gloo" if "RANK" in os.environ else None,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    training.gradient_accumulation_steps = 2 // training.world_size
    InOrder(transformers.GPT2LMHeadModel(size), training, train_dataset=data).train()
