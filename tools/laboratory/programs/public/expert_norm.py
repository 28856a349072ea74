"""Experts that are dealt out over tensor parallel ranks, each of which holds its own whole, as layers of
TransformerEngine mark them: not as parts of tensors.

venv: .venv-megatron
hint: --axes tp=2
"""

from before_megatron import MISTAKE, run, train
from megatron.core import tensor_parallel

make_trainable, is_no_copy = train.make_trainable, tensor_parallel.param_is_not_tensor_parallel_duplicate


def make_marked(options, config, chunks):
    for parameter in chunks[0].parameters():
        if not getattr(parameter, "allreduce", True):
            parameter.tensor_model_parallel = False
    return make_trainable(options, config, chunks)


train.make_trainable = make_marked
if MISTAKE:  # before 0.19 an expert's parameters, too, were copies on all tensor parallel ranks but the first
    tensor_parallel.param_is_not_tensor_parallel_duplicate = lambda param, tp_group=None, **_: is_no_copy(
        param, tp_group
    )
run(["--layers", "2", "--experts", "4", "--clip", "0.1"], ["--tp", "2", "--sp", "--ep", "2", "--etp", "1"])
