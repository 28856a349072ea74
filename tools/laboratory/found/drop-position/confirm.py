"""Without ttrace: which of its tokens an expert of Megatron-core drops by position. python confirm.py"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "frameworks" / "megatron"))

import cuda_stand_in  # noqa: F401 - before megatron, which looks for a GPU
import torch
from megatron.core.transformer.moe.moe_utils import apply_router_token_dropping, get_capacity

TOKENS = 64


def main() -> None:
    chosen = torch.rand(TOKENS, 2, generator=torch.Generator().manual_seed(1)) < 0.75
    policy = {"router_topk": 1, "capacity_factor": 1.0, "drop_policy": "position"}
    _, kept = apply_router_token_dropping(chosen.float(), chosen, **policy)
    capacity = get_capacity(TOKENS, 2, 1.0)
    for expert in range(2):
        dropped = (chosen & ~kept)[:, expert].nonzero().flatten().tolist()
        last = chosen[:, expert].nonzero().flatten()[capacity:].tolist()
        print(f"expert {expert}, with room for {capacity} of {int(chosen[:, expert].sum())} tokens:")
        print(f"  drops {dropped}\n  the last ones are {last}")


if __name__ == "__main__":
    main()
