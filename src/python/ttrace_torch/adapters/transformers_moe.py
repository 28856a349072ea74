"""Mixtures of experts of Hugging Face transformers.

The decorator `use_experts_implementation` puts its own forward into a class of experts. What is computed inside has a
row for each choice of a token, in the order of the experts or of the choices, as the implementation goes; under expert
parallelism there are rows of other ranks' tokens, and rows that count for nothing. So correct programs differ there.

A router returns its logits, the weights of the experts that it chose, and their numbers. Most choose by the logits. Of
one that adds a bias to its scores, or chooses among groups of experts, is recorded what it ranks the experts by, as
members of its output beside those:
- `:scores`, fp32 [tokens, experts], with the bias;
- `:groups`, int64 [3], where it chooses groups first: how many there are, how many of them a token goes to, and how
  many of a group's highest scores add up to the group's."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ..members import Member
from ..tensors import is_dtensor
from .adapter import Adapter

_EXPERTS = "transformers.integrations.moe"
_MODELS = "transformers.models."


class TransformersExperts(Adapter, module="transformers"):
    def are_experts(self, module_class: type) -> bool:
        return _are_experts(module_class)

    def exchanges_tokens(self, module: torch.nn.Module) -> bool:
        """So it is under expert parallelism."""
        if not _are_experts(type(module)) or "forward" not in vars(module):
            return False
        implementation = inspect.getclosurevars(module.forward).nonlocals.get("implementation")
        return not getattr(implementation, "shares_batch", True)

    def router_choice(self, module: torch.nn.Module, args: tuple, kwargs: dict, result: Any) -> list[Member]:
        """Empty unless the router ranks them by other numbers than its logits, in a way that is known here."""
        words = _words_of_router(type(module))
        if words is None or not isinstance(result, tuple) or len(result) < 3:
            return []
        logits, chosen = result[0], result[2]
        if not _are_rows(logits, chosen):
            return []
        bias, groups = _bias(module, args, kwargs, logits.shape[1]), _groups(module, words)
        score = _score_function(module, words)
        if score is None or (bias is None and groups is None):
            return []
        with torch.no_grad():
            scores = score(logits.float() if "float" in words else logits)
            scores = (scores if bias is None else scores + bias).float()
            if not _chooses(scores, groups, chosen):
                return []
        return [(":scores", scores), *([] if groups is None else [(":groups", torch.tensor(groups, device="cpu"))])]


@functools.cache
def _are_experts(module_class: type) -> bool:
    forwards = (vars(base).get("forward") for base in module_class.__mro__)
    return any(getattr(forward, "__globals__", {}).get("__name__") == _EXPERTS for forward in forwards)


class _Groups(NamedTuple):
    count: int
    chosen: int
    highest: int  # the scores of a group that add up to the group's


@functools.cache
def _words_of_router(module_class: type) -> frozenset[str] | None:
    """The names that a router's forward uses; None for any other class."""
    for base in module_class.__mro__:
        if base.__module__.startswith(_MODELS) and base.__name__.endswith("Router"):
            return frozenset(getattr(getattr(base.forward, "__code__", None), "co_names", ()))
    return None


def _are_rows(logits: Any, chosen: Any) -> bool:
    """Whether these are [tokens, experts] and int [tokens, choices], in this process's memory."""
    both = isinstance(logits, torch.Tensor) and isinstance(chosen, torch.Tensor)
    if not both or is_dtensor(logits) or is_dtensor(chosen):
        return False
    return logits.dim() == chosen.dim() == 2 and logits.is_floating_point() and not chosen.is_floating_point()


def _score_function(module: torch.nn.Module, words: frozenset[str]) -> Callable | None:
    if "score_fn" in words:
        return getattr(module, "score_fn", None)
    known = {"sigmoid": torch.sigmoid, "softmax": functools.partial(torch.softmax, dim=-1)}
    found = [function for name, function in known.items() if name in words]
    return found[0] if len(found) == 1 else None


def _bias(module: torch.nn.Module, args: tuple, kwargs: dict, experts: int) -> torch.Tensor | None:
    """The router's own, or the one that it was given."""
    values = (getattr(module, "e_score_correction_bias", None), *args[1:], *kwargs.values())
    found = [value for value in values if isinstance(value, torch.Tensor) and value.shape == (experts,)]
    return found[0] if found and not is_dtensor(found[0]) else None


def _groups(module: torch.nn.Module, words: frozenset[str]) -> _Groups | None:
    count, chosen = getattr(module, "num_group", None), getattr(module, "topk_group", None)
    is_limited = isinstance(count, int) and isinstance(chosen, int) and count > chosen
    if not is_limited or getattr(module, "topk_method", "") == "greedy":
        return None
    return _Groups(count, chosen, 1 if "max" in words else 2)


def _chooses(scores: torch.Tensor, groups: _Groups | None, chosen: torch.Tensor) -> bool:
    """Whether `chosen` are experts of the highest scores."""
    if groups is not None:
        of_group = scores.unflatten(-1, (groups.count, -1))
        totals = of_group.topk(groups.highest, dim=-1).values.sum(-1)
        best = torch.zeros_like(totals, dtype=torch.bool).scatter_(-1, totals.topk(groups.chosen, dim=-1).indices, True)
        scores = of_group.masked_fill(~best.unsqueeze(-1), float("-inf")).flatten(-2)
    lowest = scores.topk(chosen.shape[-1], dim=-1).values.amin(-1, keepdim=True)
    return bool((scores.gather(-1, chosen.long()) >= lowest).all())
