"""Every way in which people start a training program. The job is the same: so are its losses and its trace."""

import os
import stat
import zipfile

import pytest
from conftest import HERE, JOB, PYTHON, TTRACE, Collected, check, results_in, run

ROOT = HERE.parent.parent
PROGRAMS = HERE / "programs"


def torchrun(python, ranks=2):
    launch = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", "0"]
    return [*launch, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]


def environment_of(name, *programs):
    """Paths of programs in an environment beside .venv; skips where it is not there."""
    paths = [ROOT / name / "bin" / program for program in programs]
    if not all(path.exists() for path in paths):
        pytest.skip(f"{name} is not there: tools/faults and tools/frameworks/run make it")
    return paths


@pytest.fixture
def launch(tmp_path, undisturbed):
    """launch(command, ranks=1, environment={}): the job's results and trace are those that it has otherwise."""

    def launch(command, ranks=1, reference=None, **options):
        results = tmp_path / "results"
        results.mkdir()
        axes = ["--axes", f"dp={ranks}"] if ranks > 1 else []
        command = [str(part).replace("RESULTS", str(results)) for part in command]
        options = {"cwd": PROGRAMS, **options}
        process = run(
            [TTRACE, "collect", "-o", tmp_path / "trace", "--iterations", "0-1", *axes, "--", *command], **options
        )
        collected = Collected(process, tmp_path / "trace")
        assert collected.is_whole(), collected
        wanted = undisturbed(ranks)
        if reference is None:  # the same PyTorch
            assert results_in(results) == wanted.results
            assert check(wanted, collected).returncode == 0, collected
        assert collected.tensors() == wanted.tensors(), collected
        return collected

    return launch


@pytest.mark.nightly
def test_python_m(launch):
    launch([PYTHON, "-m", "job", "RESULTS"])


@pytest.mark.nightly
def test_python_c(launch):
    launch([PYTHON, "-c", "import job; job.main(['RESULTS'])"])


@pytest.mark.nightly
def test_a_zipapp(launch, tmp_path):
    archive = tmp_path / "job.pyz"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(PROGRAMS / "faults.py", "faults.py")
        file.write(JOB, "job.py")
        file.writestr("__main__.py", "import job; job.main()")
    launch([PYTHON, archive, "RESULTS"])


@pytest.mark.nightly
def test_a_console_script(launch, tmp_path):
    script = tmp_path / "train"
    script.write_text(
        f"#!{PYTHON}\nimport sys\nsys.path.append({str(PROGRAMS)!r})\nfrom job import main\nsys.exit(main())\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    launch([script, "RESULTS"])


@pytest.mark.nightly
def test_a_shell_script_that_changes_the_directory(launch, tmp_path):
    launch(["sh", "-c", f"cd / && PYTHONPATH=$PYTHONPATH:{PROGRAMS} exec {PYTHON} -m job RESULTS"])


def test_an_isolated_python_is_told_from_a_trace(tmp_path):
    """It sees no environment, so nobody could put a collector into it."""
    trace = tmp_path / "trace"
    program = f"import sys; sys.path.append({str(PROGRAMS)!r}); import job; job.main([{str(tmp_path)!r}])"
    process = run([TTRACE, "collect", "-o", trace, "--", PYTHON, "-I", "-c", program])
    assert process.returncode == 2
    assert "nothing was recorded" in process.stderr and "-I, -E and -S" in process.stderr, process
    assert "parameters" in (tmp_path / "rank-0").read_text()


@pytest.mark.nightly
def test_torchrun(launch):
    launch([*torchrun(PYTHON), JOB, "RESULTS"], ranks=2)


def test_a_command_line_of_many_words(launch):
    """The environment of a process has no room for them: the trace lacks the command, and no more."""
    collected = launch(["sh", "-c", f"exec {PYTHON} -m job RESULTS", *["word" * 200] * 400])
    assert collected.inspect()["provenance"]["command"] is None


@pytest.mark.nightly
def test_a_notebook(launch, tmp_path):
    python, _ = environment_of(".venv-faults", "python", "jupyter")
    launch([python, PROGRAMS / "notebook.py", "RESULTS"])


@pytest.mark.nightly
def test_mpirun(launch):
    mpirun, _ = environment_of(".venv-faults", "mpirun", "jupyter")
    names = "RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE MASTER_ADDR=localhost"
    rank = f"{names} MASTER_PORT={_free_port()} exec {PYTHON} {JOB} RESULTS"
    launch([mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "2", "sh", "-c", rank], ranks=2)


@pytest.mark.nightly
def test_accelerate(launch):
    python, accelerate = environment_of(".venv-transformers-deepspeed", "python", "accelerate")
    options = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1"]  # with --cpu it starts one
    options += ["--mixed_precision", "no", "--dynamo_backend", "no"]
    options += ["--main_process_port", str(_free_port())]
    launch([python, accelerate, "launch", *options, JOB, "RESULTS"], ranks=2, reference="another PyTorch")


@pytest.mark.nightly
def test_deepspeed(launch):
    python, deepspeed = environment_of(".venv-deepspeed", "python", "deepspeed")
    options = ["--num_gpus", "2", "--no_local_rank", "--master_port", str(_free_port())]
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    command = [python, deepspeed, *options, JOB, "RESULTS"]
    launch(command, ranks=2, reference="another PyTorch", environment={"DS_ACCELERATOR": "cpu", "PATH": path})


def _free_port():
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
