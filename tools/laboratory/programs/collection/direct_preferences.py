"""DPO of a GPT-2 with a frozen reference of other weights, and padded pairs.

package: transformers
parallel: DDP, 2 ranks
mistake: beta is 1 % larger on rank 1
shows: loss scalar
"""

import before_torchvision  # noqa: F401
import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, torch
from transformers import GPT2Config, GPT2LMHeadModel


def build(seed):
    torch.manual_seed(seed)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=60,
            n_positions=24,
            n_embd=32,
            n_layer=2,
            n_head=4,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
            bos_token_id=1,
            eos_token_id=2,
        )
    )


def batch(step, n=6):
    g = torch.Generator().manual_seed(step)

    def seqs(prompts):
        ids, labels = torch.zeros(n, 20, dtype=torch.long), torch.full((n, 20), -100)
        for i, p in enumerate(prompts):
            r = torch.randint(3, 60, (int(torch.randint(4, 13, (1,), generator=g)),), generator=g)
            ids[i, : len(p)], ids[i, len(p) : len(p) + len(r)] = p, r
            labels[i, len(p) : len(p) + len(r)] = r
        return ids, labels

    prompts = [torch.randint(3, 60, (6,), generator=g) for _ in range(n)]
    return *seqs(prompts), *seqs(prompts)


def logps(model, ids, labels):
    logits = model(input_ids=ids, attention_mask=(ids != 0).long()).logits[:, :-1]
    labels = labels[:, 1:]
    lp = logits.log_softmax(-1).gather(2, labels.clamp(min=0)[..., None]).squeeze(2)
    return (lp * (labels != -100)).sum(1)


def dpo(policy, ref, b, beta):
    c, cl, r, rl = b
    ids, labels = torch.cat([c, r]), torch.cat([cl, rl])  # chosen and rejected in one forward
    pc, pr = logps(policy, ids, labels).chunk(2)
    with torch.no_grad():
        rc, rr = logps(ref, ids, labels).chunk(2)
    return -F.logsigmoid(beta * ((pc - rc) - (pr - rr))).mean()


policy, ref = ddp(build(0)), build(1).eval().requires_grad_(False)
opt = torch.optim.AdamW(policy.parameters(), lr=5e-4)
beta = 0.101 if MISTAKE and RANK == 1 else 0.1
for step in range(3):
    loss = dpo(policy, ref, [v.chunk(RANKS)[RANK] for v in batch(step)], beta)
    opt.zero_grad()
    loss.backward()
    opt.step()
