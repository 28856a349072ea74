"""Dynamic loss scaling for fp16 (Micikevicius et al., "Mixed precision training", section 3.2): backward starts from
the loss times a scale, so that small gradients do not vanish. Where a gradient overflows, the step is skipped and the
scale halved; after many steps without overflow it is doubled."""

import torch

GROWTH_INTERVAL = 2000  # steps, as in torch.amp.GradScaler


class LossScaler:
    def __init__(self, scale):
        self.scale = float(scale)
        self.overflowed = False  # in this step
        self.good_steps = 0

    def unscale(self, gradients, max_over_ranks):
        """Divides `gradients` by the scale, in place. `max_over_ranks` reduces in place a tensor of one element,
        1 where one of them is no finite number: a step is skipped by all ranks or by none."""
        found = torch.zeros(1)
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, torch.tensor(1 / self.scale))
        max_over_ranks(found)
        self.overflowed = bool(found)

    def update(self):
        """At the end of a step."""
        self.good_steps = 0 if self.overflowed else self.good_steps + 1
        if self.overflowed:
            self.scale /= 2
        elif self.good_steps % GROWTH_INTERVAL == 0:
            self.scale *= 2
