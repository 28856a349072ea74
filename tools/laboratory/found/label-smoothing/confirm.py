"""Without ttrace: the loss of a token and the gradient of its logits, by Megatron-core's cross-entropy with smoothed
labels on two ranks, and by the formula in its comment. torchrun --standalone --nproc-per-node 2 confirm.py"""

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy

LABELS, SMOOTHING, LABEL = 8, 0.1, 1


def main() -> None:
    dist.init_process_group("gloo")
    ranks, rank = dist.get_world_size(), dist.get_rank()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=ranks)
    whole = torch.randn(LABELS, generator=torch.Generator().manual_seed(1))
    own = slice(rank * LABELS // ranks, (rank + 1) * LABELS // ranks)
    logits = whole[own].view(1, 1, -1).clone().requires_grad_()
    loss = vocab_parallel_cross_entropy(logits.clone(), torch.tensor([[LABEL]]), label_smoothing=SMOOTHING)
    loss.sum().backward()

    known = whole.clone().requires_grad_()
    wanted = torch.full((LABELS,), SMOOTHING / (LABELS - 1))
    wanted[LABEL] = 1 - SMOOTHING
    right = -(wanted * known.log_softmax(-1)).sum()
    right.backward()
    said = [None] * ranks
    dist.all_gather_object(said, (loss.item(), logits.grad.flatten().tolist()))
    if rank == 0:
        print("loss of each rank", ", ".join(f"{one:.6f}" for one, _ in said), f"; by the formula {float(right):.6f}")
        gradients = torch.tensor([each for _, one in said for each in one])
        print(f"gradients are off by {float((gradients - known.grad).norm() / known.grad.norm()):.4f} of their norm")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
