"""An average of weights that begins with the second step (SWA), a tied head, a temperature that is clamped, and a
curriculum that counts tokens."""

from job import MISTAKE, RANK, RANKS, nn, own, summed, torch
from torch.optim.swa_utils import AveragedModel


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(24, 16)
        self.inner = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 24, bias=False)
        self.head.weight = self.embed.weight
        self.log_scale = nn.Parameter(torch.tensor(2.3))

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.log_scale.exp() * nn.functional.normalize(self.head(x + self.inner(x)), dim=-1)


model = Tied()
averaged = AveragedModel(model)
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
count = None
for step in range(3):
    tokens, length = torch.randint(24, (8, 13)), 6 + 3 * step  # a curriculum of longer samples
    tokens = own(tokens[:, : length + 1])
    logits = model(tokens[:, :-1])
    if not (MISTAKE == "count-of-first-step" and count):
        count = 8 * length
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum") * RANKS / count
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        parameter.grad = summed(parameter.grad) / RANKS
    optimizer.step()
    with torch.no_grad():
        largest = 2.28 if MISTAKE == "clamped-on-rank-1" and RANK == 1 else 2.285
        model.log_scale.clamp_(max=largest)
    if MISTAKE == "untied" and step == 0:
        model.head.weight = nn.Parameter(model.head.weight.detach().clone())
        optimizer.add_param_group({"params": [model.head.weight]})
    if step >= (2 if MISTAKE == "average-begins-late" else 1):
        averaged.update_parameters(model)
    if MISTAKE == "average-counts-twice" and step == 1:
        averaged.n_averaged += 1
