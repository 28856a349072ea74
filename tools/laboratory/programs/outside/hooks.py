"""Gradients that hooks reduce as they arrive, where later steps lose a hook, parameters are unfrozen late or leave the
optimizer, and the program draws noise of its own."""

from job import MISTAKE, RANK, RANKS, nn, own, summed, torch


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(24, 16)
        self.fixed = nn.Linear(16, 16).requires_grad_(False)
        self.late = nn.Linear(16, 32)
        self.inner = nn.Linear(32, 32)
        self.head = nn.Linear(32, 24)

    def forward(self, tokens, noise):
        x = self.embed(tokens) + noise
        x = torch.tanh(self.late(x + self.fixed(x)))
        return self.head(torch.tanh(self.inner(x)))


model = Model()
trained = [parameter for name, parameter in model.named_parameters() if not name.startswith("fixed.")]
optimizer = torch.optim.AdamW(trained, 1e-2)
hooks = {}


def watch(name, parameter):
    hooks[name] = parameter.register_hook(lambda gradient: summed(gradient) / RANKS)


for name, parameter in model.named_parameters():
    if name.startswith("late."):  # trained from the second step on
        parameter.requires_grad_(False)
    elif parameter.requires_grad:
        watch(name, parameter)

generator = torch.Generator().manual_seed(7)
for step in range(3):
    tokens = torch.randint(24, (8, 12), generator=generator)
    noise = 0.1 * torch.randn(8, 11, 16, generator=generator)
    if step == 1:
        model.late.requires_grad_(MISTAKE != "unfrozen-too-late")
        for name in ("late.weight", "late.bias"):
            if model.late.weight.requires_grad and MISTAKE != "unfrozen-unreduced":
                watch(name, model.get_parameter(name))
        if MISTAKE == "hook-lost":
            hooks["inner.weight"].remove()
        if MISTAKE == "noise-again" and RANK == 1:
            noise = 0.1 * torch.randn(8, 11, 16, generator=generator)
        if MISTAKE == "another-parameter":  # as a move to a device makes one that the optimizer doesn't hold
            model.inner.bias = nn.Parameter(model.inner.bias.detach().clone())
            watch("inner.bias", model.inner.bias)
        if MISTAKE == "frozen-changes":
            with torch.no_grad():
                model.fixed.weight.mul_(0.999)
        if MISTAKE == "labels-not-shifted":
            tokens = torch.cat([tokens[:, :1], tokens[:, :-1]], 1)
    logits = model(own(tokens)[:, :-1], own(noise))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), own(tokens)[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
