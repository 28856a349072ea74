"""Updates that the program writes itself, after one backward, and no optimizer. `coarse`: in bfloat16, whose rounding
hides them."""

import sys

from job import MISTAKE, RANKS, nn, own, scaled, summed, torch

is_coarse = "coarse" in sys.argv
dtype = torch.bfloat16 if is_coarse else torch.float32
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)).to(dtype)
rate = (1e-3 if is_coarse else 1e-2) * (2 if MISTAKE == "rate" else 1)
x, labels = torch.randn(8, 16).to(dtype), torch.randint(4, (8,))
scaled(nn.functional.cross_entropy(model(own(x)).float(), own(labels))).backward()
with torch.no_grad():
    for name, parameter in model.named_parameters():
        is_left = MISTAKE == "unreduced" and name == "2.weight"
        parameter -= rate * (parameter.grad if is_left else summed(parameter.grad) / RANKS)
