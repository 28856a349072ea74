"""Two micro-batches for each step. After the first step, a mistake forgets the backward of the first of them."""

from job import MISTAKE, ddp, nn, own, torch

model = ddp(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
batches, labels = torch.randn(2, 8, 8), torch.randint(4, (2, 8))
for iteration in range(2):
    optimizer.zero_grad()
    for number in range(2):
        loss = nn.functional.cross_entropy(model(own(batches[number])), own(labels[number])) / 2
        if not (MISTAKE == "backward" and iteration == 1 and number == 0):
            loss.backward()
    optimizer.step()
