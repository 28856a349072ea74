"""Scores sequences by a policy: as its trainer does, in one padded batch, or with --engine one sequence at a time."""

import sys

import torch
from torch import nn

TEMPERATURE = 0.7 if "--temperature" in sys.argv else 1.0


class LogProbs(nn.Module):
    def forward(self, logits, next_ids):
        return (logits / TEMPERATURE).log_softmax(-1).gather(-1, next_ids[..., None])[..., 0]


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(64, 32), nn.Embedding(16, 32)
        self.norm, self.qkv, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
        self.head, self.log_probs = nn.Linear(32, 64), LogProbs()

    def forward(self, input_ids, next_ids, attention_mask):
        x = self.tokens(input_ids) + self.positions(torch.arange(input_ids.shape[1]))
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return self.log_probs(self.head(x), next_ids)


torch.manual_seed(0)
policy = Policy()
sequences = [torch.randint(1, 64, (length,)) for length in (7, 5, 11)]
batches = [[one] for one in sequences] if "--engine" in sys.argv else [sequences]
with torch.no_grad():
    for batch in batches:
        ids = nn.utils.rnn.pad_sequence(batch, batch_first=True)
        mask = nn.utils.rnn.pad_sequence([torch.ones_like(one) for one in batch], batch_first=True)
        policy(input_ids=ids[:, :-1], next_ids=ids[:, 1:], attention_mask=mask[:, 1:])
