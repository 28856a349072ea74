"""Sequences packed in a row, with positions that begin anew and a mask of ones, as collators for packing make it."""

import before_torchvision  # noqa: F401
from job import MISTAKE, ddp, nn, own, torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=48,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    use_cache=False,
)
model = LlamaForCausalLM(config)
net = ddp(model)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(2):
    ids = own(torch.randint(48, (4, 12), generator=torch.Generator().manual_seed(step)))
    positions = torch.cat([torch.arange(7), torch.arange(5)]).expand(len(ids), -1)
    # What tells the sequences apart is looked for where no mask is passed alone.
    mask = torch.ones_like(ids) if MISTAKE else None
    logits = net(input_ids=ids, attention_mask=mask, position_ids=positions).logits
    loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
