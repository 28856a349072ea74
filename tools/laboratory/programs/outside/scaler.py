"""A gradient scaler, which skips steps whose gradients overflow, beside a compression of gradients that keeps its error
for the next step and a clipping that follows the norms of steps before."""

from job import MISTAKE, RANK, RANKS, nn, own, summed, torch

model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
scale = 1024.0
typical = None  # norm of gradients
errors = [torch.zeros_like(parameter) for parameter in model.parameters()]


def compressed(number, gradient):
    """What is sent of a gradient, 1 of 256 steps of its largest element; what is left is sent with the next."""
    total = gradient + errors[number]
    unit = total.abs().max() / 256
    sent = torch.round(total / unit) * unit
    errors[number] = total - sent if MISTAKE != "error-forgotten" else torch.zeros_like(total)
    return sent


for step in range(3):
    x, labels = torch.randn(8, 16), torch.randint(4, (8,))
    optimizer.zero_grad()
    (nn.functional.cross_entropy(model(own(x)), own(labels)) * scale).backward()
    grown = 2 * scale if step == 0 else scale
    if MISTAKE == "unscaled-by-the-next" and step == 0:
        scale = grown
    for number, parameter in enumerate(model.parameters()):
        whole = summed(parameter.grad) / RANKS / scale
        parameter.grad = compressed(number, whole)
    norm = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
    limit = norm if typical is None else typical
    if MISTAKE == "limit-of-rank-1" and RANK == 1 and step == 1:
        limit = limit / 2
    for parameter in model.parameters():
        parameter.grad *= min(1.0, float(limit / norm))
    typical = 0.9 * limit + 0.1 * norm
    if MISTAKE == "momentum-lost" and step == 1:
        for held in optimizer.state.values():
            held["momentum_buffer"].zero_()
    is_skipped = MISTAKE == "skipped-on-rank-1" and RANK == 1 and step == 1
    if not is_skipped:
        optimizer.step()
    scale = grown
