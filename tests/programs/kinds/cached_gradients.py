"""A contrastive loss over a batch that does not fit: each micro-batch runs without gradients, the loss of all
representations gives each its gradient, and a second run takes that back to the parameters (GradCache)."""

from job import MISTAKE, RANK, RANKS, gathered, nn, own, scaled, summed, torch

model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 8))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)


def contrastive(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(left @ right.T, torch.arange(len(left)))


for _ in range(2):
    views = torch.randn(8, 2, 12)
    optimizer.zero_grad()
    if RANKS == 1:
        contrastive(*model(views).unbind(1)).backward()
    else:
        pieces = own(views).split(2)
        with torch.no_grad():
            mine = torch.cat([model(piece) for piece in pieces])
        cached = gathered(mine).requires_grad_()
        scaled(contrastive(*cached.unbind(1))).backward()
        gradients = own(cached.grad).split(2)
        for i, piece in enumerate(pieces):
            gradient = gradients[0 if MISTAKE == "first" and RANK == 1 else i]
            torch.autograd.backward(model(piece), gradient)
        for parameter in model.parameters():
            parameter.grad = summed(parameter.grad)
    optimizer.step()
