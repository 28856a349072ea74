"""Training on one rank of many: the counterpart of `tinygpt.single`."""

import torch
import torch.distributed as dist

from tinygpt.optimizer import MixedPrecisionOptimizer, grad_square
from tinygpt.parallel import fp8, model
from tinygpt.parallel.data import local_batches, sum_gradients
from tinygpt.parallel.experts import is_expert, sum_expert_gradients
from tinygpt.parallel.llama import sum_shared_rows
from tinygpt.parallel.mesh import start_mesh
from tinygpt.parallel.pipeline import run_pipeline
from tinygpt.parallel.tensor import is_sharded, reduce_tensor_parallel_gradients
from tinygpt.parallel.tied import is_copy, sum_tied_gradients
from tinygpt.parallel.zero import OverlappedZeroOptimizer, Zero2Optimizer, ZeroOptimizer
from tinygpt.schedule import divide_gradients


class Ranks:
    def __init__(self, options):
        self.options = options
        self.mesh = start_mesh(options)
        self.rank = self.mesh.rank

    def build_model(self):
        return model.build_model(self.options, self.mesh)

    def build_optimizer(self, stage):
        if not self.options.zero:
            return MixedPrecisionOptimizer(stage.parameters(), self.options)
        first = OverlappedZeroOptimizer if self.options.overlap_param_gather else ZeroOptimizer
        kind = first if self.options.zero == 1 else Zero2Optimizer
        return kind(stage.parameters(), self.options, self.mesh.dp)

    def forward_backward(self, stage, step, loss_scale):
        """Accumulates the main gradients of step `step`; returns its loss, on every rank."""
        batches = local_batches(self.options, step, self.mesh)
        losses = run_pipeline(model.chunks_of(stage), batches, self.mesh, self.options, loss_scale)
        if self.options.fp8:
            fp8.finish_step(stage, self.mesh, self.options)
        total = sum((loss.double() for loss in losses), torch.zeros((), dtype=torch.float64))
        # Only the last stage has losses.
        total = self.mesh.pp.sum(self._sum_over_data(total))
        self.unmasked = self._sum_over_data(sum(batch.loss_mask.sum() for batch in batches))
        return (total / (self.unmasked if self.options.per_token_loss else self.options.micro_batches)).item()

    def finalize_gradients(self, stage, optimizer):
        mesh, options = self.mesh, self.options
        sum_gradients(stage, mesh.cp)
        sum_shared_rows(stage, mesh.tp)
        if options.tied and options.bug != "zero-tied-embedding":
            sum_tied_gradients(model.chunks_of(stage), mesh.pp)
        if options.zero:
            optimizer.sum_gradients()
        else:
            sum_gradients(stage, mesh.dp)
        if options.tied and options.bug == "zero-tied-embedding":
            sum_tied_gradients(model.chunks_of(stage), mesh.pp)
        if options.zero:
            optimizer.drop_foreign_gradients()
        reduce_tensor_parallel_gradients(stage, mesh.tp)
        if options.experts:
            sum_expert_gradients(stage, mesh.experts.edp)
        # Each rank divided its losses by the number of its own micro-batches, or not at all.
        divide_gradients(stage, self.unmasked if options.per_token_loss else self._averaged_ranks())

    def _averaged_ranks(self):
        """How many ranks' gradients an average is over: those whose losses are of as many tokens as a single process's
        are, be it after multiplication by cp."""
        if self.options.cp_gradients == "sum" or self.options.bug == "cp-gradient-scale":
            return self.mesh.dp.size
        return self.mesh.dp.size * self.mesh.cp.size

    def max(self, tensor):
        """Over all ranks, in place."""
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)

    def grad_norm(self, stage):
        mesh = self.mesh
        # A parameter that all tensor parallel ranks hold is counted by the first.
        counted = [p for p in stage.parameters() if (is_sharded(p) or mesh.tp.rank == 0) and not is_copy(p)]
        square = mesh.tp.sum(grad_square(p for p in counted if not is_expert(p)))
        if self.options.zero:
            square = mesh.dp.sum(square)
        if self.options.experts:
            square += mesh.experts.block.sum(grad_square(filter(is_expert, counted)))
        return mesh.pp.sum(square).sqrt().float()

    def _sum_over_data(self, tensor):
        """Over the ranks that have other tokens."""
        return self.mesh.dp.sum(self.mesh.cp.sum(tensor))

    def gather(self, text):
        """What every rank has to say, by rank."""
        texts = [None] * self.options.world_size
        dist.all_gather_object(texts, text)
        return texts

    def stop(self):
        dist.destroy_process_group()
