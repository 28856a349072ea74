"""Adapters of one layer of two, each of which has numbered experts.

iterations: 0
"""

import before_torchvision  # noqa: F401
from job import MISTAKE, ddp, nn, own, torch
from peft import LoraConfig, get_peft_model
from peft.tuners import tuners_utils


class Match:
    """The module `re`, as what looked for a layer's number before 0.20: in the last numbered part of a name."""

    def __getattr__(self, name):
        return getattr(re, name)

    @staticmethod
    def match(pattern, text):
        return re.match(pattern.replace(".*?", ".*"), text)


re = tuners_utils.re
if MISTAKE:
    tuners_utils.re = Match()


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.ModuleDict({"up_proj": nn.Linear(16, 16)}) for _ in range(2))

    def forward(self, x):
        return x + sum(torch.tanh(expert["up_proj"](x)) for expert in self.experts)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Net()

    def forward(self, x):
        return self.model(x)


torch.manual_seed(0)
config = LoraConfig(r=4, target_modules=["up_proj"], layers_to_transform=[1], init_lora_weights=False)
model = get_peft_model(Model(), config)
net = ddp(model)
optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], 1e-2)
for step in range(2):
    generator = torch.Generator().manual_seed(step)
    x, y = (own(torch.randn(8, 16, generator=generator)) for _ in range(2))
    loss = (net(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print([name for name, one in model.named_parameters() if one.requires_grad])
