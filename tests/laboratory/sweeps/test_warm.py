"""A program in a warm process is run as Python would run it."""

import os
import signal
import subprocess
import sys

import pytest

from sweeps import warm

PROGRAM = """
import os, sys, time, beside
place = os.environ["ONLY_HERE"], os.getcwd()
print("torch._dynamo" in sys.modules, beside.here, __name__, sys.argv[1:], *place, input())
print("told", file=sys.stderr)
sys.stdout.flush()
if sys.argv[1] == "wait":
    time.sleep(60)
sys.exit(7)
"""


@pytest.fixture
def start(tmp_path):
    (tmp_path / "beside.py").write_text("here = 'beside'\n")
    (tmp_path / "program.py").write_text(PROGRAM)

    def start(*arguments):
        environment = {**os.environ, "ONLY_HERE": "yes"}
        command = [sys.executable, warm.__file__, tmp_path / "program.py", *arguments]
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        process.stdin.write("from stdin\n")
        process.stdin.flush()
        return process

    return start


def said(is_warm, tmp_path, *arguments):
    return f"{is_warm} beside __main__ {list(arguments)} yes {tmp_path} from stdin\n"


def test_a_warm_program_has_its_own_arguments_environment_directory_streams_and_exit_code(start, tmp_path):
    with warm.server():
        together = [start("a", "-b"), start("c")]
        for process, arguments in zip(together, (("a", "-b"), ("c",)), strict=True):
            out, err = process.communicate(timeout=60)
            assert (process.returncode, out, err) == (7, said(True, tmp_path, *arguments), "told\n")
        waiting = start("wait")
        assert waiting.stdout.readline() == said(True, tmp_path, "wait")
        waiting.send_signal(signal.SIGTERM)
        waiting.communicate(timeout=30)  # also the program has closed its streams
        assert waiting.returncode == -signal.SIGTERM
    cold = start("a")
    assert cold.communicate(timeout=60)[0] == said(False, tmp_path, "a") and cold.returncode == 7


def test_programs_below_a_command_have_one_server(tmp_path):
    keepers_parent = "open(f'/proc/{os.getppid()}/stat').read().split()[3]"
    (tmp_path / "program.py").write_text(f"import os, sys\nprint({keepers_parent}, 'torch._dynamo' in sys.modules)\n")
    (tmp_path / "tests.py").write_text(
        "import subprocess, sys\nfrom sweeps import warm\nfor _ in range(2):\n    with warm.server():\n"
        f"        subprocess.run(warm.command('{tmp_path}/program.py'), check=True)\nsys.exit(3)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, warm.__file__, "--during", sys.executable, tmp_path / "tests.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    (first, imported), second = (line.split() for line in done.stdout.splitlines())
    assert (done.returncode, imported, second) == (3, "True", [first, "True"]), done.stderr


ENDS = {
    "by itself": "",
    "with a number": "sys.exit(300)",
    "with a text": "sys.exit('said')",
    "with an exception": "raise ValueError('wrong')",
    "interrupted": "raise KeyboardInterrupt",
    "killed": "os.kill(os.getpid(), 9)",
    "after its thread": "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()",
}
AT_EXIT = "import atexit, os, sys, threading, time\n"
AT_EXIT += "atexit.register(lambda: print('at exit', repr(getattr(sys, 'last_value', None))))\n"


def test_a_warm_program_ends_as_pythons_own(tmp_path):
    def ends(*command):
        process = subprocess.run([*command, tmp_path / "program.py"], capture_output=True, text=True, timeout=60)
        return process.returncode, process.stdout, process.stderr.splitlines()[-1:]

    with warm.server():
        for name, text in ENDS.items():
            (tmp_path / "program.py").write_text(AT_EXIT + text)
            assert ends(*warm.command()) == ends(sys.executable), name


def test_stand_ins_take_what_users_type(tmp_path, monkeypatch):
    folder = tmp_path / "stand-ins"
    folder.mkdir()
    warm.stand_ins(folder)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def said_by(*words):
        done = subprocess.run(
            words, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stderr
        return sorted(done.stdout.split())

    # One write a rank: torchrun's Pythons do not buffer, and print writes the end of a line by itself.
    (tmp_path / "ranks.py").write_text(
        "import os, sys\n"
        "said = [os.environ.get('RANK', 'alone') + str('torch._dynamo' in sys.modules), *sys.argv[1:]]\n"
        "sys.stdout.write(' '.join(said) + '\\n')\n"
    )
    launched = ("torchrun", "--standalone", "--nproc-per-node")
    with warm.server():
        assert said_by("python", "ranks.py", "a b") == ["a", "aloneTrue", "b"]
        assert said_by(*launched, "2", "ranks.py") == ["0True", "1True"]
        # Whatever else they are asked for starts cold.
        assert said_by("python", "-c", "import sys; print('torch' in sys.modules, sys.argv)") == ["False", "['-c']"]
        assert said_by(*launched, "1", "--no-python", "echo", "as ever") == ["as", "ever"]


def test_a_server_of_another_package_has_that_one_and_no_pytorch(tmp_path):
    (tmp_path / "program.py").write_text("import sys\nprint('numpy' in sys.modules, 'torch' in sys.modules)\n")
    with warm.server(package="numpy"):
        command = warm.command(tmp_path / "program.py")
        assert subprocess.run(command, capture_output=True, text=True, timeout=60).stdout == "True False\n"
