"""ELECTRA: a generator fills masks in, and a discriminator tells what was replaced.

package: PyTorch
parallel: DDP, 2 ranks
mistake: rank 1 samples by the draws of rank 0
shows: model1.(model) input
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, nn, torch
from torch.nn.parallel import DistributedDataParallel as DDP


class MLM(nn.Module):
    """ELECTRA: a small generator fills masks in, a discriminator tells what was replaced."""

    def __init__(self, v, d, out):
        super().__init__()
        self.emb, self.pos = nn.Embedding(v, d), nn.Embedding(16, d)
        self.body = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d, 2, 2 * d, 0.0, "gelu", batch_first=True), 1, enable_nested_tensor=False
        )
        self.head = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.LayerNorm(d), nn.Linear(d, out))

    def forward(self, x):
        return self.head(self.body(self.emb(x) + self.pos.weight[: x.shape[1]]))


V = 48
generator, discriminator = MLM(V, 16, V), MLM(V, 32, 1)
both = list(generator.parameters()) + list(discriminator.parameters())
if RANKS > 1:
    generator, discriminator = DDP(generator), DDP(discriminator)
opt = torch.optim.AdamW(both, lr=1e-3)
data = torch.randint(1, V, (64, 12), generator=torch.Generator().manual_seed(5))
torch.manual_seed(7)
N = 8
for step in range(3):
    # every rank draws for the whole batch, and takes its part, so that the numbers are those of one process
    rows = torch.randint(64, (N,))
    masked = torch.rand(N, 12) < 0.3
    noise = torch.empty(N, 12, V).exponential_()
    mine = torch.arange(N).chunk(RANKS)[RANK]
    x, m, e = data[rows][mine], masked[mine], noise[mine]
    if MISTAKE and RANK == 1:
        e = noise[torch.arange(N).chunk(RANKS)[0]]  # the other rank's draws
    logits = generator(x.masked_fill(m, 0))
    lm = (
        (F.cross_entropy(logits.flatten(0, 1), x.flatten(), reduction="none") * m.flatten()).sum()
        / masked.sum()
        * RANKS
    )
    sampled = (logits.detach().softmax(-1) / e).argmax(-1)
    fake = torch.where(m, sampled, x)
    found = discriminator(fake)[..., 0]
    loss = lm + 50 * F.binary_cross_entropy_with_logits(found, (fake != x).float())
    opt.zero_grad()
    loss.backward()
    opt.step()
