"""bf16 whose gradients are added up in fp32, by ZeRO-1: two micro-batches on each rank.

venv: .venv-deepspeed
"""

from before_deepspeed import deepspeed, engine_of, mine, put_back, torch
from job import MISTAKE, nn

if MISTAKE:  # as before 0.19: gradients are reduced, and those of the last micro-batch then added
    put_back(deepspeed.DeepSpeedEngine._backward_epilogue, "isinstance(self.optimizer, BF16_Optimizer)", "False")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).bfloat16()
engine = engine_of(
    model,
    4,
    bf16={"enabled": True},
    data_types={"grad_accum_dtype": "fp32"},
    communication_data_type="fp32",
    zero_optimization={"stage": 1},
)
for step in range(2):
    for x, y in mine(step, 4, 16, 4):
        loss = (engine(x.bfloat16()).float() - y).square().mean()
        engine.backward(loss)
        engine.step()
torch.distributed.destroy_process_group()
