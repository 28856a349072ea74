"""kill -9 costs nothing that a record call has returned for."""

import os
import random
import signal
import subprocess
import sys
import time

import recorder
from conftest import PROGRAM, inspect


def kill_after(directory, seconds):
    """How many tensors the process said it had recorded when it was killed."""
    process = subprocess.Popen([sys.executable, recorder.__file__, directory], stdout=subprocess.PIPE)
    first = process.stdout.readline()
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    said = first + process.stdout.read()
    process.wait()
    return int(said.splitlines()[-1])


def test_every_recorded_tensor_outlives_a_kill(tmp_path):
    random.seed(2)
    counts = []
    for attempt in range(25):
        directory = tmp_path / str(attempt)
        recorded = kill_after(directory, random.uniform(0, 0.06))
        (rank,) = inspect(directory, "--verify", "--stats")["ranks"]
        assert not rank["complete"]
        # The last record may have been done but not said yet.
        assert len(rank["tensors"]) in (recorded, recorded + 1)
        for number, tensor in enumerate(rank["tensors"]):
            size = 1 + number * 7919 % 5000
            assert (tensor["name"], tensor["shape"], tensor["checksum_ok"]) == (f"layers.{number}", [size], True)
        counts.append(len(rank["tensors"]))
    assert len(set(counts)) > 15, "the kills did not fall at different times"


def test_a_kill_while_closing_leaves_a_whole_or_a_readable_trace(tmp_path):
    code = f"""
import sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from recorder import Dtype, Recorder
r = Recorder(sys.argv[1])
for i in range(3000):
    r.record(f"layers.{{i}}", bytes(400), Dtype.FLOAT32, (100,))
print("closing", flush=True)
r.close()
"""
    random.seed(3)
    complete = []
    for attempt in range(20):
        directory = tmp_path / str(attempt)
        process = subprocess.Popen([sys.executable, "-c", code, directory], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(random.uniform(0, 0.08))
        process.kill()
        process.wait()
        run = subprocess.run([PROGRAM, "inspect", directory, "--verify"], capture_output=True, text=True)
        assert (run.returncode, run.stderr) == (0, "")
        assert "\n3,000 tensors read, 1.1 MiB: every checksum agrees\n" in run.stdout
        complete.append("INCOMPLETE" not in run.stdout)
    # Not a claim about timing, but a trace must never be called whole while its journal is needed.
    for attempt, whole in enumerate(complete):
        journal = tmp_path / str(attempt) / "rank-00000.journal"
        assert whole or journal.exists()
