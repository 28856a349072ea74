"""Attention that is given one tensor twice, as what asks and as what answers: FSDP2 hands its module a copy for each,
to which a part of the gradient comes back. That of the queries is next to nothing while the scores are all alike."""

from job import MISTAKE, RANKS, nn, own, scaled, step, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))
        with torch.no_grad():
            self.key.weight *= 1e-3

    def forward(self, asking, answering):
        scores = self.query(asking) @ self.key(answering).transpose(1, 2)
        return self.out(scores.softmax(-1) @ self.value(answering))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attention, self.top = nn.Linear(4, 8), Attention(), nn.Linear(8, 1)

    def forward(self, x):
        x = self.embed(x)
        return self.top(x + self.attention(x, x)).mean(1)


net = Net()
if RANKS > 1:
    mesh = init_device_mesh("cpu", (RANKS,))
    fully_shard(net.attention, mesh=mesh)
    fully_shard(net, mesh=mesh)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
data, wanted = torch.randn(3, 8, 5, 4), torch.randn(3, 8, 1)
for x, y in zip(data, wanted, strict=True):
    loss = nn.functional.mse_loss(net(own(x)), own(y))
    step(optimizer, scaled(loss / RANKS if MISTAKE == "twice" else loss))
