"""An auxiliary loss of the router, where gradients are summed over tokens and ranks see parts of the sequence.

venv: .venv-megatron
hint: --axes tp=2
"""

from before_megatron import MISTAKE, run
from megatron.core.transformer.moe.router import TopKRouter

attach = TopKRouter.attach_and_log_load_balancing_loss


def attach_by_rank(self, activation, coefficient, loss, name, group, valid_token_count=None, **more):
    count = activation.shape[0] if valid_token_count is None else valid_token_count
    count = count / self.tp_cp_group.size()
    return attach(self, activation, coefficient, loss, name, group, valid_token_count=count, **more)


if MISTAKE:  # before 0.19: by the tokens of a rank, not of all
    TopKRouter.attach_and_log_load_balancing_loss = attach_by_rank
model = ["--layers", "2", "--experts", "4", "--per-token-loss", "--auxiliary-loss", "1.0"]
run(model, ["--tp", "2", "--sp", "--ep", "2", "--etp", "1"])
