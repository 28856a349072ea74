"""Each rank's optimizer holds half of the parameters and hands what it has stepped to the other (ZeRO-1), by
hand."""

from job import MISTAKE, RANK, RANKS, dist, nn, own, summed, torch

model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
named = list(model.named_parameters())
mine = [parameter for number, (_, parameter) in enumerate(named) if number % RANKS == RANK]
optimizer = torch.optim.Adam(mine, 1e-2)

for step in range(3):
    x, labels = torch.randn(8, 16), torch.randint(4, (8,))
    nn.functional.cross_entropy(model(own(x)), own(labels)).backward()
    for _, parameter in named:
        parameter.grad = summed(parameter.grad) / RANKS
    if step == 1 and MISTAKE == "state-of-another" and RANK == 0:
        state = optimizer.state
        first, second = model[0].weight, model[2].weight
        state[first]["exp_avg_sq"] = state[second]["exp_avg_sq"][:, :16].clone()
    if step == 1 and MISTAKE == "step-count" and RANK == 1:
        for held in optimizer.state.values():
            held["step"].zero_()
    optimizer.step()
    for number, (name, parameter) in enumerate(named if RANKS > 1 else []):
        is_lost = name == "2.weight" and (step, MISTAKE) in ((1, "not-handed-on"), (2, "last-not-handed-on"))
        if not is_lost:
            dist.broadcast(parameter.detach(), number % RANKS)
    if MISTAKE == "stale" and step == 0 and RANK == 1:
        stale = model[2].weight.detach().clone()
    if MISTAKE == "stale" and step == 1 and RANK == 1:
        with torch.no_grad():  # of the step before
            model[2].weight.copy_(stale)
    for parameter in model.parameters():
        parameter.grad = None
