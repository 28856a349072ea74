"""../../megatron/train.py with experts that take as many tokens as they have room for, and are to take the first ones;
with --mended, they do."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "frameworks" / "megatron"))

import cuda_stand_in  # noqa: F401 - before megatron, whose modules take functions from what it replaces
import torch
import train
from megatron.core.transformer.moe import router
from megatron.core.transformer.moe.moe_utils import get_capacity

ASKED = "--layers 2 --experts 4 --config moe_expert_capacity_factor=1.0 --config moe_token_drop_policy=position"


def keep_the_first(
    routing_probs: torch.Tensor, routing_map: torch.Tensor, router_topk: int, capacity_factor: float, **_: object
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `apply_router_token_dropping`: [tokens, experts], with every expert's tokens beyond its capacity left out."""
    tokens, experts = routing_probs.shape
    capacity = get_capacity(tokens * router_topk, experts, capacity_factor)
    kept = routing_map & (routing_map.cumsum(0) <= capacity)
    return routing_probs * kept, kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("--mended", action="store_true")
    arguments, rest = parser.parse_known_args()
    sys.argv = [sys.argv[0], *ASKED.split(), *rest]
    if arguments.mended:
        router.apply_router_token_dropping = keep_the_first
    train.main()


if __name__ == "__main__":
    main()
