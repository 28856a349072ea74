"""`estimate-tolerance --jobs`: runs side by side end together, and say where what they print is."""

import os
import pty
import signal
import subprocess
import time

import pytest

from traces import PROGRAM


def command(runs, script, jobs=2):
    return [
        PROGRAM,
        "estimate-tolerance",
        "-j",
        str(jobs),
        "-o",
        f"{runs}.yaml",
        "--runs",
        str(runs),
        "--",
        "sh",
        "-c",
        script,
    ]


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_pids(path, count):
    for _ in range(300):
        pids = path.read_text().split() if path.exists() else []
        if len(pids) == count:
            return [int(pid) for pid in pids]
        time.sleep(0.1)
    raise AssertionError(f"{count} commands did not start")


def test_the_first_run_that_fails_is_shown_and_stops_the_others(tmp_path):
    runs, pids = tmp_path / "runs", tmp_path / "pids"
    # The second to start fails once the first is there; the first would take a minute.
    script = f"echo $$ >> {pids}; if mkdir {tmp_path}/first; then exec sleep 60; else echo no luck; exit 3; fi"
    started = time.monotonic()
    result = subprocess.run(command(runs, script), capture_output=True, text=True, timeout=50)
    assert result.returncode == 2 and time.monotonic() - started < 40
    lines = result.stderr.splitlines()
    assert "no luck" in lines and lines[-1].startswith(f"ttrace: error: {runs}/"), result.stderr
    assert ": could not be collected, exit code 3; expected a command that ends with 0" in lines[-1]
    pids = wait_for_pids(pids, 2)  # no third was started
    assert not any(map(is_running, pids))


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_signal_ends_all_runs(tmp_path, jobs):
    runs, pids = tmp_path / "runs", tmp_path / "pids"
    script = f"echo $$ >> {pids}; exec sleep 60"
    with subprocess.Popen(command(runs, script, jobs), stderr=subprocess.PIPE, text=True) as process:
        running = wait_for_pids(pids, jobs)
        process.send_signal(signal.SIGTERM)
        _, messages = process.communicate(timeout=30)
    assert process.returncode == 2 and f"exit code {128 + signal.SIGTERM};" in messages, messages
    assert not any(map(is_running, running)) and len(wait_for_pids(pids, jobs)) == jobs


def test_the_terminals_interrupt_ends_all_runs(tmp_path):
    runs, pids, messages = tmp_path / "runs", tmp_path / "pids", tmp_path / "messages"
    child, terminal = pty.fork()
    if child == 0:
        # Not to the terminal, which may lose what is printed while it handles the interrupt.
        os.dup2(os.open(messages, os.O_WRONLY | os.O_CREAT), 2)
        os.execv(PROGRAM, command(runs, f"echo $$ >> {pids}; exec sleep 60"))
    running = wait_for_pids(pids, 2)
    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    os.close(terminal)
    assert f"exit code {128 + signal.SIGINT};" in messages.read_text(), messages.read_text()
    assert not any(map(is_running, running))
