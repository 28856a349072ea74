"""tinygpt whose attention is struck once: `attention_with_fault.py MATRIX,RANK,CALL,HEAD,ROW,COLUMN,VALUE
ARGUMENTS...`.

In RANK's call number CALL of attention one element of MATRIX, of that head of the rank and of sample 0, becomes VALUE:
a number, `inf`, `nan`, or `flip` for its highest exponent bit. MATRIX is `scores` or `context`, as they are computed;
or `queries` or `keys`, as they are read for the scores, after they were recorded. `none` leaves attention as it is."""

import itertools
import math
import os
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools"))
from tinygpt import attention, train


def struck(matrix, fault):
    """A copy of [b, heads, rows, columns] with the fault in it; autograd sees an addition."""
    head, row, column = (int(word) for word in fault[:3])
    found = matrix.detach()[0, head, row, column]
    if fault[3] == "flip":
        bits, integer = (14, torch.int16) if found.dtype == torch.bfloat16 else (30, torch.int32)
        wrong = (found.view(integer) ^ (1 << bits)).view(found.dtype)
    else:
        wrong = torch.tensor(float(fault[3]), dtype=found.dtype)
    copy = matrix.clone()
    copy.data[0, head, row, column] = wrong
    return copy


def install(fault):
    where, rank, call, *fault = fault.split(",")
    calls = itertools.count()

    def faulty(query, key, value, hidden, softmax):
        strikes = next(calls) == int(call) and os.environ.get("RANK", "0") == rank

        def seen(name, matrix):
            return struck(matrix, fault) if strikes and name == where else matrix

        query, key, value = (x.permute(1, 2, 0, 3) for x in (query, key, value))
        scores = seen("queries", query) @ seen("keys", key).transpose(-1, -2) / math.sqrt(query.shape[-1])
        context = softmax(seen("scores", scores), hidden) @ value
        return seen("context", context).permute(2, 0, 1, 3)

    attention.attention = faulty


if __name__ == "__main__":
    if sys.argv[1] != "none":
        install(sys.argv[1])
    train.main(sys.argv[2:])
