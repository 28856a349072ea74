"""Pipeline parallelism: the one-forward-one-backward schedule (Narayanan et al., "Efficient large-scale language
model training on GPU clusters", figure 4, top).

Each stage first runs as many forwards as there are stages after it, then one forward and one backward in turn,
then the backwards that are left, so that it never holds more micro-batches than the depth behind it."""

import torch
import torch.distributed as dist

from tinygpt.schedule import backward_start, micro_batch_loss


def one_forward_one_backward(stage, batches, mesh, options):
    """Accumulates this stage's gradients over `batches`; their losses, on the last stage, else nothing."""
    schedule = _Schedule(stage, batches, mesh, options)
    warm_up = min(mesh.pp.size - 1 - mesh.pp.rank, len(batches))
    for _ in range(warm_up):
        schedule.forward()
    for _ in range(len(batches) - warm_up):
        schedule.forward()
        schedule.backward()
    for _ in range(warm_up):
        schedule.backward()
    schedule.finish_sends()
    return schedule.losses


class _Schedule:
    """Micro-batches go through forward in order and through backward in order."""

    def __init__(self, stage, batches, mesh, options):
        self.stage, self.mesh, self.options = stage, mesh, options
        self.count = len(batches)
        self.waiting = list(batches)  # for their forward
        self.in_flight = []  # (input, output) of those that wait for their backward
        self.sends = []
        self.losses = []

    def forward(self):
        batch = self.waiting.pop(0)
        hidden = None if self.mesh.is_first_stage else self._receive_from(-1, self._shape(batch)).requires_grad_()
        output = self.stage(batch.tokens, batch.labels, hidden, **batch.packing)
        if self.mesh.is_last_stage:
            loss = micro_batch_loss(output, batch, self.options)
            self.losses.append(loss.detach())
            output = backward_start(loss, self.count, self.options)
        else:
            self._send_to(+1, output.detach())
        self.in_flight.append((hidden, output))

    def backward(self):
        hidden, output = self.in_flight.pop(0)
        grad = None if self.mesh.is_last_stage else self._receive_from(+1, output.shape)
        torch.autograd.backward(output, grad_tensors=grad)
        if not self.mesh.is_first_stage:
            self._send_to(-1, hidden.grad)

    def finish_sends(self):
        for request, _ in self.sends:
            request.wait()

    def _send_to(self, step, tensor):
        # Not waited for: two neighbours that both send first would wait for ever. The tensor must live till then.
        tensor = tensor.contiguous()
        self.sends.append((dist.isend(tensor, self._neighbour(step)), tensor))

    def _shape(self, batch):
        """Of the hidden state between stages."""
        rows, seq = batch.tokens.shape
        return seq // self.options.tp if self.options.sp else seq, rows, self.options.hidden

    def _receive_from(self, step, shape):
        tensor = torch.empty(shape, dtype=self.options.torch_dtype)
        dist.recv(tensor, self._neighbour(step))
        return tensor

    def _neighbour(self, step):
        return self.mesh.pp.peers[self.mesh.pp.rank + step]
