"""torch.distributed.pipelining: stages split by hand, of nearly equal numbers of layers, under the model's names."""

from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


def keep_stage(model, stage, options):
    """Takes from `model` what the other stages hold."""
    first, end = (options.layers * bound // options.pp for bound in (stage, stage + 1))
    model.layers = nn.ModuleDict({str(number): model.layers[str(number)] for number in range(first, end)})
    if stage > 0:
        model.tok_embeddings = None
    if stage < options.pp - 1:
        model.norm = model.output = None


def make_schedule(model, mesh, loss, options):
    """Runs the local micro-batches, concatenated; gradients are not scaled by their number, which the loss is."""
    stage = PipelineStage(
        model,
        mesh.get_local_rank("pp"),
        options.pp,
        device="cpu",
        group=mesh.get_group("pp"),
        get_mesh=lambda names, _: mesh[names],  # of the DTensors that go from stage to stage
    )
    count = options.micro_batches // (options.dp * options.fsdp)
    return SCHEDULES[options.schedule](stage, count, loss_fn=loss, scale_grads=False)
