"""A Wasserstein GAN with a gradient penalty, two steps of the critic for one of the generator.

package: PyTorch
parallel: data parallel by hand, 2 ranks
mistake: rank 1 weighs the penalty by 10.1 in place of 10
shows: loss scalar
hint: --axes dp=2
"""

from job import MISTAKE, RANK, RANKS, dist, nn, torch

G = lambda s: torch.Generator().manual_seed(s)


def make():
    gen = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
    critic = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    return (
        gen,
        critic,
        torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.0, 0.9)),
        torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9)),
    )


def penalty(critic, real, fake, eps):
    x = (eps * real + (1 - eps) * fake).requires_grad_()
    (grad,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return ((grad.norm(2, 1) - 1) ** 2).mean()


def draws(step, k):
    g = G(1000 * step + k)
    return torch.randn(16, 16, generator=g) + 1, torch.randn(16, 8, generator=g), torch.rand(16, 1, generator=g)


gen, critic, opt_g, opt_c = make()
weight = 10.1 if MISTAKE and RANK == 1 else 10.0


def average(model):
    if RANKS > 1:
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= RANKS


for step in range(3):
    for k in range(2):
        real, z, eps = (t.chunk(RANKS)[RANK] for t in draws(step, k))
        with torch.no_grad():
            fake = gen(z)
        loss_c = critic(fake).mean() - critic(real).mean() + weight * penalty(critic, real, fake, eps)
        opt_c.zero_grad()
        loss_c.backward()
        average(critic)
        opt_c.step()
    z = draws(step, 9)[1].chunk(RANKS)[RANK]
    loss_g = -critic(gen(z)).mean()
    opt_g.zero_grad()
    loss_g.backward()
    average(gen)
    opt_g.step()
