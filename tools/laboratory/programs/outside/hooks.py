"""Gradients that hooks reduce as they arrive, where later steps lose a hook, parameters are unfrozen late or leave the
optimizer, and the program draws noise of its own."""

from job import MISTAKE, RANK, RANKS, nn, own, summed, torch

layers = [nn.Embedding(24, 16), nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 24)]
model = nn.Sequential(*layers)
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
hooks = {}
frozen = nn.Linear(16, 16).requires_grad_(False)


def watch(name, parameter):
    hooks[name] = parameter.register_hook(lambda gradient: summed(gradient) / RANKS)


for name, parameter in model.named_parameters():
    is_late = name.startswith("1.")
    parameter.requires_grad_(not is_late)  # the second layer is trained from the second step on
    if not is_late:
        watch(name, parameter)

generator = torch.Generator().manual_seed(7)
for step in range(3):
    tokens = torch.randint(24, (8, 12), generator=generator)
    noise = 0.1 * torch.randn(8, 11, 16, generator=generator)
    if step == 1:
        model[1].requires_grad_(MISTAKE != "unfrozen-too-late")
        for name in ("1.weight", "1.bias"):
            if model[1].weight.requires_grad and MISTAKE != "unfrozen-unreduced":
                watch(name, model.get_parameter(name))
        if MISTAKE == "hook-lost":
            hooks["3.weight"].remove()
        if MISTAKE == "noise-again" and RANK == 1:
            noise = 0.1 * torch.randn(8, 11, 16, generator=generator)
        if MISTAKE == "another-parameter":  # as a move to a device makes one that the optimizer doesn't hold
            model[3].bias = nn.Parameter(model[3].bias.detach().clone())
            watch("3.bias", model[3].bias)
        if MISTAKE == "frozen-changes":
            with torch.no_grad():
                frozen.weight.mul_(0.999)
        if MISTAKE == "labels-not-shifted":
            tokens = torch.cat([tokens[:, :1], tokens[:, :-1]], 1)
    x = model[0](own(tokens)[:, :-1]) + own(noise)
    x = x + frozen(x)
    loss = nn.functional.cross_entropy(model[1:](x).flatten(0, 1), own(tokens)[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
