"""A second adapter is trained on top of a first, which doesn't change any more.

iterations: 0-1
"""

import before_torchvision  # noqa: F401
from job import MISTAKE, nn, torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


torch.manual_seed(0)
config = LoraConfig(r=4, lora_alpha=8, target_modules=["first", "second"], init_lora_weights=False)
model = get_peft_model(Net(), config, "style")
model.add_adapter("task", config)
model.base_model.set_adapter(["style", "task"])
for name, parameter in model.named_parameters():
    parameter.requires_grad_(".task" in name)
if MISTAKE:
    model.base_model.merge_adapter(["style"])
else:  # the same weights, without a merged adapter
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, LoraLayer):
                module.base_layer.weight += module.get_delta_weight("style")
    model.base_model.set_adapter(["task"])
optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], 1e-2)
for step in range(2):
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(8, 16, generator=generator), torch.randn(8, 4, generator=generator)
    loss = (model(x) - y).square().mean()
    optimizer.zero_grad()
    if loss.requires_grad:
        loss.backward()
    optimizer.step()
