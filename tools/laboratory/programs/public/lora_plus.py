"""LoRA+ with an adapter of the embedding, whose learning rate is its own."""

import before_torchvision  # noqa: F401
from job import MISTAKE, ddp, nn, own, torch
from peft import LoraConfig, get_peft_model
from peft.optimizers import create_loraplus_optimizer, loraplus

if MISTAKE:  # before 0.21 what was asked for its class was the parameter, which is no Embedding
    loraplus.Embedding = type("Never", (), {})


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.hidden, self.head = nn.Embedding(24, 16), nn.Linear(16, 16), nn.Linear(16, 24)

    def forward(self, ids):
        return self.head(torch.tanh(self.hidden(self.embed(ids))))


config = LoraConfig(r=4, target_modules=["embed", "hidden"], init_lora_weights=False)
model = get_peft_model(Net(), config)
net = ddp(model)
optimizer = create_loraplus_optimizer(
    model, torch.optim.AdamW, lr=1e-3, loraplus_lr_ratio=16, loraplus_lr_embedding=1e-2
)
for step in range(2):
    generator = torch.Generator().manual_seed(step)
    ids, labels = (own(torch.randint(24, (8, 6), generator=generator)) for _ in range(2))
    loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
