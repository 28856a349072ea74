"""A training program that records its own trace, as one without PyTorch does: the model of models.py."""

import argparse
import json
import os
import pathlib
import sys
import time

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from models import changed, model, shards
from traces import Tensor, record_run

parser = argparse.ArgumentParser()
parser.add_argument("--ranks", type=int, default=1)
parser.add_argument("--no-axes", action="store_true", help="nobody says how the ranks are arranged")
parser.add_argument("--wrong", help="the tensor of which one element is off")
parser.add_argument("--all-wrong", action="store_true")
parser.add_argument("--seed", type=int, help="of a parameter, which is else not recorded")
parser.add_argument("--fail", type=int, default=0, help="the exit code, without a trace")
parser.add_argument("--wait-while", type=pathlib.Path, help="do not end while this file is there")
options = parser.parse_args()

with open(os.environ["CALLS"], "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\n")
print("a line of the training program")
if options.fail:
    sys.exit(options.fail)
config = json.loads(os.environ["TTRACE_CONFIG"])
seed = config["perturb"]
facts = {
    **config["provenance"],
    **json.loads(os.environ.get("FACTS", "{}")),
    "device": os.environ.get("DEVICE", ""),
    "torch": os.environ.get("TORCH_VERSION", "2.13.0"),
    "program_files": json.loads(os.environ.get("PROGRAM_FILES", "[]")),
    "perturb_seed": seed,
    "perturb_at": config["perturb_at"],
}
tensors = [tensor.with_values(tensor.values * (1 + (seed or 0) * 2.0**-22)) for tensor in model()]
tensors = [tensor.with_values(tensor.values.astype("float32")) for tensor in tensors]
if options.wrong:
    tensors = changed(tensors, options.wrong, (0, 0), 99)
if options.all_wrong:
    tensors = [tensor.with_values(tensor.values * 2) for tensor in tensors]
if options.seed is not None:
    values = numpy.full((4, 4), options.seed, "float32")
    tensors.append(Tensor("layers.0.mlp.weight", values, kind="param", microbatch=-1))
ranks = shards(tensors, options.ranks) if options.ranks > 1 else [tensors]
record_run(
    pathlib.Path(config["directory"]),
    ranks,
    axes=f"tp={options.ranks}" if options.ranks > 1 and not options.no_axes else "",
    run_id=config["run_id"],
    provenance=json.dumps(facts),
)
while options.wait_while and options.wait_while.exists():
    time.sleep(0.02)
