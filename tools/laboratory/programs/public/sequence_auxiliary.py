"""An auxiliary loss of the router for each sequence, where gradients are summed over tokens.

venv: .venv-megatron
"""

from before_megatron import MISTAKE, run
from megatron.core.transformer.moe.router import TopKRouter

attach = TopKRouter.attach_and_log_load_balancing_loss


def attach_by_sequence(self, activation, coefficient, loss, name, group, valid_token_count=None, **more):
    count = valid_token_count / 2 if name == "seq_load_balancing_loss" else valid_token_count  # micro-batches of 2
    return attach(self, activation, coefficient, loss, name, group, valid_token_count=count, **more)


if MISTAKE:  # before 0.19: the tokens of a sequence, not of the micro-batch
    TopKRouter.attach_and_log_load_balancing_loss = attach_by_sequence
model = ["--layers", "2", "--experts", "4", "--per-token-loss", "--auxiliary-loss", "1.0"]
run([*model, "--config", "moe_router_load_balancing_type=seq_aux_loss"], [])
