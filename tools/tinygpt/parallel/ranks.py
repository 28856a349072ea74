"""Training on one rank of many: the counterpart of `tinygpt.single`."""

import torch
import torch.distributed as dist

from tinygpt.optimizer import grad_square
from tinygpt.parallel import model
from tinygpt.parallel.data import average_gradients, local_batches
from tinygpt.parallel.experts import is_expert, reduce_expert_gradients
from tinygpt.parallel.mesh import start_mesh
from tinygpt.parallel.pipeline import one_forward_one_backward
from tinygpt.parallel.tensor import is_sharded, reduce_tensor_parallel_gradients


class Ranks:
    def __init__(self, options):
        self.options = options
        self.mesh = start_mesh(options)
        self.rank = self.mesh.rank

    def build_model(self):
        return model.build_model(self.options, self.mesh)

    def forward_backward(self, stage, step):
        """Accumulates the main gradients of step `step`; returns its loss, on every rank."""
        batches = local_batches(self.options, step, self.mesh.dp)
        losses = one_forward_one_backward(stage, batches, self.mesh, self.options)
        total = sum((loss.double() for loss in losses), torch.zeros((), dtype=torch.float64))
        # Only the last stage has losses.
        total = self.mesh.pp.sum(self.mesh.dp.sum(total))
        return (total / self.options.micro_batches).item()

    def finalize_gradients(self, stage):
        average_gradients(stage, self.mesh.dp)
        reduce_tensor_parallel_gradients(stage, self.mesh.tp)
        reduce_expert_gradients(stage, self.mesh)

    def grad_norm(self, stage):
        # A parameter that all tensor parallel ranks hold is counted by the first.
        dense = [p for p in stage.parameters() if not is_expert(p) and (is_sharded(p) or self.mesh.tp.rank == 0)]
        square = self.mesh.tp.sum(grad_square(dense))
        if self.mesh.experts:
            square += self.mesh.experts.block.sum(grad_square(filter(is_expert, stage.parameters())))
        return self.mesh.pp.sum(square).sqrt().float()

    def gather(self, text):
        """What every rank has to say, by rank."""
        texts = [None] * self.options.world_size
        dist.all_gather_object(texts, text)
        return texts

    def stop(self):
        dist.destroy_process_group()
