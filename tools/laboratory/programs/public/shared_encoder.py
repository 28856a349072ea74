"""An encoder that is used twice in a step: by the model, and for an auxiliary loss that the engine's output isn't in.

venv: .venv-deepspeed
"""

from before_deepspeed import deepspeed, engine_of, mine, torch
from job import MISTAKE, nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(torch.tanh(self.encoder(x)))


if MISTAKE:  # 0.18.3 and on divided gradients by the number of micro-batches where they met the engine's outputs
    backward = deepspeed.DeepSpeedEngine.backward
    deepspeed.DeepSpeedEngine.backward = lambda self, loss: backward(self, loss, scale_wrt_gas=False)
    deepspeed.DeepSpeedEngine._backward_prologue_per_tensor = lambda self, grad: (
        grad / self.gradient_accumulation_steps() if grad is not None else grad
    )
torch.manual_seed(0)
model = Model()
engine = engine_of(model, 4, zero_optimization={"stage": 2})
for step in range(2):
    for x, other, y in mine(step, 4, 16, 16, 4):
        loss = (engine(x) - y).square().mean() + engine.module.encoder(other).square().mean()
        engine.backward(loss)
        engine.step()
torch.distributed.destroy_process_group()
