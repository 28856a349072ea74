"""A convolutional VAE whose noise is drawn for the whole batch on every rank.

package: PyTorch
parallel: DDP, 2 ranks
mistake: rank 1 takes the noise of rank 0
shows: (model):1 input
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, nn, torch


class VAE(nn.Module):
    def __init__(self, latent=6):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1), nn.SiLU(), nn.Conv2d(8, 16, 4, 2, 1), nn.SiLU(), nn.Flatten()
        )
        self.mu, self.logvar = nn.Linear(16 * 9, latent), nn.Linear(16 * 9, latent)
        self.expand = nn.Linear(latent, 16 * 9)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.SiLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1))

    def forward(self, x, noise):
        h = self.encoder(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + noise * (0.5 * logvar).exp()
        y = self.decoder(F.silu(self.expand(z)).view(-1, 16, 3, 3))
        return y, mu, logvar


model = VAE()
model = ddp(model)
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
noise_rng = torch.Generator().manual_seed(77)
for step in range(3):
    x = torch.rand(12, 1, 12, 12, generator=torch.Generator().manual_seed(step)).chunk(RANKS)[RANK]
    noise = torch.randn(12, 6, generator=noise_rng)  # drawn for the whole batch on every rank
    noise = noise.chunk(RANKS)[0 if MISTAKE else RANK]
    y, mu, logvar = model(x, noise)
    reconstruction = F.binary_cross_entropy_with_logits(y, x, reduction="sum") / len(x)
    kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum() / len(x)
    loss = reconstruction + min(1.0, 0.1 * (step + 1)) * kl
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
