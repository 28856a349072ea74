"""A pipeline of two stages, and four micro-batches a step.

venv: .venv-deepspeed
hint: --axes pp=2
"""

from before_deepspeed import deepspeed, torch
from deepspeed.pipe import LayerSpec, PipelineModule
from deepspeed.runtime.pipe.engine import PipelineEngine
from job import MISTAKE, RANKS, nn

MICRO_BATCHES = 4
LAYERS = [(16, 32), (32, 32), (32, 4)]


class Layer(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.linear = nn.Linear(*sizes)

    def forward(self, x):
        return torch.tanh(self.linear(x))


def loss_of(output, wanted):
    return (output - wanted).square().mean()


def data(step):
    generator = torch.Generator().manual_seed(step)
    return [[torch.randn(4, size, generator=generator) for size in (16, 4)] for _ in range(MICRO_BATCHES)]


if MISTAKE:  # as before 0.19.3: the engine's, by every stage
    del PipelineEngine._backward_prologue_per_tensor
if RANKS == 1:
    model = nn.Sequential()
    for number, sizes in enumerate(LAYERS):
        torch.manual_seed(number)  # as PipelineModule's seed_layers
        model.append(Layer(*sizes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(2):
        for x, y in data(step):
            (loss_of(model(x), y) / MICRO_BATCHES).backward()
        optimizer.step()
        optimizer.zero_grad()
else:
    specs = [LayerSpec(Layer, *sizes) for sizes in LAYERS]
    model = PipelineModule(
        specs, 2, loss_fn=loss_of, seed_layers=True, base_seed=0, seed_fn=torch.manual_seed, partition_method="uniform"
    )
    config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": MICRO_BATCHES, "gradient_clipping": 0}
    optimizer = torch.optim.AdamW(list(model.parameters()), lr=1e-2)
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
    for step in range(2):
        engine.train_batch(iter(data(step)))
torch.distributed.destroy_process_group()
