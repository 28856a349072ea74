"""Through every way in which Python processes come into being, and to every end that they may come to."""

import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import HERE, PYTHON, TTRACE, program

TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
TORCHRUN += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
RANKS = HERE / "programs" / "ranks.py"


def check_two_ranks(collected):
    assert collected.code == 0, collected.process.stderr
    assert sorted(path.name for path in collected.directory.iterdir()) == ["rank-00000.h5", "rank-00001.h5"]
    first, second = collected.rank(0), collected.rank(1)
    assert first.complete and second.complete
    assert first.attributes["run_id"] == second.attributes["run_id"]
    assert (first.attributes["world_size"], second.attributes["rank"]) == (2, 1)
    assert second.attributes["coordinates"] == '{"dp":1}'
    assert set(first.all) == set(second.all)
    assert collected.messages[0].startswith("ttrace: collected 2 ranks, ")


def test_torchrun_gives_one_file_per_rank_and_none_for_its_agent(collect):
    check_two_ranks(collect("--axes", "dp=2", command=[*TORCHRUN, RANKS]))


@pytest.mark.parametrize("method", ["--spawn", "--fork"])
def test_multiprocessing_gives_one_file_per_rank(collect, method):
    check_two_ranks(collect("--axes", "dp=2", command=program("ranks", method)))


def test_axes_come_from_the_programs_device_mesh_and_names_from_within_ddp(collect):
    collected = collect(command=program("ranks", "--fork", "--device-mesh", "--ddp"))
    check_two_ranks(collected)
    assert collected.rank().names("output", 0) == ["embedding", "head", "(model)"]
    assert collected.rank().names("param") == ["embedding.weight", "head.weight", "head.bias"]
    same = [collected.rank(rank).tensors["main_grad", "head.bias", -1].tobytes() for rank in (0, 1)]
    assert same[0] == same[1]


def test_a_rank_that_crashes_leaves_its_exit_code_to_torchrun_and_an_incomplete_trace(collect):
    command = [*TORCHRUN, RANKS, "--steps", "3", "--crash", "1"]
    collected = collect("--axes", "dp=2", "--iterations", "0,1", command=command)
    assert collected.code == 1  # torchrun's
    assert "this rank fails" in collected.process.stderr
    assert collected.messages[-1] == "ttrace: error: the command exited with code 1; the trace is marked incomplete"
    assert any(message.startswith("ttrace: collected 2 ranks, ") for message in collected.messages)


def test_an_uncaught_exception_passes_through_with_its_traceback_and_leaves_an_incomplete_trace(collect):
    collected = collect("--iterations", "0,1", command=program("small", "--fail-at", "1"))
    assert collected.code == 1
    assert "RuntimeError: the training program fails" in collected.process.stderr
    assert not collected.rank().complete
    assert ("main_grad", "head.weight", -1) in collected.rank().tensors
    assert collected.messages[-1] == "ttrace: error: the command exited with code 1; the trace is marked incomplete"


def test_a_command_that_fails_after_recording_leaves_no_completion_mark(collect):
    command = program("small", "--steps", "1")
    collected = collect(command=["sh", "-c", f"{' '.join(map(str, command))}; exit 7"])
    assert collected.code == 7
    assert not collected.rank().complete
    assert collected.messages[-1] == "ttrace: error: the command exited with code 7; the trace is marked incomplete"


def inspect(directory, *options):
    return subprocess.run([TTRACE, "inspect", directory, *options], capture_output=True, text=True)


def tensor_rows(directory):
    """The fields of each line that lists a tensor."""
    lines = inspect(directory).stdout.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.startswith("rank  iter"))
    return [tuple(line.split()) for line in lines[heading + 1 :]]


