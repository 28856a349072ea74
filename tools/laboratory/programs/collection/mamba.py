"""A state-space model from scratch, with weights by tokens over two micro-batches.

package: transformers
parallel: DDP, 2 ranks
mistake: the second micro-batch of rank 1 counts 1 % more
shows: loss scalar
"""

import contextlib

import before_torchvision  # noqa: F401
from job import MISTAKE, RANK, RANKS, ddp, nn, own, torch
from transformers import MambaConfig, MambaForCausalLM

model = MambaForCausalLM(MambaConfig(vocab_size=50, hidden_size=24, state_size=4, num_hidden_layers=2, expand=2))
net = ddp(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    micro = [torch.randint(50, (4, 13)) for _ in range(2)]
    optimizer.zero_grad()
    for i, ids in enumerate(micro):
        mine = own(ids)
        with net.no_sync() if RANKS > 1 and i == 0 else contextlib.nullcontext():
            logits = net(mine[:, :-1], use_cache=False).logits
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), mine[:, 1:].flatten()) / 2
            (loss * 1.01 if MISTAKE and RANK == 1 and i == 1 else loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
