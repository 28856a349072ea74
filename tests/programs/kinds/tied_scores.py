"""Experts that choose the tokens of all ranks with the largest scores; some tokens, and their scores, are the same."""

from job import MISTAKE, ddp, gathered, nn, own, scaled, step, torch


class Chosen(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.router = nn.Embedding(32, 16), nn.Linear(16, 2, bias=False)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.head = nn.Linear(16, 4)

    def forward(self, tokens):
        x = self.embed(tokens)
        scores = self.router(x).softmax(-1)
        every = scores.detach() if MISTAKE == "own" else gathered(scores.detach())
        chosen = torch.zeros_like(every)
        chosen.scatter_(0, every.topk(len(every) // 2, 0).indices, 1)
        if MISTAKE != "own":
            chosen = own(chosen)
        for number, expert in enumerate(self.experts):
            x = x + (chosen * scores)[:, number, None] * expert(x)
        return self.head(x.tanh())


model = ddp(Chosen())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    tokens, labels = torch.randint(1, 32, (16,)), torch.randint(4, (16,))
    tokens[::2] = 0
    step(optimizer, scaled(nn.functional.cross_entropy(model(own(tokens)), own(labels))))