def test_a_killed_program_leaves_what_was_recorded_readable(collect):
    killed = collect("--iterations", "0,1", command=program("small", "--kill-at", "1"))
    assert killed.code == 128 + signal.SIGKILL
    assert killed.messages[-1] == (
        "ttrace: error: the command was killed by signal 9 (Killed); the trace is marked incomplete"
    )
    assert sorted(path.name for path in killed.directory.iterdir()) == ["rank-00000.h5", "rank-00000.journal"]
    assert "INCOMPLETE" in inspect(killed.directory).stdout
    whole = collect("--iterations", "0,1", command=program("small", "--steps", "2"))
    left, expected = tensor_rows(killed.directory), tensor_rows(whole.directory)
    assert left == expected[: len(left)]
    # It was killed between the second backward pass and the optimizer's step.
    of_the_step = {"main_grad", "param_delta", "param_after"}
    assert expected[len(left) :] == [row for row in expected if row[1] == "1" and row[3] in of_the_step]
    verified = inspect(killed.directory, "--verify")
    assert verified.returncode == 0 and "every checksum" in verified.stdout, verified


def test_a_full_disk_ends_the_recording_and_not_the_training(collect):
    command = program("small", "--steps", "2")
    # 8 blocks of 1 KiB for any file stand for the disk.
    collected = collect(command=["bash", "-c", f"ulimit -f 8; exec {' '.join(map(str, command))}"])
    assert collected.code == 2
    assert "parameters" in collected.stdout
    text = "\n".join(collected.messages)
    assert "rank-00000" in text and "ttrace: error: rank 0: " in text, text


