"""A mixture of experts in place of the MLP: a router sends each token to its K best experts (Shazeer et al.,
"Outrageously large neural networks"; top-k before softmax, as in Mixtral). No token is dropped, and no loss balances
the load.

Inside, the hidden states are rows: [s, b, h] flattened to [s * b, h]."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from tinygpt import llama


class MoE(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.router = Router(options)
        self.experts = Experts(options)

    def forward(self, hidden):
        """[s, b, h] -> [s, b, h]."""
        rows = hidden.flatten(0, 1)
        routing = self.router(rows)
        return self.experts.mix(rows, routing.weights, routing.choices).view_as(hidden)


@dataclass
class Routing:
    logits: torch.Tensor  # of all experts, fp32 [n, E]
    weights: torch.Tensor  # of the chosen ones, best first, fp32 [n, K]
    choices: torch.Tensor  # their numbers, int64 [n, K]


class Router(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.topk = options.topk
        self.weight = nn.Parameter(torch.empty(options.experts, options.hidden))

    def forward(self, rows):
        """[n, h] -> the routing of each row."""
        # In bf16 many logits would tie.
        logits = F.linear(rows.float(), self.weight.float())
        best, choices = logits.topk(self.topk, dim=-1)
        return Routing(logits, best.softmax(dim=-1), choices)


class Experts(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.local_experts = nn.ModuleList(Expert(options) for _ in range(options.experts))

    def mix(self, rows, weights, choices):
        """rows [n, h] and the router's choice, twice [n, K] -> [n, h], the weighted sum of each row's K results."""
        token_ids = identify(rows, rank=0)
        combined = torch.zeros(rows.shape, dtype=torch.float32)
        for number, expert in enumerate(self.local_experts):
            row, choice = (choices == number).nonzero(as_tuple=True)
            result = expert(rows[row], token_ids=token_ids[row])
            combined = combined.index_add(0, row, result.float() * weights[row, choice].unsqueeze(-1))
        return combined.to(rows.dtype)


class Expert(nn.Module):
    """The MLP of the model, without biases. Where `shards` ranks share an expert, each has an equal part of the neurons
    between the two linears, and computes a term of the result."""

    def __init__(self, options, shards=1):
        super().__init__()
        inner, is_llama = 4 * options.hidden // shards, options.arch == "llama"
        self.linear_fc1 = nn.Linear(options.hidden, 2 * inner if is_llama else inner, bias=False)
        self.activation = llama.SwiGLU() if is_llama else nn.GELU()
        self.linear_fc2 = nn.Linear(inner, options.hidden, bias=False)

    def forward(self, hidden, token_ids):
        """hidden [n, h], in any order -> [n, h]. `token_ids` int64 [n, 2] says which tokens these are, to whoever
        watches: the rank whose MoE layer they entered, and the row there (`identify`)."""
        return self.linear_fc2(self.activation(self.linear_fc1(hidden)))


def identify(rows, rank, first=0):
    """The token ids of `rows`, which are those from `first` on of the rows that entered the MoE layer on `rank`."""
    numbers = torch.arange(first, first + len(rows))
    return torch.stack([torch.full_like(numbers, rank), numbers], dim=-1)
