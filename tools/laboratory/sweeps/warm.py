"""`warm.py PROGRAM ARGUMENTS...`: runs a Python program as `python PROGRAM ARGUMENTS...` does, in a process forked from
a server that has imported PyTorch, with what every optimizer imports of it, or another package. That is most of the
time of a short run.
Without a server, of which the environment variable TTRACE_WARM has the socket, the program runs right here.
`warm.py --during COMMAND...` runs a command with one server for all that ask for one of this Python below it.

A request is one message: arguments, environment and directory in JSON, and the client's stdin, stdout and stderr. The
server forks a keeper for it, and the keeper the program. The client sends the signals that it gets, and is sent the
exit code, which is negative after a signal."""

import contextlib
import gc
import importlib
import json
import os
import pathlib
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time

SOCKET = "TTRACE_WARM"
SHARED = "TTRACE_WARM_SHARED"  # Python and socket of the server of a whole command
LAUNCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launch.py")
_MOST_BYTES = 1 << 18  # of a request
_TORCH = "torch._dynamo"
# Python and torchrun as users type them: a program of one process, or of ranks on this machine, is the server's;
# whatever else they are asked for, the real ones do.
_STAND_INS = {
    "python": """\
#!/bin/sh
case "$1" in
  *.py) exec {python} {warm} "$@" ;;
  *) exec {python} "$@" ;;
esac
""",
    "torchrun": """\
#!/bin/sh
case "$1 $2 $4" in
  "--standalone --nproc-per-node "*.py) ranks=$3; shift 3; exec {python} {warm} {launch} "$ranks" "$@" ;;
  *) exec {python} -m torch.distributed.run "$@" ;;
esac
""",
}


def command(*program: object, ranks: int = 1, python: object = sys.executable) -> list[str]:
    """Runs a Python program as that many ranks, by the server where there is one."""
    launch = [LAUNCH, ranks] if ranks > 1 else []
    return [str(word) for word in (python, __file__, *launch, *program)]


def stand_ins(directory: pathlib.Path, python: object = sys.executable) -> None:
    """Writes a `python` and a `torchrun` there, for the front of PATH, whose programs are run as by `command`."""
    words = {"python": python, "warm": os.path.abspath(__file__), "launch": LAUNCH}
    quoted = {name: shlex.quote(str(word)) for name, word in words.items()}
    for name, script in _STAND_INS.items():
        path = directory / name
        path.write_text(script.format(**quoted))
        path.chmod(0o755)


@contextlib.contextmanager
def server(python: object = sys.executable, package: str = _TORCH):
    """Programs that are started by this script below this process are quick while it lasts. Those of another package
    than PyTorch do without it: nothing in them is recorded that does not record itself."""
    shared_python, _, shared = os.environ.get(SHARED, "").rpartition(os.pathsep)
    is_shared = shared_python == str(python) and package == _TORCH
    with contextlib.nullcontext(shared) if is_shared else _started(python, package) as path:
        os.environ[SOCKET] = path
        try:
            yield
        finally:
            del os.environ[SOCKET]


@contextlib.contextmanager
def _started(python: object, package: str = _TORCH):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "socket")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen([python, __file__, "--serve", path, package], stdin=subprocess.PIPE, env=environment)
        while not os.path.exists(path) and process.poll() is None:
            time.sleep(0.01)
        try:
            yield path
        finally:
            process.stdin.close()
            process.wait()


def main() -> int:
    if sys.argv[1] == "--serve":
        return _serve(sys.argv[2], sys.argv[3])
    if sys.argv[1] == "--during":
        with _started(sys.executable) as path:
            environment = {**os.environ, SHARED: f"{sys.executable}{os.pathsep}{path}"}
            return subprocess.call(sys.argv[2:], env=environment)
    if SOCKET in os.environ:
        return _ask(os.environ[SOCKET])
    return _run(sys.argv[1:])


def _run(arguments) -> int:
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
    runpy.run_path(arguments[0], run_name="__main__")
    return 0


# The client.


def _ask(path: str) -> int:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(path)
    request = {"arguments": sys.argv[1:], "environment": dict(os.environ), "directory": os.getcwd()}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: connection.send(str(int(number)).encode()))
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
    answer = connection.recv(16)
    if not answer:
        sys.exit("warm.py: the server is gone")
    code = int(answer)
    if code < 0:
        with contextlib.suppress(OSError):  # of a signal that nobody handles
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


# The server.


def _serve(path: str, package: str) -> int:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(64)
    importlib.import_module(package)
    from ending import run_and_leave

    gc.collect()
    gc.freeze()  # a collection in a program would copy what it visits

    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass  # keepers that have ended
        if sys.stdin in ready:
            return 0  # who has started the server is gone
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            run_and_leave(_begin(_keep(connection)))
        connection.close()


def _keep(connection: socket.socket) -> dict:
    """Returns the request in the process that is to run it; the keeper ends in here."""
    message, descriptors, _, _ = socket.recv_fds(connection, _MOST_BYTES, 3)
    program = os.fork()
    if program == 0:
        connection.close()
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
            os.close(descriptor)
        return json.loads(message)
    for descriptor in descriptors:
        os.close(descriptor)
    ended = os.pidfd_open(program)
    listened = [ended, connection]
    while ended not in select.select(listened, [], [])[0]:
        received = connection.recv(16)
        os.kill(program, int(received) if received else signal.SIGKILL)  # nothing: the client is gone
        if not received:
            listened.remove(connection)
    with contextlib.suppress(OSError):
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])).encode())
    os._exit(0)


def _begin(request: dict) -> list[str]:
    """Makes this process the one that was asked for; returns the arguments of its program."""
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[1:1] = paths
    if "TTRACE_CONFIG" in os.environ and _TORCH in sys.modules:
        # As Python would at its start.
        runpy.run_path(os.path.join(paths[0], "sitecustomize.py"))["install_now"]()
    return request["arguments"]


if __name__ == "__main__":
    sys.exit(main())
