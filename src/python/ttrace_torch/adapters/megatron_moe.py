"""Megatron-core's mixture of experts: what its layers keep to themselves, for `rows` of the annotations.

Which tokens an expert gets follows from the routers' outputs (`mlp.router:1` says of each token to which experts it
goes) and from whose tokens they are: a dispatcher puts them in the order of the ranks, and those of one rank in their
own order. Recorded are the ranks, as the input `mlp.experts:sources`, int64 [ranks], and of the router
- `mlp.router:logits`, the gate's, [tokens, batch, experts];
- `mlp.router:scores`, fp32 of the same shape, by which it ranks experts in groups or with a bias, unless that is the
  logits;
- `mlp.router:groups`, int64 [3]: the groups of experts, how many of them a token goes to, and how many experts add up
  to a group's score.
No rank asks another for any of this."""

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .. import patches
from .adapter import Adapter, Level, Record

if TYPE_CHECKING:
    from megatron.core.transformer.moe.token_dispatcher import MoETokenDispatcher


class MegatronExperts(Adapter, module="megatron.core.transformer.moe.moe_layer", level=Level.PROGRAM):
    def record_inside(self, record_input: Record, record_output: Record) -> None:
        moe_layer = sys.modules[self.module]

        def sources(layer: torch.nn.Module, *_: Any) -> None:
            record_input(".experts:sources", lambda: _source_ranks(layer.token_dispatcher))

        def choice(router: torch.nn.Module, logits: torch.Tensor, *_: Any) -> None:
            record_output(":logits", lambda: logits)
            record_output(":scores", lambda: _scores(router, logits))
            record_output(":groups", lambda: _groups(router))

        layer_class, router = moe_layer.MoELayer, moe_layer.TopKRouter
        computes = next(name for name in _COMPUTES_EXPERTS if hasattr(layer_class, name))
        patches.replace(layer_class, computes, _after(sources, getattr(layer_class, computes)))
        patches.replace(router, "routing", _after(choice, router.routing))


# Methods of the layer in which it calls its experts: the first that it has is the innermost.
_COMPUTES_EXPERTS = ("routed_experts_compute", "experts_compute", "forward")


def _after(first: Callable, method: Callable) -> Callable:
    @functools.wraps(method)
    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        first(self, *args)
        return method(self, *args, **kwargs)

    return patched


def _source_ranks(dispatcher: "MoETokenDispatcher") -> torch.Tensor | None:
    """The ranks whose tokens each expert of this rank gets, int64, in the order in which they lie; None where that is
    not known, or the dispatcher adds rows of padding."""
    kind, config = type(dispatcher).__name__, dispatcher.config
    paddings = ("moe_router_padding_for_quantization", "moe_router_padding_for_fp8")  # the second up to 0.13
    if kind not in _DISPATCHERS or any(getattr(config, padding, False) for padding in paddings):
        return None
    if dispatcher.tp_ep_group is None:
        return torch.tensor([torch.distributed.get_rank()], device="cpu")
    ranks = torch.distributed.get_process_group_ranks(dispatcher.tp_ep_group)
    by_ep = torch.tensor(ranks, device="cpu").view(dispatcher.ep_size, dispatcher.tp_size)
    return _DISPATCHERS[kind](by_ep).reshape(-1)


def _ranks_by_scores(router: torch.nn.Module) -> bool:
    """Whether its choice is that of the highest scores, of experts in groups or with a bias, and follows from nothing
    else that is known here."""
    config = router.config
    if not config.moe_router_group_topk and getattr(router, "expert_bias", None) is None:
        return False
    is_by_scores = router.routing_type not in ("sinkhorn", "quantile_balancing")
    is_known = router.score_function in ("softmax", *_SCORES)
    # Tokens may be dropped after the choice, and a choice may be one of an earlier run.
    drops, replays = config.moe_expert_capacity_factor is not None, getattr(router, "router_replay", None) is not None
    return is_by_scores and is_known and not drops and not replays


@torch.no_grad()
def _scores(router: torch.nn.Module, logits: torch.Tensor) -> torch.Tensor | None:
    """What topk_routing_with_score_function ranks experts by; None where these are the logits."""
    if not _ranks_by_scores(router):
        return None
    if router.score_function == "softmax":
        return torch.softmax(logits.float(), -1) if router.config.moe_router_pre_softmax else None
    scores, bias = _SCORES[router.score_function](logits.float()), getattr(router, "expert_bias", None)
    return scores if bias is None else scores + bias.float()


_SCORES = {"sigmoid": torch.sigmoid, "sqrtsoftplus": lambda logits: torch.nn.functional.softplus(logits).sqrt()}


def _groups(router: torch.nn.Module) -> torch.Tensor | None:
    """The groups of group_limited_topk; None where it does not choose by any."""
    chosen = router.config.moe_router_group_topk
    if not chosen or not _ranks_by_scores(router):
        return None
    return torch.tensor([router.config.moe_router_num_groups, chosen, router.topk // chosen], device="cpu")


# The order of the ranks, given them as [ep, etp].
_DISPATCHERS = {
    "MoEAllGatherTokenDispatcher": lambda ranks: ranks,
    # An all-to-all over ep, and then what came to each of etp is gathered.
    "MoEAlltoAllTokenDispatcher": lambda ranks: ranks.T,
}
