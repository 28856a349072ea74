"""`launch.py N PROGRAM ARGUMENTS...`: runs a Python program as N ranks on this machine, as torchrun does. PyTorch is
imported once, with what every optimizer imports of it, and the process then forked for every rank, which takes a
fraction of torchrun's time."""

import gc
import os
import signal
import socket
import sys
from typing import NoReturn


class Rendezvous:
    """Where ranks meet that are forked from here. A port that is looked up, let go and bound seconds later may by then
    be another's; this one is bound before any rank starts."""

    def __init__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))

    def join(self, rank: int, ranks: int) -> None:
        """In a forked rank: tells `torch.distributed` what torchrun's agent, which serves the store, tells ranks."""
        address, port = self._socket.getsockname()
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR=address)
        os.environ.update(MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")

    def serve(self) -> object:
        """Once the ranks are forked. They can meet for as long as the result is kept."""
        from torch.distributed import TCPStore

        address, port = self._socket.getsockname()
        return TCPStore(address, port, is_master=True, wait_for_workers=False, master_listen_fd=self._socket.detach())


def main() -> NoReturn:
    ranks = int(sys.argv[1])
    import torch._dynamo  # noqa: F401  shared by all ranks
    from ending import leave, run_and_leave  # this is a program; tests import it for its path

    gc.freeze()  # a collection in a rank would copy what it visits

    rendezvous = Rendezvous()
    children = {}
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            rendezvous.join(rank, ranks)
            run_and_leave(sys.argv[2:])
        children[child] = rank
    store = rendezvous.serve()  # noqa: F841
    leave(_wait(children))


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


if __name__ == "__main__":
    main()
