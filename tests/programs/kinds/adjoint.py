"""An ODE whose function is called without gradients, and with them in the adjoint's backward alone, as torchdiffeq's
odeint_adjoint does."""

from job import MISTAKE, RANKS, dist, nn, own, scaled, torch

STEPS, WIDTH = 4, 6


class Step(nn.Module):
    """A solver's own, around what it was given, with which it is called without gradients."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *values):
        return self.function(*values)


class Solved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, field, y, *parameters):
        ctx.field = field
        states = [y]
        for _ in range(STEPS):
            states.append(states[-1] + field(states[-1]) / STEPS)
        ctx.save_for_backward(*states)
        return states[-1]

    @staticmethod
    def backward(ctx, gradient):
        parameters = list(ctx.field.parameters())

        def dynamics(state, gradient):
            with torch.enable_grad():
                state = state.detach().requires_grad_()
                changed = state + ctx.field(state) / STEPS
            return torch.autograd.grad(changed, [state, *parameters], gradient)

        sums = [torch.zeros_like(each) for each in parameters]
        for state in reversed(ctx.saved_tensors[:-1]):
            gradient, *of_parameters = Step(dynamics)(state, gradient)
            sums = [each + more for each, more in zip(sums, of_parameters, strict=True)]
        return None, gradient, *sums


field = nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Linear(16, WIDTH))
optimizer = torch.optim.SGD(field.parameters(), 0.1, momentum=0.9)
beginning, end = torch.randn(8, WIDTH), torch.randn(8, WIDTH)
for _ in range(3):
    loss = (Solved.apply(field, own(beginning), *field.parameters()) - own(end)).square().mean()
    optimizer.zero_grad()
    scaled(loss).backward()
    for name, parameter in field.named_parameters():
        if RANKS > 1 and not (MISTAKE == "bias" and name == "0.bias"):
            dist.all_reduce(parameter.grad)
            parameter.grad /= RANKS
    optimizer.step()
