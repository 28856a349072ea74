"""tools/frameworks/megatron/train.py with a bug of the given name in Megatron-core's mixture of experts.

megatron_with_bug.py BUG [OPTION ...]"""

import runpy
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[3] / "tools/frameworks/megatron/train.py"
sys.path.insert(0, str(PROGRAM.parent))
import cuda_stand_in  # noqa: E402, F401 - before megatron, which looks for a GPU
import torch  # noqa: E402
from megatron.core.transformer.moe.experts import SequentialMLP  # noqa: E402
from megatron.core.transformer.moe.router import TopKRouter  # noqa: E402
from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher  # noqa: E402


def unweighted():
    """Rank 1 does not apply the router's weights."""
    after = MoEAlltoAllTokenDispatcher.dispatch_postprocess

    def dispatch_postprocess(self, tokens, weights):
        tokens, counts, weights = after(self, tokens, weights)
        # Still computed from the weights: backward sends their gradients back, on all ranks alike.
        return tokens, counts, weights * 0 + 1 if torch.distributed.get_rank() == 1 else weights

    MoEAlltoAllTokenDispatcher.dispatch_postprocess = dispatch_postprocess


def shifted():
    """On rank 1 the rows have moved on by one when they come to the experts; their weights have not."""
    after = MoEAlltoAllTokenDispatcher.dispatch_postprocess

    def dispatch_postprocess(self, tokens, weights):
        tokens, counts, weights = after(self, tokens, weights)
        return tokens.roll(1, 0) if torch.distributed.get_rank() == 1 else tokens, counts, weights

    MoEAlltoAllTokenDispatcher.dispatch_postprocess = dispatch_postprocess


def dropped():
    """The last token of rank 1's last expert does not get there; zeros come back for it."""
    forward = SequentialMLP.forward

    def without_last(self, tokens, counts, weights):
        if torch.distributed.get_rank() != 1:
            return forward(self, tokens, counts, weights)
        counts = counts.clone()
        counts[-1] -= 1
        output, bias = forward(self, tokens[:-1], counts, weights[:-1])
        return torch.cat([output, output.new_zeros(1, output.shape[1])]), bias

    SequentialMLP.forward = without_last


def exchanged():
    """Rank 1 calls its experts in the wrong order."""
    forward = SequentialMLP.forward

    def in_wrong_order(self, *args):
        if torch.distributed.get_rank() == 1:
            first, second = self.local_experts
            self.local_experts[0], self.local_experts[1] = second, first
        result = forward(self, *args)
        if torch.distributed.get_rank() == 1:
            self.local_experts[0], self.local_experts[1] = first, second
        return result

    SequentialMLP.forward = in_wrong_order


def auxiliary_scaled():
    """The auxiliary loss counts once for each rank of the tensor-parallel group."""
    attach = TopKRouter.attach_and_log_load_balancing_loss

    def attach_and_log_load_balancing_loss(self, activation, coefficient, loss, *args, **kwargs):
        return attach(self, activation, coefficient, loss * self.tp_cp_group.size(), *args, **kwargs)

    TopKRouter.attach_and_log_load_balancing_loss = attach_and_log_load_balancing_loss


BUGS = {bug.__name__: bug for bug in (unweighted, shifted, dropped, exchanged, auxiliary_scaled)}

if __name__ == "__main__":
    BUGS[sys.argv.pop(1)]()
    sys.argv[0] = str(PROGRAM)
    runpy.run_path(str(PROGRAM), run_name="__main__")
