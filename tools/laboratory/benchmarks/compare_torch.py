"""Compares two traces with torch: load, concatenate, relative norm, allclose, copies equal."""

import json
import sys
import time

import torch
from recorded import Trace, tp_dim


def merged(trace, name):
    shards = [torch.from_numpy(array) for array in trace.shards(name)]
    shards = [shard.view(torch.bfloat16) if shard.dtype == torch.uint16 else shard for shard in shards]
    if tp_dim(name) is not None:
        return torch.cat(shards, dim=tp_dim(name)).float()
    if not all(torch.equal(shards[0], shard) for shard in shards[1:]):
        raise ValueError(f"{name}: copies differ")
    return shards[0].float()


start = time.perf_counter()
traces = [Trace(directory) for directory in sys.argv[1:]]
worst = 0.0
close = True
for tensor in traces[0].names:
    reference, candidate = (merged(trace, tensor) for trace in traces)
    relative = torch.linalg.vector_norm(reference - candidate) / torch.linalg.vector_norm(reference)
    worst = max(worst, float(relative))
    close &= torch.allclose(reference, candidate, rtol=0.02)
size = sum(trace.bytes for trace in traces)
print(json.dumps({"bytes": size, "seconds": time.perf_counter() - start, "worst": worst, "close": close}))
