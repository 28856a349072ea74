"""A GAN that calls its discriminator through DDP in its own step, and without it in the generator's, which wants no
gradients of it. Its last bias has terms that nearly cancel."""

from job import MISTAKE, RANKS, ddp, nn, own, torch

generator = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 16))
judge = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
own_generator, own_judge = ddp(generator), ddp(judge)
bare_judge = own_judge.module if RANKS > 1 else judge
of_judge = torch.optim.Adam(judge.parameters(), 1e-3, betas=(0.5, 0.999))
of_generator = torch.optim.Adam(generator.parameters(), 1e-3, betas=(0.5, 0.999))
score = nn.functional.binary_cross_entropy_with_logits
for _ in range(2):
    real, noise = own(torch.randn(8, 16)), own(torch.randn(8, 8))
    fake = own_generator(noise)
    critic = bare_judge if MISTAKE == "judge" else own_judge
    both = critic(torch.cat([real, fake.detach()]))
    true, made = both.chunk(2)
    of_judge.zero_grad()
    (score(true, torch.ones_like(true)) + score(made, torch.zeros_like(made))).backward()
    of_judge.step()
    made = bare_judge(fake)
    of_generator.zero_grad()
    score(made, torch.ones_like(made)).backward()
    of_generator.step()
