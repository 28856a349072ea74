"""A module without parameters that is called before the model, in each of two micro-batches of a step; on two ranks
each has one of them."""

from job import MISTAKE, RANK, RANKS, ddp, nn, torch

front = nn.Softmax(-1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
wrapped = ddp(model)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(2):
    batches = torch.randn(2, 4, 8)
    for batch in batches.chunk(RANKS)[RANK]:
        if MISTAKE == "sample" and RANK == 1:
            batch[0] = batch[1]
        first, second = batch.chunk(2)
        loss = wrapped(torch.cat([front(first), front(second)])).square().mean()
        (loss / (2 // RANKS)).backward()
    optimizer.step()
    optimizer.zero_grad()
