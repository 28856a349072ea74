"""What goes wrong, or is unusual, in job.py. Each function gets the job and the number of the step about to begin, and
returns whether it has done that step itself."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import nn

_in_forward = []  # functions of a block's input, each called once


def in_forward(x):
    return _in_forward.pop()(x) if _in_forward else x


def nothing(job, step):
    pass


# Ends of a process.


def say_process(job, step):
    (job.results / f"process-{job.rank}").write_text(f"{os.getpid()}\n")


def kill(job, step):
    os.kill(os.getpid(), signal.SIGKILL)


def terminate(job, step):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)


def interrupt(job, step):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)


def segfault(job, step):
    os.kill(os.getpid(), signal.SIGSEGV)


def exit_at_once(job, step):
    os._exit(0)


def exit_at_once_with_3(job, step):
    os._exit(3)


def exit_with_0(job, step):
    sys.exit(0)


def exit_with_4(job, step):
    sys.exit(4)


def exit_in_forward(job, step):
    _in_forward.append(lambda x: os._exit(0))


def leave_alone(job, step):
    """From now on no rank waits for another. This one ends."""
    torch.distributed.barrier()
    job.together = False
    if job.rank == 1:
        os._exit(0)


def replace_process(job, step):
    os.execvp("true", ["true"])


# Exceptions.


def _raise(error):
    raise error


class _FailsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        raise RuntimeError("backward fails")


def raise_in_forward(job, step):
    _in_forward.append(lambda x: _raise(RuntimeError("forward fails")))


def raise_in_backward(job, step):
    _in_forward.append(_FailsInBackward.apply)


def leave_out_a_batch_whose_forward_raises(job, step):
    raise_in_forward(job, step)
    try:
        job.loss(step)
    except RuntimeError as error:
        job.say(error)


def leave_out_a_batch_whose_backward_raises(job, step):
    raise_in_backward(job, step)
    try:
        job.loss(step).backward()
    except RuntimeError as error:
        job.say(error)


def catch_timeouts(job, step):
    """A handler raises wherever the program is: it must always come through to the program."""
    caught, fired = 0, 0

    def handler(*_):
        nonlocal fired
        fired += 1
        raise TimeoutError("this took too long")

    before = signal.signal(signal.SIGALRM, handler)
    for attempt in range(40):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.0005 * (attempt % 10))
            while True:
                job.loss(step)
        except TimeoutError:
            caught += 1
    signal.signal(signal.SIGALRM, before)
    job.say(f"timeouts {fired - caught} lost")


# Output.


def no_stderr(job, step):
    _warn_with_stderr(None)


def stderr_that_raises(job, step):
    class Odd:
        def write(self, text):
            raise KeyError(text)

        def __getattr__(self, name):
            raise TypeError(name)

    _warn_with_stderr(Odd())


def _warn_with_stderr(instead):
    def odd(x):
        before, sys.stderr = sys.stderr, instead
        try:
            nn.Identity()(x.detach().to_mkldnn())  # a warning is about its layout
            return x
        finally:
            sys.stderr = before

    _in_forward.append(odd)


# The directory of the trace. Without ttrace there is none.


def _directory():
    config = os.environ.get("TTRACE_CONFIG")
    return Path(json.loads(config)["directory"]) if config else None


def remove_directory(job, step):
    if _directory():
        shutil.rmtree(_directory())


def make_directory_read_only(job, step):
    """Its file system is one of its own."""
    if _directory():
        subprocess.run(["mount", "-o", "remount,ro", _directory().parent], check=True)


def move_directory(job, step):
    if _directory():
        _directory().rename(f"{_directory()}-moved")


def replace_directory_by_file(job, step):
    if _directory():
        shutil.rmtree(_directory())
        _directory().write_text("in the way")


# Processes.


def _wait(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _fork(work, end=os._exit):
    child = os.fork()
    if child == 0:
        work()
        end(0)
    return _wait(child)


def fork_that_exits(job, step):
    job.say(f"child {_fork(lambda: None, sys.exit)}")


def fork_that_evaluates(job, step):
    job.say(f"child {_fork(lambda: job.loss(step))}")


def fork_that_trains(job, step):
    def work():
        job.together = False
        job.say = lambda text: None
        job.step(step)

    job.say(f"child {_fork(work)}")


_FORWARD = "import torch\nloss = torch.nn.Linear(3, 3)(torch.ones(2, 3)).sum()\n"
_TRAINS = """
import torch
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
"""


def _run(*command):
    return subprocess.run(command, capture_output=True, text=True)


def subprocess_without_python(job, step):
    job.say(_run("sh", "-c", "echo $0; exit 3", "hello"))


def subprocess_of_another_python(job, step):
    text = "import sys; print(sys.argv[1:], sys.modules.get('torch'), [n for n in sys.modules if 'ttrace' in n])"
    ran = _run("/usr/bin/python3", "-c", text, "x")
    job.say((ran.returncode, ran.stdout, ran.stderr))


def subprocess_without_torch(job, step):
    ran = _run(sys.executable, "-c", "import sys; print(sorted(n for n in sys.modules if 'ttrace' in n)); sys.exit(2)")
    job.say((ran.returncode, ran.stdout, ran.stderr))


def subprocess_isolated(job, step):
    ran = _run(sys.executable, "-I", "-c", _FORWARD + "print(loss.item() == loss.item())")
    job.say((ran.returncode, ran.stdout))


def subprocess_that_evaluates(job, step):
    ran = _run(sys.executable, "-c", _FORWARD)
    job.say((ran.returncode, ran.stdout, ran.stderr))


def subprocess_that_trains(job, step):
    ran = _run(sys.executable, "-c", _TRAINS)
    job.say((ran.returncode, ran.stdout))


def subprocess_of_a_subprocess_that_trains(job, step):
    ran = _run("sh", "-c", '"$0" -c "$1"', sys.executable, _TRAINS)
    job.say((ran.returncode, ran.stdout))


class _Data(torch.utils.data.Dataset):
    """Its items come through a module with parameters, as features that a frozen model makes do."""

    def __init__(self, with_model):
        torch.manual_seed(3)
        self.model = nn.Linear(2, 2) if with_model else None

    def __len__(self):
        return 8

    def __getitem__(self, index):
        x = torch.full((2,), float(index))
        return self.model(x).detach() if self.model is not None else x


def _load(job, with_model, method, persistent=False):
    data = _Data(with_model)
    loader = torch.utils.data.DataLoader(
        data, batch_size=4, num_workers=2, multiprocessing_context=method, persistent_workers=persistent
    )
    job.say([float(batch.sum()).hex() for batch in loader])


def workers_forked(job, step):
    _load(job, False, "fork")


def workers_spawned(job, step):
    _load(job, False, "spawn")


def workers_forked_with_model(job, step):
    _load(job, True, "fork", persistent=True)


def workers_spawned_with_model(job, step):
    _load(job, True, "spawn")


# Threads.


def _in_thread(work):
    thread = threading.Thread(target=work, name="helper")
    thread.start()
    return thread


def thread_that_evaluates(job, step):
    def work():
        with torch.no_grad():
            for _ in range(20):
                other(torch.ones(2, 3))

    other = nn.Linear(3, 3)
    thread = _in_thread(work)
    job.step(step)
    thread.join()
    return True


def thread_that_computes_a_metric(job, step):
    def work():
        for _ in range(200):
            nn.MSELoss()(torch.ones(2, 3), torch.zeros(2, 3))

    thread = _in_thread(work)
    job.step(step)
    thread.join()
    return True


def _train_other(steps=20):
    other = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(0.25)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        other(torch.ones(2, 3)).sum().backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), 0.5)
        optimizer.step()
    return other


def thread_that_trains_another_model(job, step):
    thread = _in_thread(_train_other)
    job.step(step)
    thread.join()
    return True


def threads_that_begin_together(job, step):
    """Both open the file, unless one is told from the other."""
    barrier, over = threading.Barrier(2), threading.Event()

    def work():
        barrier.wait()
        _train_other()
        over.wait()

    thread = _in_thread(work)
    barrier.wait()
    job.step(step)
    over.set()
    thread.join()
    return True


def train_in_a_thread(job, step):
    thread = _in_thread(lambda: job.step(step))
    thread.join()
    return True


def train_in_a_new_thread_each_step(job, step):
    step_here = job.step

    def step_there(each):
        _in_thread(lambda: step_here(each)).join()

    job.step = step_there


def backward_in_a_thread(job, step):
    job.backward = lambda loss: _in_thread(loss.backward).join()


def parts_in_threads(job, step):
    """The model calls parts of itself in threads of a pool."""
    pool = ThreadPoolExecutor(1)

    def forward_in_pool(tokens):
        x = pool.submit(job.model.embedding, tokens).result()
        for block in job.model.blocks:
            x = pool.submit(block, x).result()
        return job.model.head(x)

    job.model.forward = forward_in_pool


def threads_that_share_the_model(job, step):
    """The other one calls it while this one is in its forward."""

    def work():
        torch.autograd.grad(job.model(job.batches[0, 0]).sum(), job.model.head.weight)

    def call_beside(x):
        _in_thread(work).join()
        return x

    _in_forward.append(call_beside)


# Models.


def _deep(depth):
    class Nest(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.i = inner

        def forward(self, x):
            return self.i(x)

    model = nn.Linear(2, 2)
    for _ in range(depth):
        model = Nest(model)
    return model


def deep_model(job, step):
    """As deep as Python's limit on recursion allows without ttrace."""
    model = _deep(200)
    limit = sys.getrecursionlimit()
    model(torch.ones(1, 2)).sum().backward()
    assert sys.getrecursionlimit() == limit
    job.say([p.grad.sum().item().hex() for p in model.parameters()])


def _with_names(job, names):
    model = nn.ModuleDict({name: nn.Linear(2, 2) for name in names})
    model.forward = lambda x: [layer(x) for layer in model.values()][-1]
    model(torch.ones(1, 2)).sum().backward()
    job.say(len(names))


def odd_names(job, step):
    _with_names(job, ["a\0b", "a\0c", "line\nbreak", "\ud800", "\u2215", "/", "#1", "a b", "\u202e", "."[:0] + "\x7f"])


def long_names(job, step):
    _with_names(job, ["n" * 4000, "n" * 5000, "n" * 5000 + "m", "n" * 70000])


def long_class_name(job, step):
    odd = type("C" * 10000, (nn.Linear,), {})
    odd(2, 2)(torch.ones(1, 2)).sum().backward()
