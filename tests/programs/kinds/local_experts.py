"""Experts that each rank numbers from 0, a part of the reference's. All ranks have all tokens; with "dealt" each has
its own samples, and all-to-all takes tokens to experts. With "upcycled" all experts begin as copies of one layer."""

import sys

from job import MISTAKE, RANK, RANKS, Copy, Sum, dist, nn, own, scaled, torch

EXPERTS = 4
OWN = EXPERTS // RANKS
DEALT = "dealt" in sys.argv and RANKS > 1


class Exchange(torch.autograd.Function):
    """Sends each rank its part of the rows."""

    @staticmethod
    def forward(context, rows, sent, got):
        context.counts = sent, got
        result = rows.new_empty(sum(got), *rows.shape[1:])
        dist.all_to_all_single(result, rows.contiguous(), got, sent)
        return result

    @staticmethod
    def backward(context, gradient):
        sent, got = context.counts
        return Exchange.apply(gradient, got, sent), None, None


def expert():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(16, EXPERTS)
        experts = [expert() for _ in range(EXPERTS)]
        if "upcycled" in sys.argv:
            for other in experts[1:]:
                other.load_state_dict(experts[0].state_dict())
        first = 0 if MISTAKE == "start" else RANK * OWN
        self.experts = nn.ModuleList(experts[first : first + OWN])

    def here(self, x, choice):
        """What this rank's experts make of the tokens that chose them."""
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            place = RANK if MISTAKE != "offset" else RANKS - 1 - RANK
            chosen = choice == place * OWN + number
            result = result.masked_scatter(chosen[..., None].expand_as(x), expert(x[chosen]))
        return result

    def there(self, x, choice):
        """What the experts make of the tokens, wherever these are."""
        tokens, choice = x.flatten(0, -2), choice.flatten()
        order = choice.argsort(stable=True)
        sent = torch.bincount(choice // OWN, minlength=RANKS)
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent)
        counts = sent.tolist(), got.tolist()
        rows = Exchange.apply(tokens[order], *counts)
        choices = Exchange.apply(choice[order], *counts)
        rows = Exchange.apply(self.here(rows, choices), *counts[::-1])
        return torch.zeros_like(tokens).index_copy(0, order, rows).view_as(x)

    def forward(self, x):
        weight, choice = self.router(x).softmax(-1).max(-1)
        made = self.there(x, choice) if DEALT else Sum.apply(self.here(Copy.apply(x), choice))
        return made * weight[..., None]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.moe = nn.LayerNorm(16), Mixture()

    def forward(self, x):
        return x + self.moe(self.norm(x))


model = nn.Sequential(nn.Linear(8, 16), Layer(), Layer(), nn.Linear(16, 8))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(2):
    batch, targets = torch.randn(4, 6, 8), torch.randn(4, 6, 8)
    if DEALT:
        batch, targets = own(batch), own(targets)
    loss = scaled(nn.functional.mse_loss(model(batch), targets))
    optimizer.zero_grad()
    loss.backward()
    if DEALT:
        for name, parameter in model.named_parameters():
            if "experts" not in name:
                dist.all_reduce(parameter.grad)
            parameter.grad /= RANKS
    optimizer.step()
