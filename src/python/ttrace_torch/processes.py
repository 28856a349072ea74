"""Which process of the job is recorded as a rank: the first that calls a model with gradients. What it starts from then
on is left alone, and so are workers of a DataLoader, whatever models they call. One that steps an optimizer is a second
process that trains as a rank, which is a problem."""

import os
import sys

VARIABLE = "TTRACE_RECORDED"  # in the environment of what a recorded process starts: run id and its process id


def announce(run_id: str) -> None:
    """This process is recorded."""
    os.environ[VARIABLE] = f"{run_id} {os.getpid()}"


def withdraw() -> None:
    """This process is recorded no more."""
    os.environ.pop(VARIABLE, None)


def recorded_above(run_id: str) -> int | None:
    """The process id of the one that is recorded and has started this one; None where there is none."""
    recorded, _, process = os.environ.get(VARIABLE, "").partition(" ")
    return int(process) if recorded == run_id and process.isdigit() else None


def loads_data() -> bool:
    """Whether this is a worker of a DataLoader."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def this_process() -> str:
    """As the user knows it: "process 1234 (train.py --lr 0.1)"."""
    return f"process {os.getpid()} ({' '.join(sys.argv)[:100]})"
