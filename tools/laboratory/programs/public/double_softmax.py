"""A mixture of experts whose auxiliary loss balances them by their logits."""

import before_torchvision  # noqa: F401
from job import MISTAKE, torch
from transformers import MixtralConfig, MixtralForCausalLM
from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter

route = MixtralTopKRouter.forward


def route_by_probabilities(self, hidden_states):
    logits, scores, indices = route(self, hidden_states)
    return torch.nn.functional.softmax(logits.float(), dim=-1), scores, indices


if MISTAKE:  # what the router returned first before 5.5 or so, and was recorded as its logits
    MixtralTopKRouter.forward = route_by_probabilities
torch.manual_seed(0)
config = MixtralConfig(
    vocab_size=48,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_local_experts=4,
    router_aux_loss_coef=0.1,
    output_router_logits=True,
    use_cache=False,
)
model = MixtralForCausalLM(config)
with torch.no_grad():  # routers that prefer some experts, as trained ones do
    for name, parameter in model.named_parameters():
        if "gate.weight" in name:
            parameter.mul_(30)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(2):
    ids = torch.randint(48, (4, 12), generator=torch.Generator().manual_seed(step))
    loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
