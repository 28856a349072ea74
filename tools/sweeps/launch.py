"""`launch.py N PROGRAM ARGUMENTS...`: runs a Python program as N ranks on this machine, as torchrun does. PyTorch is
imported once, with what every optimizer imports of it, and the process then forked for every rank, which takes a
fraction of torchrun's time."""

import os
import runpy
import signal
import socket
import sys


def main() -> int:
    ranks, program = int(sys.argv[1]), sys.argv[2]
    import torch._dynamo  # noqa: F401  shared by all ranks

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(_free_port()), WORLD_SIZE=str(ranks))
    children = {}
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            sys.argv = sys.argv[2:]
            sys.path[0] = os.path.dirname(os.path.abspath(program))
            runpy.run_path(program, run_name="__main__")
            return 0
        children[child] = rank
    return _wait(children)


def _wait(children) -> int:
    """The exit code of the first rank that fails; the others, which would wait for it, are stopped."""
    code = 0
    while children:
        child, status = os.wait()
        del children[child]
        failed = os.waitstatus_to_exitcode(status)
        if failed and not code:
            code = failed if failed > 0 else 1
            for other in children:
                os.kill(other, signal.SIGTERM)
    return code


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
