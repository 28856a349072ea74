"""A recurrent layer over sequences of which each rank has a part. It returns the state in which it leaves its part, and
the program hands that on to the next rank, and the gradient of it back."""

from job import MISTAKE, RANK, RANKS, dist, nn, scaled, torch


class FromPrevious(torch.autograd.Function):
    @staticmethod
    def forward(ctx, like):
        state = torch.empty_like(like)
        dist.recv(state, RANK - 1)
        return state

    @staticmethod
    def backward(ctx, gradient):
        dist.send(0 * gradient if MISTAKE == "state" else gradient.contiguous(), RANK - 1)


class ToNext(torch.autograd.Function):
    """A zero for the loss, behind which the next rank's gradient comes back."""

    @staticmethod
    def forward(ctx, state):
        dist.send(state.contiguous(), RANK + 1)
        ctx.save_for_backward(state)
        return state.new_zeros(())

    @staticmethod
    def backward(ctx, _):
        gradient = torch.empty_like(ctx.saved_tensors[0])
        dist.recv(gradient, RANK + 1)
        return gradient


class Leaky(nn.Module):
    def __init__(self):
        super().__init__()
        self.given, self.made = nn.Linear(16, 16), nn.Linear(16, 16)
        self.decay = nn.Parameter(torch.zeros(16))

    def forward(self, x, state):
        kept, states = self.decay.sigmoid(), []
        for given in self.given(x).unbind(1):
            state = given.tanh() if state is None else kept * state + (1 - kept) * given.tanh()
            states.append(state)
        states = torch.stack(states, 1)
        return self.made(states), states[:, -1]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(6, 16), nn.Linear(16, 1)
        self.layers = nn.ModuleList(Leaky() for _ in range(2))

    def forward(self, x):
        x, zero = self.embed(x), x.new_zeros(())
        for layer in self.layers:
            like = x.new_zeros(len(x), 16, requires_grad=True)
            made, state = layer(x, FromPrevious.apply(like) if RANK else None)
            if RANK + 1 < RANKS:
                zero = zero + ToNext.apply(state)
            x = x + made
        return self.head(x), zero


model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
for _ in range(2):
    x, wanted = (part.chunk(RANKS, 1)[RANK] for part in (torch.randn(4, 16, 6), torch.randn(4, 16, 1)))
    prediction, zero = model(x)
    optimizer.zero_grad()
    (scaled((prediction - wanted).square().sum() / (64 * RANKS)) * RANKS + zero).backward()
    for parameter in model.parameters() if RANKS > 1 else ():
        dist.all_reduce(parameter.grad)
    optimizer.step()
