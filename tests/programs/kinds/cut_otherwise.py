"""A batch that several ranks run in micro-batches, and one process in one piece: who saves memory does so."""

from job import MISTAKE, RANK, RANKS, ddp, nn, own, scaled, torch

model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
net, criterion = ddp(model), nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
pieces = 1 if RANKS == 1 else 2
for _ in range(2):
    samples, labels = own(torch.randn(8, 16)).chunk(pieces), own(torch.randint(4, (8,))).chunk(pieces)
    optimizer.zero_grad()
    for piece, (inputs, wanted) in enumerate(zip(samples, labels, strict=True)):
        if MISTAKE == "dropped" and piece == 1:
            break
        loss = scaled(criterion(net(inputs), wanted))
        (loss if MISTAKE == "divisor" else loss / pieces).backward()
    if MISTAKE == "weight" and RANK == 1:
        with torch.no_grad():
            model[0].weight[0] *= 1.01
    optimizer.step()
