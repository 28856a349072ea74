"""TinyLoRA: a second adapter of other layers than the first's, whose vector all of its layers share."""

import before_torchvision  # noqa: F401
from job import MISTAKE, ddp, nn, own, torch
from peft import TinyLoraConfig, get_peft_model
from peft.tuners.tinylora.model import TinyLoraModel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


def config(layers, tying):
    targets = [f"layers.{layer}" for layer in layers]
    return TinyLoraConfig(u=8, weight_tying=tying, target_modules=targets, init_weights="uniform")


class First(dict):
    """What was one mapping for all adapters before 0.20: the first one's, for layers that it has."""

    def __contains__(self, name):
        return len(self) > 0 or super().__contains__(name)

    def __getitem__(self, name):
        return next(iter(self.values()))


made = TinyLoraModel.__init__


def make(self, *args, **kwargs):
    made(self, *args, **kwargs)
    self._target_key_to_idx = First(self._target_key_to_idx)


if MISTAKE:
    TinyLoraModel.__init__ = make
model = get_peft_model(Net(), config(range(4), 0.0), "first")
model.add_adapter("second", config([0, 2], 0.5))
model.set_adapter("second")
generator = torch.Generator().manual_seed(3)
with torch.no_grad():  # the same for each vector, however many were drawn
    for name, parameter in model.named_parameters():
        if "tinylora_v" in name:
            parameter.copy_(0.5 * torch.randn(8, generator=generator))
net = ddp(model)
optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], 1e-2)
for _ in range(2):
    x, y = (own(torch.randn(8, 16, generator=generator)) for _ in range(2))
    loss = (net(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
