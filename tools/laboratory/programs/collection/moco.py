"""MoCo: an encoder that follows the other, and a queue that all ranks' keys fill.

package: PyTorch
parallel: DDP, 2 ranks
mistake: each rank fills the queue with its own keys
shows: queue buffer_after, queue_ptr buffer_after
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch
from torch.nn.parallel import DistributedDataParallel as DDP


def encoder():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.GroupNorm(2, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 12)
    )


class MoCo(nn.Module):
    def __init__(self, K=32, m=0.99, T=0.2):
        super().__init__()
        self.K, self.m, self.T = K, m, T
        self.encoder_q, self.encoder_k = encoder(), encoder()
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.data.copy_(q.data)
            k.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(12, K), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def _dequeue_and_enqueue(self, keys):
        if RANKS > 1 and not MISTAKE:
            every = [torch.ones_like(keys) for _ in range(RANKS)]
            dist.all_gather(every, keys)
            keys = torch.cat(every)
        ptr = int(self.queue_ptr)
        self.queue[:, ptr : ptr + len(keys)] = keys.T
        self.queue_ptr[0] = (ptr + len(keys)) % self.K

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            for a, b in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
                b.data = b.data * self.m + a.data * (1.0 - self.m)
            k = F.normalize(self.encoder_k(im_k), dim=1)
        l_pos = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        l_neg = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
        logits = torch.cat([l_pos, l_neg], dim=1) / self.T
        self._dequeue_and_enqueue(k)
        return logits, torch.zeros(logits.shape[0], dtype=torch.long)


model = MoCo()
opt = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
if RANKS > 1:
    model = DDP(model, broadcast_buffers=False)
g = torch.Generator().manual_seed(1)
A, B = torch.randn(24, 3, 12, 12, generator=g), torch.randn(24, 3, 12, 12, generator=g)
n = 8
for step in range(3):
    m = n // RANKS
    lo = step * n + RANK * m
    at = slice(lo, lo + m)
    logits, labels = model(A[at], B[at])
    loss = F.cross_entropy(logits, labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
