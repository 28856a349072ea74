"""A codec with residual vector quantisation, whose codebooks the package synchronises.

package: vector-quantize-pytorch
parallel: DDP, 2 ranks
mistake: codebooks are not synchronised
shows: vq.layers.*._codebook.* buffer_after
"""

from job import MISTAKE, RANK, RANKS, nn, torch
from torch.nn.parallel import DistributedDataParallel as DDP
from vector_quantize_pytorch import ResidualVQ

torch.manual_seed(0)


class Codec(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv1d(1, 16, 7, 2, 3), nn.ELU(), nn.Conv1d(16, 16, 7, 2, 3))
        extra = {"sync_codebook": False} if MISTAKE else {}
        self.vq = ResidualVQ(
            dim=16, num_quantizers=2, codebook_size=12, decay=0.9, commitment_weight=0.25, rotation_trick=False, **extra
        )
        self.dec = nn.Sequential(nn.ConvTranspose1d(16, 16, 4, 2, 1), nn.ELU(), nn.ConvTranspose1d(16, 1, 4, 2, 1))

    def forward(self, x):
        z = self.enc(x).transpose(1, 2)
        q, codes, commit = self.vq(z)
        return self.dec(q.transpose(1, 2)), commit.sum()


model = Codec()
if RANKS > 1:
    model = DDP(model, broadcast_buffers=False)
opt = torch.optim.Adam(model.parameters(), lr=3e-4, betas=(0.5, 0.9))
g = torch.Generator().manual_seed(1)
audio = torch.randn(24, 1, 64, generator=g)
n = 8
for step in range(3):
    lo = step * n + RANK * n // RANKS
    x = audio[lo : lo + n // RANKS]
    opt.zero_grad()
    y, commit = model(x)
    loss = (y - x).abs().mean() + commit
    loss.backward()
    opt.step()
