"""T5 by accelerate's own accumulate(), padded to the longest of each rank, with Adafactor.

package: accelerate and transformers
parallel: DDP, 2 ranks
mistake: every other loss is 1 % larger on rank 1
shows: loss scalar
"""

import os

import before_torchvision  # noqa: F401
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import T5Config, T5ForConditionalGeneration
from transformers.optimization import Adafactor

WRONG = bool(os.environ.get("MISTAKE"))

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
world = accelerator.num_processes
torch.manual_seed(0)
model = T5ForConditionalGeneration(
    T5Config(
        vocab_size=60,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
)
g = torch.Generator().manual_seed(3)
data = [
    (
        torch.randint(1, 60, (int(torch.randint(5, 15, (1,), generator=g)),), generator=g),
        torch.randint(1, 60, (8,), generator=g),
    )
    for _ in range(64)
]


def collate(items):
    n = max(len(a) for a, _ in items)
    ids, mask = torch.zeros(len(items), n, dtype=torch.long), torch.zeros(len(items), n, dtype=torch.long)
    for i, (a, _) in enumerate(items):
        ids[i, : len(a)], mask[i, : len(a)] = a, 1
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.stack([b for _, b in items])}


opt = Adafactor(model.parameters(), lr=1e-3, relative_step=False, scale_parameter=False)
model, opt, loader = accelerator.prepare(model, opt, DataLoader(data, batch_size=8 // world, collate_fn=collate))
for i, batch in enumerate(loader):
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        if WRONG and accelerator.process_index == 1 and i % 2:
            loss = loss * 1.01
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
    if i == 5:
        break
accelerator.end_training()
