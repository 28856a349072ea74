import sys

import torch
from torch import nn

EPS = 1e-6 if "--eps" in sys.argv else 1e-5


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(64, 32)
        self.ln = nn.LayerNorm(32, eps=EPS)
        self.fc_in, self.fc_out = nn.Linear(32, 48), nn.Linear(48, 64)

    def forward(self, tokens):
        return self.fc_out(torch.relu(self.fc_in(self.ln(self.wte(tokens)))))


names = {"0.": "wte.", "1.": "ln.", "2.": "fc_in.", "4.": "fc_out."}
model = Model()
saved = torch.load("original.pt")
converted = {names[name[:2]] + name[2:]: tensor for name, tensor in saved.items()}
torch.save(converted, "converted.pt")
model.load_state_dict(converted)
tokens = torch.arange(128).reshape(8, 16) * 7 % 64
loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten())
loss.backward()
print(f"loss {loss.item():.6f}")
