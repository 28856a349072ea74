"""Without ttrace: the norm that DeepSpeed's pipeline engine clips by on each of two stages, and that of all gradients.
torchrun --standalone --nproc-per-node 2 confirm.py"""

import os

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
from deepspeed import comm
from deepspeed.pipe import LayerSpec, PipelineModule
from torch import nn

CLIP = 0.01


def main() -> None:
    deepspeed.ops.__compatible_ops__ = {}
    comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    torch.manual_seed(1)
    layers = [LayerSpec(nn.Linear, 8, 8) for _ in range(4)]
    model = PipelineModule(layers, num_stages=2, loss_fn=nn.functional.mse_loss)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)  # so that the update is the clipped gradient
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": CLIP,
        "zero_optimization": {"stage": 0},
    }
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    engine.train_batch(iter([(torch.ones(4, 8), torch.zeros(4, 8))]))
    squares = [(now - then).square().sum() for now, then in zip(model.parameters(), before, strict=True)]
    own = torch.stack(squares).sum().detach()
    norms = [torch.zeros(()) for _ in range(2)]
    torch.distributed.all_gather(norms, own)
    whole = float(torch.stack(norms).sum().sqrt())
    if comm.get_rank() == 0:
        stages = ", ".join(f"{float(norm.sqrt()):.6f}" for norm in norms)
        print(f"gradients clipped to {CLIP}: their norm is {whole:.6f}; of each stage {stages}", flush=True)
    comm.destroy_process_group()


if __name__ == "__main__":
    main()
