"""A causal language model of ring-attention-pytorch, whose ranks share the batch outside and the sequence inside of it.

`--mend` mends what tools/laboratory/found tells of in the package: `gather`, the gradient of its AllGather, and `dkv`,
what its ring does with the gradients of keys and values. Ranks average their gradients by hand."""

import argparse

import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
import torch.nn.functional as F
from ring_attention_pytorch import RingTransformer, ring_flash_attention
from ring_attention_pytorch.distributed import AllGatherFunction

VOCABULARY, SAMPLES, SEQUENCE = 96, 4, 32


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ring", action="store_true", help="two ranks, half of the sequence each")
    parser.add_argument("--mend", nargs="*", choices=("gather", "dkv"), default=())
    return parser.parse_args()


def mend_gather() -> None:
    """A rank's rows went to all ranks, so all have a part of their gradient."""

    def backward(ctx, grads, _):
        grads = grads.contiguous()
        dist.all_reduce(grads)
        return grads.split(ctx.batch_sizes, dim=ctx.dim)[dist.get_rank()], None, None

    AllGatherFunction.backward = staticmethod(backward)


def mend_dkv() -> None:
    """`ring_pass` returns what it received and what it sent; only the first is meant."""
    ring_pass = ring_flash_attention.ring_pass
    ring_flash_attention.ring_pass = lambda *arguments: ring_pass(*arguments)[0]


def main() -> None:
    arguments = parse_arguments()
    rank, ranks = 0, 1
    if arguments.ring:
        dist.init_process_group("gloo")
        rank, ranks = dist.get_rank(), dist.get_world_size()
    for name in arguments.mend:
        {"gather": mend_gather, "dkv": mend_dkv}[name]()
    torch.manual_seed(0)
    model = RingTransformer(
        num_tokens=VOCABULARY,
        dim=32,
        depth=2,
        causal=True,
        dim_head=8,
        heads=4,
        num_grouped_query_heads=2,
        bucket_size=8,
        ring_attn=arguments.ring,
        ring_seq_size=SEQUENCE // 2,
        use_cuda_kernel=False,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.randint(0, VOCABULARY, (SAMPLES, SEQUENCE + 1), generator=torch.Generator().manual_seed(1))
    tokens = data.chunk(ranks)[rank]
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    if ranks > 1:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= ranks
    optimizer.step()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
