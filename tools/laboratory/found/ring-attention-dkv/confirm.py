"""Gradients of `ring_flash_attn` on two ranks, against those of one process. Without ttrace:

.venv-ring_attention/bin/python -m torch.distributed.run --standalone --nproc-per-node 2 confirm.py"""

import torch
import torch.distributed as dist
from ring_attention_pytorch.ring_attention import default_attention
from ring_attention_pytorch.ring_flash_attention import ring_flash_attn

BATCH, SEQUENCE, HEADS, HEAD_SIZE, BUCKET = 2, 32, 4, 8, 8

dist.init_process_group("gloo")
rank = dist.get_rank()
own = slice(rank * SEQUENCE // 2, (rank + 1) * SEQUENCE // 2)
for causal in (False, True):
    generator = torch.Generator().manual_seed(0)
    shape = (BATCH, SEQUENCE, HEADS, HEAD_SIZE)
    query, key, value, weight = (torch.randn(shape, generator=generator) for _ in range(4))
    whole = [tensor.clone().requires_grad_() for tensor in (query, key, value)]
    (default_attention(*whole, mask=None, causal=causal) * weight).sum().backward()
    part = [tensor[:, own].clone().requires_grad_() for tensor in (query, key, value)]
    (ring_flash_attn(*part, None, causal, BUCKET, True, False, None, 2) * weight[:, own]).sum().backward()
    errors = []
    for ring, plain in zip(part, whole, strict=True):
        expected = plain.grad[:, own]
        errors.append(f"{(ring.grad - expected).norm() / expected.norm():.2g}")
    mask = "causal" if causal else "full"
    text = f"rank {rank}, {mask}: relative errors of the gradients of q, k, v: {', '.join(errors)}"
    print(text, flush=True)
dist.destroy_process_group()
