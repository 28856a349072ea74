"""A job that is watched, with a fault in it at a step that the checker does not know: is it seen, and when?

    PYTHONPATH=tools/laboratory python -m evaluations.watching [--steps 500] [--every 50] [--only ddp:weight ...]

Each job trains a small transformer block on four processes over gloo. The fault strikes at a step that is drawn. Prints
a line for each job as it ends; `plain` runs without `ttrace watch`, `none` is the right job. Ends with 1 where a right
job was called wrong."""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODES = ("ddp", "fsdp2", "tp")
RANKS = 4
FAULTS = {
    "none": "no fault",
    "weight": "a bit in one rank's weight",
    "state": "a bit in one rank's optimizer state",
    "product": "one element of one rank's product, from then on",
    "gradient": "a gradient of one rank after its reduction, from then on",
    "reduction": "an all-reduce that one step skips",
    "data": "a rank that reads another's data, from then on",
    "scale": "a loss scale that one rank misses, from then on",
    "bits": "several bits of one rank's weight",
}
# Where all ranks hold one part each, nothing is reduced by DDP, and all are given the same data.
NOT_IN = {"fsdp2": {"reduction"}, "tp": {"reduction", "data"}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--budget", default="99%")
    parser.add_argument("--pace", type=float, default=0.02, help="seconds that a step waits, as for a device")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", metavar="MODE:FAULT", default=[])
    parser.add_argument("--train", nargs=4, help=argparse.SUPPRESS)  # mode, fault, step of the fault, width
    options = parser.parse_args()
    if options.train:
        mode, fault, at, width = options.train
        train(mode, fault, int(at), options.steps, int(width), options.pace)
        return 0
    jobs = [f"{m}:{f}" for m in MODES for f in ("plain", *FAULTS) if f not in NOT_IN.get(m, ())]
    drawn = random.Random(options.seed)
    print("| job | strikes at | first seen | after | checks | seconds | what is said |\n|---|---|---|---|---|---|---|")
    false_alarms = 0
    for job in options.only or jobs:
        mode, fault = job.split(":")
        at = drawn.randrange(options.every + 1, options.steps // 2)
        line, is_wrong = run_job(options, mode, fault, at)
        print(f"| {job} | {line}", flush=True)
        false_alarms += is_wrong and fault == "none"
    return 1 if false_alarms else 0


def run_job(options: argparse.Namespace, mode: str, fault: str, at: int) -> tuple[str, bool]:
    ttrace = os.environ.get("TTRACE_PROGRAM", "ttrace")
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    words += ["-m", "evaluations.watching", "--steps", str(options.steps), "--pace", str(options.pace)]
    words += ["--train", mode, "none" if fault == "plain" else fault, str(at), str(options.width)]
    with tempfile.TemporaryDirectory(prefix="ttrace-watching-") as directory:
        watched = Path(directory) / "watched"
        if fault != "plain":
            how = ["-o", str(watched), "--every", str(options.every), "--budget", options.budget]
            words = [ttrace, "watch", *how, "--", *words]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), "OMP_NUM_THREADS": "1"}
        started = time.monotonic()
        process = subprocess.run(words, env=environment, capture_output=True, text=True)
        seconds = time.monotonic() - started
        trained = next((line.split()[1] for line in process.stdout.splitlines() if line.startswith("trained")), "?")
        lines = (watched / "checks.jsonl").read_text().splitlines() if (watched / "checks.jsonl").exists() else []
    checks = [json.loads(line) for line in lines]
    wrong = [check for check in checks if check["verdict"] == "different"]
    seen = wrong[0]["iteration"] if wrong else None
    said = f"{wrong[0]['wrong'][0]['tensor']}: {wrong[0]['wrong'][0]['reason']}" if wrong else ""
    if process.returncode not in (0, 1):
        said += f" exit code {process.returncode}: {process.stderr[-300:]!r}"
    after = "" if seen is None or fault == "none" else seen - at
    found = "-" if seen is None else seen
    ended = f"{len(checks)}, the last of {checks[-1]['iteration']}" if checks else "-"
    strikes = "-" if fault in ("plain", "none") else at
    return f"{strikes} | {found} | {after} | {ended} | {trained} of {seconds:.0f} | {said} |", bool(wrong)


def train(mode: str, fault: str, at: int, steps: int, width: int, pace: float) -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Embedding(256, width),
        torch.nn.Linear(width, 4 * width),
        torch.nn.GELU(),
        torch.nn.Linear(4 * width, width),
        torch.nn.LayerNorm(width),
        torch.nn.Linear(width, 256),
    )
    model = parallel(mode, net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    scale = 1024.0
    started = time.monotonic()
    for step in range(steps):
        strikes = step >= at and rank == 1
        source = 0 if mode == "tp" or (fault == "data" and strikes) else rank
        ids = torch.randint(256, (8, 16), generator=torch.Generator().manual_seed(1000 * step + source))
        product = net[3].register_forward_hook(spoil) if fault == "product" and strikes else None
        skipped = mode == "ddp" and fault == "reduction" and step == at
        with model.no_sync() if skipped else torch.enable_grad():
            loss = torch.nn.functional.cross_entropy(whole(model(ids)).flatten(0, 1), ids.flatten())
            (loss * (1.0 if fault == "scale" and strikes else scale)).backward()
        if product:
            product.remove()
        for parameter in net.parameters():
            parameter.grad /= scale
        if fault == "gradient" and strikes:
            local(net[3].weight.grad)[1] *= 1.5
        optimizer.step()
        if rank == 1 and step == at:
            if fault == "weight":
                flip(local(net[3].weight.data), 0x00400000)
            if fault == "bits":
                flip(local(net[3].weight.data), 0x005A5A00)
            if fault == "state":
                flip(local(optimizer.state[net[3].weight]["exp_avg"]), 0x00400000)
        optimizer.zero_grad()
        time.sleep(pace)
    if rank == 0:
        print(f"trained {time.monotonic() - started:.1f}")
    dist.destroy_process_group()


def parallel(mode, net):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    if mode == "ddp":
        return torch.nn.parallel.DistributedDataParallel(net)
    if mode == "tp":
        mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
        return parallelize_module(net, mesh, {"1": ColwiseParallel(), "3": RowwiseParallel()})
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
    return fully_shard(net, mesh=mesh)


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def flip(tensor, mask: int) -> None:
    import torch

    bits = tensor.view(-1)[17:18].view(torch.int32)
    bits ^= mask


def spoil(module, inputs, output):
    changed = output.clone()
    local(changed).view(-1)[5] += 1.0
    return changed


if __name__ == "__main__":
    sys.exit(main())
