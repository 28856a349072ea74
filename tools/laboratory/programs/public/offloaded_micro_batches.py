"""Four micro-batches on each rank; the optimizer is offloaded.

venv: .venv-deepspeed
"""

from before_deepspeed import engine_of, mine, put_back, torch
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer
from job import MISTAKE, nn

if MISTAKE:  # as before 0.19
    released = "        accumulate_gradients()\n    copy_gradients_to_cpu()"
    old = "        accumulate_gradients()\n    else:\n        copy_gradients_to_cpu()"
    put_back(DeepSpeedZeroOptimizer.async_accumulate_grad_in_cpu_via_gpu, released, old)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
engine = engine_of(model, 8, zero_optimization={"stage": 2, "offload_optimizer": {"device": "cpu"}})
for step in range(2):
    for x, y in mine(step, 8, 16, 4):
        loss = (engine(x) - y).square().mean()
        engine.backward(loss)
        engine.step()
torch.distributed.destroy_process_group()
