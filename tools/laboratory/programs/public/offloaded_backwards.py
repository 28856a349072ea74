"""Several backward passes of a step, of which the program says which is the last; the optimizer is offloaded.

venv: .venv-deepspeed
"""

from before_deepspeed import engine_of, mine, put_back, torch
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer
from job import MISTAKE, RANKS, nn

if MISTAKE:  # as before 0.19
    released = "if self.micro_step_id > 0 or not self.is_gradient_accumulation_boundary():"
    put_back(DeepSpeedZeroOptimizer.copy_grads_in_partition, released, "if self.gradient_accumulation_steps > 1:")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
engine = engine_of(model, RANKS, zero_optimization=zero)
for step in range(2):
    batches = mine(step, 4, 16, 4)
    for number, (x, y) in enumerate(batches, 1):
        loss = (engine(x) - y).square().mean() / len(batches)
        engine.set_gradient_accumulation_boundary(number == len(batches))
        engine.backward(loss)
    engine.step()
torch.distributed.destroy_process_group()
