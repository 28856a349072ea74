"""DPO whose reference model is asked once, before training.

package: PyTorch
parallel: DDP, 2 ranks
mistake: rank 1 takes the log-probabilities of other rows in its second micro-batch
shows: loss scalar
"""

import contextlib

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, nn, torch


class LM(nn.Module):
    def __init__(self, v=64, d=32):
        super().__init__()
        self.emb, self.pos = nn.Embedding(v, d), nn.Embedding(16, d)
        self.body = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d, 4, 64, 0.0, batch_first=True, norm_first=True), 2, enable_nested_tensor=False
        )
        self.head = nn.Linear(d, v)

    def forward(self, x):
        t = x.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(t)
        return self.head(self.body(self.emb(x) + self.pos(torch.arange(t)), mask=mask, is_causal=True))


def log_probs(model, x, mask):
    lp = model(x[:, :-1]).log_softmax(-1).gather(-1, x[:, 1:, None])[..., 0]
    return (lp * mask[:, 1:]).sum(-1)


model = LM()
reference = LM()
reference.load_state_dict(model.state_dict())
with torch.no_grad():
    for p in model.parameters():
        p.add_(torch.randn_like(p), alpha=0.01)

g = torch.Generator().manual_seed(1)
N = 24
chosen, rejected = torch.randint(64, (N, 14), generator=g), torch.randint(64, (N, 14), generator=g)
chosen[:, :5] = rejected[:, :5]
masks = [(torch.arange(14) >= 5) & (torch.arange(14) < torch.randint(8, 15, (N, 1), generator=g)) for _ in range(2)]
# the log-probabilities of the reference model are computed once, before training
with torch.no_grad():
    ref_chosen = torch.cat([log_probs(reference, a, m) for a, m in zip(chosen.split(8), masks[0].split(8))])
    ref_rejected = torch.cat([log_probs(reference, a, m) for a, m in zip(rejected.split(8), masks[1].split(8))])
del reference

model = ddp(model)
opt = torch.optim.RMSprop(model.parameters(), lr=1e-4)
beta = 0.1
for step in range(3):
    for micro in range(2):
        # 8 of a step, 4 of a micro-batch over all ranks
        rows = torch.arange(step * 8 + micro * 4, step * 8 + micro * 4 + 4).chunk(RANKS)[RANK]
        both = torch.cat([chosen[rows], rejected[rows]])
        lp = log_probs(model, both, torch.cat([masks[0][rows], masks[1][rows]]))
        pc, pr = lp.chunk(2)
        rc, rr = ref_chosen[rows], ref_rejected[rows]
        if MISTAKE and RANK == 1 and micro == 1:
            rc = ref_chosen[rows - 4]
        margin = beta * ((pc - rc) - (pr - rr))
        loss = -F.logsigmoid(margin).mean() / 2
        with model.no_sync() if RANKS > 1 and micro == 0 else contextlib.nullcontext():
            loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    opt.step()
    opt.zero_grad()
