"""Pipeline parallelism: a stage runs its model chunks in turn and exchanges activations and their gradients with the
stages that hold the parts of the model before and after each chunk."""

import torch
import torch.distributed as dist

from tinygpt.parallel.turns import turns
from tinygpt.schedule import backward_start, micro_batch_loss


def run_pipeline(chunks, batches, mesh, options, loss_scale):
    """Accumulates the gradients of this stage's `chunks`, in model order, over `batches`; the losses of these, on the
    last stage, else nothing."""
    pipeline = _Pipeline(chunks, batches, mesh, options, loss_scale)
    for turn in turns(mesh.pp.size, mesh.pp.rank, len(chunks), len(batches)):
        if turn.is_forward:
            pipeline.forward(turn)
        else:
            pipeline.backward(turn)
    pipeline.finish_sends()
    return pipeline.losses


class _Pipeline:
    def __init__(self, chunks, batches, mesh, options, loss_scale):
        self.chunks, self.batches, self.mesh, self.options = chunks, batches, mesh, options
        self.loss_scale = loss_scale
        self.in_flight = {}  # (chunk, micro-batch) -> (input, output) of those that wait for their backward
        self.sends = []
        self.losses = []

    def forward(self, turn):
        chunk, batch = self.chunks[turn.chunk], self.batches[turn.micro_batch]
        hidden = None if chunk.is_first else self._receive_from(-1, turn).requires_grad_()
        output = chunk(batch.tokens, batch.labels, hidden, **batch.packing)
        if chunk.is_last:
            loss = micro_batch_loss(output, batch, self.options)
            self.losses.append(loss.detach())
            output = backward_start(loss, len(self.batches), self.options, self.loss_scale)
        else:
            self._send_to(+1, turn, output.detach())
        self.in_flight[turn.chunk, turn.micro_batch] = hidden, output

    def backward(self, turn):
        chunk = self.chunks[turn.chunk]
        hidden, output = self.in_flight.pop((turn.chunk, turn.micro_batch))
        grad = None if chunk.is_last else self._receive_from(+1, turn)
        torch.autograd.backward(output, grad_tensors=grad)
        if not chunk.is_first:
            self._send_to(-1, turn, hidden.grad)

    def finish_sends(self):
        for request, _ in self.sends:
            request.wait()

    def _send_to(self, step, turn, tensor):
        # Not waited for: two neighbours that both send first would wait for ever. The tensor must live till then.
        tensor = tensor.contiguous()
        peer, tag = self._peer_and_tag(step, turn, receiver=step)
        self.sends.append((dist.isend(tensor, peer, tag=tag), tensor))

    def _receive_from(self, step, turn):
        options = self.options
        rows, seq = self.batches[turn.micro_batch].tokens.shape
        shape = seq // options.tp if options.sp else seq, rows, options.hidden
        tensor = torch.empty(shape, dtype=options.torch_dtype)
        peer, tag = self._peer_and_tag(step, turn, receiver=0)
        dist.recv(tensor, peer, tag=tag)
        return tensor

    def _peer_and_tag(self, step, turn, receiver):
        """The rank that holds the part `step` parts after this turn's, and what tells the message from others between
        the two: the receiving part (`receiver` parts after this turn's), direction and micro-batch. Two neighbours
        need not come to their messages in the same order: with two stages each is both before and after the other."""
        stages = self.mesh.pp.size
        part = turn.chunk * stages + self.mesh.pp.rank
        tag = (turn.micro_batch * stages * len(self.chunks) + part + receiver) * 2 + turn.is_forward
        return self.mesh.pp.peers[(part + step) % stages], tag
