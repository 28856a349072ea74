"""Compares two traces with numpy: load, concatenate, relative norm, largest difference, copies equal."""

import json
import sys
import time

import numpy as np
from recorded import Trace, tp_dim


def float32(array):
    return array if array.dtype == np.float32 else (array.astype(np.uint32) << 16).view(np.float32)


def merged(trace, name):
    shards = trace.shards(name)
    if tp_dim(name) is not None:
        return float32(np.concatenate(shards, axis=tp_dim(name)))
    if not all(np.array_equal(shards[0], shard) for shard in shards[1:]):
        raise ValueError(f"{name}: copies differ")
    return float32(shards[0])


start = time.perf_counter()
traces = [Trace(directory) for directory in sys.argv[1:]]
worst = largest = 0.0
for tensor in traces[0].names:
    reference, candidate = (merged(trace, tensor) for trace in traces)
    difference = reference - candidate
    relative = np.linalg.norm(difference) / np.linalg.norm(reference)
    worst = max(worst, float(relative))
    largest = max(largest, float(np.abs(difference).max()))
size = sum(trace.bytes for trace in traces)
print(json.dumps({"bytes": size, "seconds": time.perf_counter() - start, "worst": worst, "largest": largest}))
