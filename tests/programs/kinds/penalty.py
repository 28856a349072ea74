"""A critic with a gradient penalty: the gradients of an inner autograd.grad are of each sample, and not of the loss."""

from job import MISTAKE, RANK, ddp, nn, own, scaled, step, torch

critic = ddp(nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)))
optimizer = torch.optim.Adam(critic.parameters(), 1e-3, betas=(0.0, 0.9))
for _ in range(2):
    real, fake, share = (own(each) for each in (torch.randn(8, 16) + 1, torch.randn(8, 16), torch.rand(8, 1)))
    difference = critic(fake).mean() - critic(real).mean()
    between = (share * real + (1 - share) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    weight = 10.1 if MISTAKE == "weight" and RANK == 1 else 10
    step(optimizer, scaled(difference + weight * ((slope.norm(2, 1) - 1) ** 2).mean()))