def test_a_running_command_gets_the_signal_that_ttrace_is_sent(tmp_path):
    command = [
        TTRACE,
        "collect",
        "-o",
        tmp_path / "trace",
        "--",
        PYTHON,
        "-c",
        "import sys, time; print('up', flush=True); time.sleep(60)",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        _, messages = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert messages == "ttrace: error: the command was killed by signal 15 (Terminated); nothing was recorded\n"


def test_the_terminals_interrupt_reaches_the_command_once(tmp_path):
    text = "import signal, time\ncount = 0\ndef add(*_):\n    global count; count += 1\n"
    text += "signal.signal(signal.SIGINT, add)\n"
    text += "print('up', flush=True)\nend = time.monotonic() + 1.5\nwhile time.monotonic() < end: time.sleep(0.1)\n"
    text += "print('interrupts:', count)"
    child, terminal = pty.fork()
    if child == 0:
        os.execv(TTRACE, [TTRACE, "collect", "-o", str(tmp_path / "trace"), "--", PYTHON, "-c", text])
    output = b""
    while True:
        try:
            output += os.read(terminal, 1000)
        except OSError:
            break  # both have closed the terminal
        if output.count(b"up") == 1 and b"^C" not in output:
            os.write(terminal, b"\x03")
            time.sleep(0.2)
    os.close(terminal)
    os.waitpid(child, 0)
    assert b"interrupts: 1" in output


def test_a_command_that_is_not_python_is_told_from_a_trace(collect):
    collected = collect(command=["echo", "hello"])
    assert (collected.code, collected.stdout) == (2, "hello\n")
    assert collected.process.stderr.startswith("ttrace: error: nothing was recorded; expected a Python program")


def test_a_command_that_does_not_exist_exits_as_with_env(collect):
    collected = collect(command=["no-such-command"])
    assert collected.code == 127
    assert collected.process.stderr == "ttrace: error: no-such-command: No such file or directory; expected a command\n"


def test_the_commands_arguments_and_stdin_are_its_own(collect):
    collected = collect(command=["sh", "-c", 'cat; echo "$@"', "sh", "--", "-o", "x", "--axes"], input="from stdin ")
    assert collected.stdout == "from stdin -- -o x --axes\n"


def test_a_directory_that_holds_something_is_left_alone(collect, tmp_path):
    (tmp_path / "trace1").mkdir()
    (tmp_path / "trace1" / "precious").touch()
    collected = collect(command=["echo", "hello"])
    assert (collected.code, collected.stdout) == (2, "")
    directory = collected.directory
    assert collected.process.stderr == (
        f"ttrace: error: {directory}: already exists; expected a new or an empty directory "
        f"(rm -r {directory} removes it)\n"
    )


def test_the_users_own_sitecustomize_runs(collect, tmp_path, script):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("import builtins; builtins.mine = 'ran'\n")
    text = "import sys, torch; print(mine, sys.modules['sitecustomize'].__file__)\n"
    text += "torch.nn.Linear(2, 2)(torch.ones(2, 2))"
    collected = collect(command=script(text), environment={"PYTHONPATH": str(tmp_path / "mine")})
    assert collected.code == 0, collected.process.stderr
    assert collected.stdout == f"ran {tmp_path / 'mine' / 'sitecustomize.py'}\n"


def test_modules_and_subprocesses_are_collected_too(collect, tmp_path, script):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(Path(program("small")[1]).read_text())
    collected = collect(command=[PYTHON, "-m", "package"], cwd=tmp_path)
    assert collected.code == 0 and collected.rank().complete, collected.process.stderr
    command = program("small")
    outer = script(f"import subprocess; raise SystemExit(subprocess.call({[str(part) for part in command]}))")
    collected = collect(command=outer)
    assert collected.code == 0 and collected.rank().complete, collected.process.stderr


STATE_OF_OPTIMIZER = """
import subprocess, sys, torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.AdamW(model.parameters())
get_optimizer_state_dict(model, optimizer)  # makes it, by a step with gradients of zeros
if "child" not in sys.argv:
    subprocess.run([sys.executable, __file__, "child"], check=True)
    optimizer.zero_grad()
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
"""


def test_a_process_that_only_makes_an_optimizers_state_is_left_alone(collect, tmp_path):
    (tmp_path / "program.py").write_text(STATE_OF_OPTIMIZER)
    collected = collect(command=[PYTHON, str(tmp_path / "program.py")])
    assert collected.code == 0 and collected.rank().complete, collected.process.stderr
    assert collected.rank().names("param") == ["weight", "bias"]


def test_looking_for_torch_without_importing_it_does_not_lose_the_collector(collect, script):
    text = "import importlib.util\nassert importlib.util.find_spec('torch')\n" + Path(program("small")[1]).read_text()
    collected = collect(command=script(text))
    assert collected.code == 0 and collected.rank().complete, collected.process.stderr


def test_a_process_without_torch_is_left_alone(collect, script):
    collected = collect(command=script("import sys; print([name for name in sys.modules if 'ttrace' in name])"))
    assert collected.stdout == "[]\n"


def test_an_old_torch_is_named_and_refused_and_the_training_goes_on(collect, tmp_path, script):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("__version__ = '2.1.2+cpu'\n")
    collected = collect(command=script("import torch; print('trained')"))
    assert (collected.code, collected.stdout) == (2, "trained\n")
    expected = "rank 0: PyTorch 2.1.2+cpu is too old; expected 2.2 or newer; nothing is recorded"
    assert collected.messages == [f"ttrace: {expected}", f"ttrace: error: {expected}"]


def test_a_second_process_of_the_same_rank_is_a_problem_and_harms_neither(collect):
    command = " ".join(map(str, program("small")))
    collected = collect(command=["sh", "-c", f"{command} && {command}"])
    assert collected.code == 2
    assert collected.stdout.count("parameters") == 2
    assert any("rank-00000" in message and "error: rank 0:" in message for message in collected.messages)


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "0,2,x",
            "--iterations: '0,2,x'; expected numbers and ranges from 0, as in 0,2,5-7, of at most 10000 iterations",
        ),
        ("3-1", "--iterations: '3-1'; expected numbers and ranges from 0, as in 0,2,5-7, of at most 10000 iterations"),
        ("1,", "--iterations: '1,'; expected numbers and ranges from 0, as in 0,2,5-7, of at most 10000 iterations"),
    ],
)
def test_wrong_iterations_are_refused_before_anything_runs(collect, text, message):
    collected = collect("--iterations", text, command=["echo", "hello"])
    assert (collected.code, collected.stdout, collected.process.stderr) == (2, "", f"ttrace: error: {message}\n")


def test_wrong_axes_are_refused_before_anything_runs(collect):
    collected = collect("--axes", "tp=2,sp=tq", command=["echo", "hello"])
    assert (collected.code, collected.stdout) == (2, "")
    expected = "--axes: 'sp=tq': 'tq' is neither a size nor an axis named before it"
    assert collected.process.stderr == f"ttrace: error: {expected}\n"
