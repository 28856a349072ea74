"""Training on several ranks, with PyTorch's own parallelism alone: DTensor (tp), fully_shard (fsdp, and dp beside it as
hybrid sharding), torch.distributed.pipelining (pp). Only replicas without fsdp (dp) are summed here by hand.

The loss is divided by the micro-batches of the whole run, and gradients are summed: no value differs from the single
process's by a factor."""

import contextlib

import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel

from torchgpt.model import CrossEntropy, build_model
from torchgpt.pipeline import keep_stage, make_schedule
from torchgpt.tensor import parallelise_tensors
from torchgpt.train import micro_batch


class Ranks:
    def __init__(self, options):
        dist.init_process_group("gloo")
        self.options, self.rank = options, dist.get_rank()
        sizes = {"pp": options.pp, "dp": options.dp, "fsdp": options.fsdp, "tp": options.tp}
        sizes = {name: size for name, size in sizes.items() if size > 1}
        self.mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        self.at = dict(zip(sizes, self.mesh.get_coordinate(), strict=True))
        self.loss = CrossEntropy(options.micro_batches)
        self.schedule = None

    def build_model(self):
        options, model = self.options, build_model(self.options)
        if options.pp > 1:
            keep_stage(model, self.at["pp"], options)
        if options.tp > 1:
            parallelise_tensors(model, self.mesh["tp"], options)
        if options.fsdp > 1:
            self._shard(model)
        if options.pp > 1:
            self.schedule = make_schedule(model, self.mesh, self.loss, options)
        return model

    def _shard(self, model):
        mesh = self.mesh["dp", "fsdp"] if self.options.dp > 1 else self.mesh["fsdp"]
        policy = MixedPrecisionPolicy(reduce_dtype=torch.float32)
        for module in (*model.layers.values(), model):
            fully_shard(module, mesh=mesh, mp_policy=policy)
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo cannot multiply on the way

    def forward_backward(self, model, step):
        """Accumulates the gradients of step `step`, summed over the replicas; returns its loss."""
        options = self.options
        replicas = options.dp * options.fsdp
        replica = self.at.get("fsdp", 0) + options.fsdp * self.at.get("dp", 0)
        numbers = range(replica, options.micro_batches, replicas)
        batches = [micro_batch(options, step * options.micro_batches + number) for number in numbers]
        with loss_parallel() if options.loss_parallel else contextlib.nullcontext():
            run = self._accumulate if self.schedule is None else self._run_pipeline
            losses = run(model, batches)
        if options.dp > 1 and options.fsdp == 1:
            for parameter in model.parameters():
                dist.all_reduce(_local(parameter.grad), group=self.mesh.get_group("dp"))
        total = torch.tensor([sum(losses)], dtype=torch.float64)
        dist.all_reduce(total)
        return total.item() / options.tp  # whose ranks all have the same losses

    def _accumulate(self, model, batches):
        losses = []
        for tokens, labels in batches:
            loss = self.loss(model(tokens), labels)
            loss.backward()
            losses.append(_local(loss).item())
        return losses

    def _run_pipeline(self, model, batches):
        tokens, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
        losses = []
        inputs = (tokens,) if self.at["pp"] == 0 else ()
        if self.at["pp"] == self.options.pp - 1:
            self.schedule.step(*inputs, target=labels, losses=losses)
        else:
            self.schedule.step(*inputs)
        return [_local(loss).item() for loss in losses]

    def clip_gradients(self, model):
        parameters, limit = list(model.parameters()), self.options.clip_grad
        if self.options.pp == 1:
            norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
            return norm.full_tensor() if isinstance(norm, DTensor) else norm
        norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in parameters])
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        square = norm.square()
        dist.all_reduce(square, group=self.mesh.get_group("pp"))
        torch.nn.utils.clip_grads_with_norm_(parameters, limit, square.sqrt())
        return square.sqrt()

    def stop(self):
        dist.destroy_process_group()


def _local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
