"""One step of a model with a mixture of experts as transformers has them: modules that go by the names of its own say
what those say. All sums are exact, whatever the order of the rows."""

import argparse
import functools
import sys
import types

import torch
from torch import nn

EXPERTS, TOKENS, HIDDEN = 4, 6, 3


def module_named(name: str, text: str) -> types.ModuleType:
    module = sys.modules[name] = types.ModuleType(name)
    exec(text, vars(module))
    return module


sys.modules["transformers"] = types.ModuleType("transformers")
moe = module_named(
    "transformers.integrations.moe",
    """
def use_experts_implementation(experts_class):
    original = experts_class.forward

    def forward(self, *args):
        return original(self, *args)

    experts_class.forward = forward
    return experts_class
""",
)
modeling = module_named(
    "transformers.models.some.modeling_some",
    """
import torch

class Router(torch.nn.Module):
    def __init__(self, hidden, experts):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(1.0 * experts * hidden).reshape(experts, hidden) % 5 - 2)

    def choose(self, logits, scores):
        chosen = scores.topk(2, dim=-1, sorted=False).indices
        return logits, torch.full(chosen.shape, 0.5), chosen

class TopKRouter(Router):
    def forward(self, hidden_states):
        logits = hidden_states @ self.weight.T
        return self.choose(logits, logits.softmax(-1))

class BiasedRouter(Router):
    def __init__(self, hidden, experts):
        super().__init__(hidden, experts)
        self.e_score_correction_bias = torch.nn.Buffer(torch.tensor([0.0, 0.5, 0.25, -0.5]))

    def forward(self, hidden_states):
        logits = hidden_states @ self.weight.T
        return self.choose(logits, logits.sigmoid() + self.e_score_correction_bias)

class GivenBiasRouter(Router):
    def forward(self, hidden_states, expert_bias):
        logits = hidden_states @ self.weight.T
        return self.choose(logits, logits.sigmoid() + expert_bias)

class UnknownRouter(BiasedRouter):
    def forward(self, hidden_states):
        logits = hidden_states @ self.weight.T
        logits, weights, chosen = self.choose(logits, logits + 8 * self.e_score_correction_bias)
        return logits, weights * logits.gather(1, chosen).detach().sigmoid().ceil(), chosen

class GroupedRouter(BiasedRouter):
    num_group, topk_group = 2, 1

    def forward(self, hidden_states):
        logits = hidden_states @ self.weight.T
        scores = logits.sigmoid() + self.e_score_correction_bias
        first = scores[:, :2].sum(-1) > scores[:, 2:].sum(-1)
        mask = torch.stack([first, first, ~first, ~first], -1)
        return self.choose(logits, scores.masked_fill(~mask, float("-inf")))
""",
)


class Experts(nn.Module):
    def __init__(self, order: str, wrong: bool):
        super().__init__()
        self.order, self.wrong = order, wrong
        self.up_proj = nn.Parameter(torch.arange(1.0, EXPERTS + 1).unsqueeze(-1).repeat(1, HIDDEN))
        self.act_fn = nn.ReLU()

    def forward(self, hidden_states, top_k_index, top_k_weights):
        expert = top_k_index.flatten()
        rows = expert.argsort(stable=True) if self.order == "experts" else torch.arange(len(expert))
        inside = self.act_fn(hidden_states[rows // 2] * self.up_proj[expert[rows]])
        of_choice = inside[rows.argsort()].view(*top_k_index.shape, HIDDEN)
        return (of_choice * top_k_weights.unsqueeze(-1)).sum(1) * (2 if self.wrong else 1)


class Layer(nn.Module):
    def __init__(self, arguments: argparse.Namespace):
        super().__init__()
        self.gate = getattr(modeling, arguments.router)(HIDDEN, EXPERTS)
        kind = Experts if arguments.own else moe.use_experts_implementation(Experts)
        self.experts = kind(arguments.order, arguments.wrong)
        if arguments.ranks:
            self.experts.forward = expert_parallel(self.experts.forward, arguments.ranks)

    def forward(self, x):
        given = [torch.tensor([0.0, 0.5, 0.25, -0.5])] if isinstance(self.gate, modeling.GivenBiasRouter) else []
        logits, weights, chosen = self.gate(x, *given)
        return self.experts(x, chosen, weights) + logits.sum()


def expert_parallel(forward, ranks: str):
    """As transformers puts its own in the place of a module's forward."""
    implementation = types.SimpleNamespace(shares_batch=ranks == "sharing", run=forward)

    @functools.wraps(forward)
    def ep_forward(*args):
        return implementation.run(*args)

    return ep_forward


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--router", default="TopKRouter")
    parser.add_argument("--order", choices=("experts", "choices"), default="experts")
    parser.add_argument("--own", action="store_true", help="experts of a class that transformers knows nothing of")
    parser.add_argument(
        "--ranks", choices=("sharing", "exchanging"), help="expert parallelism: what ranks do with tokens"
    )
    parser.add_argument("--wrong", action="store_true", help="experts give twice what they should")
    model = Layer(parser.parse_args())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    x = (torch.arange(TOKENS * HIDDEN).reshape(TOKENS, HIDDEN) * 7 % 11 - 5.0).requires_grad_()
    model(x).sum().backward()
    optimizer.step()


if __name__ == "__main__":
    main()
