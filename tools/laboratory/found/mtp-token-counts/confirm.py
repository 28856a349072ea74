"""Without ttrace: what each counted token weighs in the gradient of the loss of further tokens, on two ranks that count
eight tokens and two. torchrun --standalone --nproc-per-node 2 confirm.py"""

import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "frameworks" / "megatron"))

import cuda_stand_in  # noqa: F401 - before megatron, which looks for a GPU
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.transformer.multi_token_prediction import process_mtp_loss

TOKENS, COUNTED = 8, (8, 2)


def main() -> None:
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    rank = dist.get_rank()
    mask = (torch.arange(TOKENS) < COUNTED[rank]).float()[None]
    further = torch.zeros(TOKENS, 1, 1, requires_grad=True)  # hidden states, of which the loss is the first element
    hidden = process_mtp_loss(
        hidden_states=torch.cat([torch.zeros(TOKENS, 1, 1), further]),
        labels=torch.zeros(1, TOKENS, dtype=torch.long),
        loss_mask=mask,
        output_layer=lambda states, **_: (states, None),
        output_weight=None,
        runtime_gather_output=None,
        is_training=False,
        compute_language_model_loss=lambda _, logits: logits[:, :, 0].transpose(0, 1),
        config=SimpleNamespace(
            mtp_num_layers=1, mtp_detach_heads=False, mtp_loss_scaling_factor=1.0, calculate_per_token_loss=True
        ),
        cp_group=None,
    )
    hidden.sum().backward()
    weights = further.grad.flatten() / sum(COUNTED)  # what finalize_model_grads divides by
    said = [torch.zeros(TOKENS) for _ in COUNTED]
    dist.all_gather(said, weights)
    if rank == 0:
        right = 1 / sum(count - 1 for count in COUNTED)
        for other, each in enumerate(said):
            weight = float(each.max())
            print(f"rank {other}: a further token weighs {weight:.4f}; in their mean over all ranks {right:.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
