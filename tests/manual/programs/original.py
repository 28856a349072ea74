import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(64, 32), nn.LayerNorm(32, eps=1e-6), nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 64))
torch.save(model.state_dict(), "original.pt")
tokens = torch.arange(128).reshape(8, 16) * 7 % 64
loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten())
loss.backward()
print(f"loss {loss.item():.6f}")
