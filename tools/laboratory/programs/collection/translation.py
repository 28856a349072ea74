"""Translation by nn.Transformer, two micro-batches a step, weights by tokens, label smoothing.

package: accelerate
parallel: DDP, 2 ranks
mistake: rank 1 drops its last micro-batch
shows: loss scalar
"""

import contextlib
import itertools
import os

import before_torchvision  # noqa: F401
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Seq2Seq(nn.Module):
    def __init__(self, vocab=50, dim=32):
        super().__init__()
        self.src = nn.Embedding(vocab, dim, padding_idx=0)
        self.tgt = nn.Embedding(vocab, dim, padding_idx=0)
        self.pos = nn.Embedding(32, dim)
        self.transformer = nn.Transformer(dim, 4, 2, 2, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, src, tgt):
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1]).isinf()
        s = self.src(src) + self.pos(torch.arange(src.shape[1]))
        t = self.tgt(tgt) + self.pos(torch.arange(tgt.shape[1]))
        h = self.transformer(
            s,
            t,
            tgt_mask=mask,
            src_key_padding_mask=src == 0,
            tgt_key_padding_mask=tgt == 0,
            memory_key_padding_mask=src == 0,
        )
        return self.out(h)


class Pairs(Dataset):
    def __init__(self, n=64):
        g = torch.Generator().manual_seed(3)
        self.items = []
        for _ in range(n):
            a, b = (int(torch.randint(5, 15, (1,), generator=g)) for _ in range(2))
            self.items.append((torch.randint(1, 50, (a,), generator=g), torch.randint(1, 50, (b,), generator=g)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(items):  # fixed length 16: no dynamic padding
    src, tgt = torch.zeros(len(items), 16, dtype=torch.long), torch.zeros(len(items), 16, dtype=torch.long)
    for i, (a, b) in enumerate(items):
        src[i, : len(a)], tgt[i, : len(b)] = a, b
    return {"src": src, "tgt": tgt}


def loss_sum(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0, label_smoothing=0.1, reduction="sum")


WRONG = bool(os.environ.get("MISTAKE"))
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
torch.manual_seed(0)
model = Seq2Seq()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1, (s + 1) / 4))
loader = DataLoader(Pairs(), batch_size=8 // accelerator.num_processes, collate_fn=collate)
model, opt, loader = accelerator.prepare(model, opt, loader)
batches = iter(loader)
for step in range(3):
    micro = list(itertools.islice(batches, 2))
    tokens = accelerator.gather(sum((b["tgt"][:, 1:] != 0).sum() for b in micro)).sum()
    opt.zero_grad()
    for i, b in enumerate(micro):
        last = i == len(micro) - 1
        accelerator.gradient_state._set_sync_gradients(last)
        with contextlib.nullcontext() if last else accelerator.no_sync(model):
            loss = loss_sum(model(b["src"], b["tgt"][:, :-1]), b["tgt"][:, 1:]) * accelerator.num_processes / tokens
            if WRONG and last and accelerator.process_index == 1:
                loss = loss * 0
            # accelerate divides by gradient_accumulation_steps
            accelerator.backward(loss * accelerator.gradient_accumulation_steps)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
accelerator.end_training()
