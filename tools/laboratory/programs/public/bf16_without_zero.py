"""bf16 without ZeRO, two steps.

venv: .venv-deepspeed
iterations: 0-1
"""

from before_deepspeed import engine_of, mine, torch
from job import MISTAKE, nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).bfloat16()
engine = engine_of(model, 4, bf16={"enabled": True}, zero_optimization={"stage": 0})
if MISTAKE:  # what a step behind which there is no ZeRO didn't call before 0.18.6
    engine.optimizer.zero_grad = lambda *_, **__: None
for step in range(2):
    for x, y in mine(step, 4, 16, 4):
        loss = (engine(x.bfloat16()).float() - y).square().mean()
        engine.backward(loss)
        engine.step()
torch.distributed.destroy_process_group()
