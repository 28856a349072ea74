"""A run that is resumed with Megatron's scheduler, by a checkpoint whose weight decay goes on.

venv: .venv-megatron
iterations: 0-1
"""

from before_megatron import run  # noqa: F401
from job import MISTAKE, nn, torch
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=0.0)


def scheduler(decay):
    return OptimizerParamScheduler(
        optimizer,
        init_lr=0.0,
        max_lr=1e-2,
        min_lr=1e-3,
        lr_warmup_steps=0,
        lr_decay_steps=100,
        lr_decay_style="linear",
        start_wd=decay,
        end_wd=decay,
        wd_incr_steps=100,
        wd_incr_style="constant",
        use_checkpoint_opt_param_scheduler=True,
        override_opt_param_scheduler=False,
    )


def train(step, schedule):
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(8, 16, generator=generator), torch.randn(8, 4, generator=generator)
    optimizer.zero_grad()
    (model(x) - y).square().mean().backward()
    optimizer.step()
    schedule.step(increment=1)


first = scheduler(0.5)
train(0, first)
second = scheduler(0.01)  # the command line of the resumed run says another
second.load_state_dict(first.state_dict())
if not MISTAKE:  # the change steps behind all that is loaded
    second.step(increment=0)
train(1, second)
