"""The encoder is frozen in the first step; with it trained, DistributedDataParallel is made anew."""

from job import MISTAKE, ddp, nn, own, scaled, torch

encoder, head = nn.Linear(16, 32), nn.Linear(32, 4)
model = nn.Sequential(encoder, nn.Tanh(), head)
encoder.requires_grad_(False)
net = ddp(model)
optimizer = torch.optim.SGD(head.parameters(), 0.1)
for step in range(3):
    if step == 1:
        encoder.requires_grad_(True)
        optimizer.add_param_group({"params": list(encoder.parameters())})
        if MISTAKE != "kept":
            net = ddp(model)
    x, labels = torch.randn(8, 16), torch.randint(4, (8,))
    optimizer.zero_grad()
    scaled(nn.functional.cross_entropy(net(own(x)), own(labels))).backward()
    optimizer.step()
