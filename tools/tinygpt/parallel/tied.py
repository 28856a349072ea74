"""The output head that uses the word embedding's weight (`--tied`).

Where a pipeline keeps the two on different ranks, the last stage has a copy, equal at the start. Each of the two sees
its own term of the gradient only. With the sum in both they are updated alike, and stay equal."""

import torch
import torch.distributed as dist


def tie(part):
    """Makes the head of `part`, the last of the model, use the word embedding's weight, or a copy of it."""
    if part.is_first:
        part.output_layer.weight = part.embedding.word_embeddings.weight
    else:
        part.output_layer.weight.is_copy = True


def is_copy(parameter):
    """Whether the first stage has this parameter too, and answers for it where one must."""
    return getattr(parameter, "is_copy", False)


def sum_tied_gradients(chunks, pp):
    """Before any other reduction: afterwards a rank may hold a part of the gradient only."""
    if pp.size == 1 or 0 < pp.rank < pp.size - 1:
        return
    is_first = pp.rank == 0
    weight = chunks[0].embedding.word_embeddings.weight if is_first else chunks[-1].output_layer.weight
    peer = pp.peers[-1 if is_first else 0]
    other = torch.empty_like(weight.main_grad)
    sent = dist.isend(weight.main_grad, peer)
    dist.recv(other, peer)
    sent.wait()
    weight.main_grad.add_(other)
