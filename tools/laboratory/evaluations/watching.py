"""A job that is watched, with a fault in it at a step that the checker does not know: is it seen, and when?

`tools/laboratory/watching [--only ddp:weight ...]` trains a small transformer block on four processes over gloo, once
for each fault; the step at which it strikes is drawn. `plain` runs without `ttrace watch`, `none` is the right job, and
`frugal` the right job with the defaults of `ttrace watch`, for what they cost. All of them make the page WATCHING.md
beside this file; of some it is printed. Ends with 1 where a right job was called wrong, or a wrong one was not."""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

COMMAND = "tools/laboratory/watching"
MODES = {"ddp": "DistributedDataParallel", "fsdp2": "fully_shard", "tp": "column and row parallel linears"}
RANKS = 4
STEPS = 500
EVERY = 50  # so that a run of 500 steps has some checks; the share of time that recording may take is not bounded
PACE = 0.02  # seconds that a step waits, as for a device
RIGHT = ("plain", "frugal", "none")
FAULTS = {
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


class Row(NamedTuple):
    mode: str
    job: str  # a fault, or one of RIGHT
    at: int | None  # the step at which the fault strikes
    seen: int | None  # the first iteration that was called wrong
    checks: int
    last: int | None  # the last iteration that was checked
    seconds: float  # of training
    later: float  # of its second half
    said: str

    @property
    def is_right(self) -> bool:
        """Whether what was said is what is so."""
        return (self.seen is None) == (self.job in RIGHT) and (self.at is None or (self.seen or 0) >= self.at)


def main() -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="MODE:JOB", default=[])
    parser.add_argument("--seed", type=int, default=0, help="of the steps at which faults strike [0]")
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)  # mode, job, step of the fault
    options = parser.parse_args()
    if options.train:
        mode, job, at = options.train
        train(mode, job, int(at))
        return 0
    from freshness import commit, sentence

    from . import page

    started, measured = time.monotonic(), commit()
    drawn = random.Random(options.seed)
    rows = []
    for name in (f"{mode}:{job}" for mode in MODES for job in (*RIGHT, *FAULTS) if job not in NOT_IN.get(mode, ())):
        at = drawn.randrange(EVERY + 1, STEPS // 2)
        if options.only and name not in options.only:
            continue
        mode, job = name.split(":")
        rows.append(run_job(mode, job, None if job in RIGHT else at))
        print(" ".join(map(str, rows[-1])), file=sys.stderr, flush=True)
    made = sentence(COMMAND, time.monotonic() - started, [measured], page.machine())
    text = "\n".join(render(rows, made)) + "\n"
    if options.only:
        print(text, end="")
    else:
        (page.HERE / "WATCHING.md").write_text(text)
    return 0 if all(row.is_right for row in rows) else 1


def run_job(mode: str, job: str, at: int | None) -> Row:
    ttrace = os.environ.get("TTRACE_PROGRAM", "ttrace")
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    words += ["-m", "evaluations.watching", "--train", mode, job, str(at or STEPS)]
    with tempfile.TemporaryDirectory(prefix="ttrace-watching-") as directory:
        watched = Path(directory) / "watched"
        if job != "plain":
            how = [] if job == "frugal" else ["--every", str(EVERY), "--budget", "99%"]
            words = [ttrace, "watch", "-o", str(watched), *how, "--", *words]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
        process = subprocess.run(words, env=environment, capture_output=True, text=True)
        file = watched / "checks.jsonl"
        checks = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    if process.returncode not in (0, 1, 2):
        sys.exit(f"{mode}:{job}: exit code {process.returncode}: {process.stderr[-1000:]}")
    trained = next(line.split() for line in process.stdout.splitlines() if line.startswith("trained"))
    wrong = next((check for check in checks if check["verdict"] == "different" or _is_asked(check)), None)
    said = ""
    if wrong:
        first = wrong["wrong"][0] if wrong["wrong"] else None
        said = f"{first['tensor']}: {first['reason']}" if first else wrong["problem"]
    seen, last = wrong and wrong["iteration"], checks[-1]["iteration"] if checks else None
    return Row(mode, job, at, seen, len(checks), last, float(trained[1]), float(trained[2]), said)


def _is_asked(check: dict) -> bool:
    """Whether it could be looked at, and is asked about."""
    return check["verdict"] == "could-not-look" and check["compared"] > 0


def render(rows: list[Row], made: str) -> list[str]:
    from .markdown import table

    faulty = [row for row in rows if row.job in FAULTS]
    right = [row for row in rows if row.job in RIGHT and row.job != "plain"]
    found = [row for row in faulty if row.is_right]
    alarms = sum(not row.is_right for row in right)
    late = max((row.seen - row.at for row in found), default=0)
    lines = [
        "# Faults in jobs that are watched",
        "",
        made,
        "",
        f"A small transformer block is trained for {STEPS} steps on {RANKS} processes under `ttrace watch --every "
        f"{EVERY} --budget 99%`, each step at least {1000 * PACE:.0f} ms long; one fault strikes rank 1 at a step that "
        f"is drawn. {len(found)} of {len(faulty)} faults are seen, the last {late} steps after it struck; "
        f"**{alarms} false alarms** in {sum(row.checks for row in right)} checks of right jobs.",
        "",
    ]
    cells = [
        [row.mode, FAULTS[row.job], row.at, "no" if row.seen is None else row.seen - row.at, row.checks, row.said]
        for row in faulty
    ]
    lines += table(["job", "fault", "strikes at step", "seen, steps after", "checks", "what is said first"], cells)
    lines += ["", "## What it costs", ""]
    lines += [
        f"Seconds of {STEPS} steps, by the clock of rank 0, which keep all processors busy: checks take from the job. "
        "*Defaults*: `ttrace watch` as it is, one iteration in 100, and 2 % of the time at most. What one takes is "
        "known once two are recorded, and ranks learn of it two further ones later. Recording one takes here as long "
        "as ten steps or more: the first half says what it costs to find out, and the second what it costs then.",
        "",
    ]
    seconds = {(row.mode, row.job): row for row in rows}
    costs = []
    for mode, meaning in MODES.items():
        plain = seconds.get((mode, "plain"))
        for job, how in (("frugal", "defaults"), ("none", f"one in {EVERY}")):
            row = seconds.get((mode, job))
            if plain and row:
                ratios = [row.seconds / plain.seconds, row.later / plain.later]
                said = [f"{ratio:.3f}" for ratio in ratios]
                costs.append([mode, meaning, how, plain.seconds, row.seconds, *said, row.checks])
    header = ["job", "parallel", "watched", "plain s", "watched s", "ratio", "second half", "checks"]
    return lines + table(header, costs)


def train(mode: str, fault: str, at: int) -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    width = 64
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
    for step in range(STEPS):
        if step == STEPS // 2:
            middle = time.monotonic()
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
        time.sleep(PACE)
    if rank == 0:
        ended = time.monotonic()
        print(f"trained {ended - started:.1f} {ended - middle:.1f}")
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
