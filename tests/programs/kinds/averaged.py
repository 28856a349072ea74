"""Data parallelism by hand: micro-batches dealt out, a loss that is multiplied by the ranks, gradients averaged."""

from job import MISTAKE, RANK, RANKS, dist, nn, scaled, torch

model = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 50))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(2):
    tokens = torch.randint(50, (4, 2, 9))
    optimizer.zero_grad()
    for batch in tokens[RANK::RANKS]:
        total = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten(), reduction="sum")
        loss = total / tokens[..., 1:].numel()
        scaled(loss if MISTAKE == "ranks" else loss * RANKS).backward()
    if RANKS > 1:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= RANKS
    optimizer.step()
