"""A generator and a discriminator that step in turn, each with an optimizer and a wrapper of its own."""

from job import MISTAKE, RANK, RANKS, ddp, nn, own, summed, torch


class Normalized(nn.Module):
    """Keeps the mean of what all ranks have seen."""

    def __init__(self, size, is_shared):
        super().__init__()
        self.is_shared = is_shared
        self.register_buffer("mean", torch.zeros(size))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                mean = x.detach().mean(0)
                self.mean.lerp_(summed(mean) / RANKS if self.is_shared else mean, 0.1)
        return x - self.mean


generator = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 16))
judge = nn.Sequential(
    nn.Linear(16, 32), Normalized(32, MISTAKE != "second-models-buffer"), nn.LeakyReLU(0.2), nn.Linear(32, 1)
)
own_generator = generator if MISTAKE == "second-not-averaged" else ddp(generator)
own_judge = ddp(judge)
of_judge = torch.optim.Adam(judge.parameters(), 1e-3, betas=(0.5, 0.999))
of_generator = torch.optim.Adam(generator.parameters(), 2e-3 if MISTAKE == "second-rate" else 1e-3, betas=(0.5, 0.999))
score = nn.functional.binary_cross_entropy_with_logits
for step in range(3):
    real, noise = own(torch.randn(8, 16)), own(torch.randn(8, 8))
    fake = own_generator(noise)
    true, made = own_judge(real), own_judge(fake.detach())
    loss = score(true, torch.ones_like(true)) + score(made, torch.zeros_like(made))
    of_judge.zero_grad()
    loss.backward()
    of_judge.step()
    made = own_judge(fake)
    loss = score(made, torch.ones_like(made))
    if MISTAKE != "second-accumulates":
        of_generator.zero_grad()
    loss.backward()
    if MISTAKE == "second-scaled" and RANK == 1:
        generator[0].weight.grad *= 1.005
    if MISTAKE == "second-never-steps":
        continue
    if MISTAKE == "second-skips-later" and step == 1:
        continue
    of_generator.step()
    if MISTAKE == "second-differs-later" and step == 1 and RANK == 1:
        with torch.no_grad():
            generator[2].weight.mul_(1.001)
