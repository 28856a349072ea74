"""libttrace lives in other people's processes."""

import subprocess
import sys
import textwrap

import pytest
from conftest import C_PROGRAM, LIBRARY, inspect

RECORD = """
from recorder import Dtype, Recorder
recorder = Recorder(trace)
recorder.record('a', bytes(range(40)), Dtype.FLOAT32, (10,))
"""
WRITE_WITH_H5PY = """
import h5py
other = h5py.File(trace.parent / 'other.h5', 'w')
other['x'] = list(range(1000))
try:
    other['missing']
except KeyError:
    pass
"""


def run_python(directory, *code):
    """Runs the pieces of `code` in a process of its own, with `trace` the trace's directory."""
    head = f"import pathlib, sys\nsys.path.insert(0, {str(__file__.rsplit('/', 1)[0])!r})\n"
    code = f"{head}trace = pathlib.Path({str(directory)!r})\n" + "".join(textwrap.dedent(piece) for piece in code)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def check_quiet(run):
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.parametrize("order", ["h5py first", "libttrace first", "interleaved"])
def test_h5py_and_the_recorder_write_in_one_process(trace_directory, order):
    close = "recorder.close()\nother['y'] = [1.5]\nother.close()\n"
    reopen = "assert h5py.File(trace.parent / 'other.h5')['x'][999] == 999\n"
    code = {
        "h5py first": WRITE_WITH_H5PY + RECORD + close,
        "libttrace first": RECORD + WRITE_WITH_H5PY + close,
        "interleaved": RECORD
        + WRITE_WITH_H5PY
        + "other.close()\nrecorder.close()\n"
        + WRITE_WITH_H5PY.replace("'w'", "'a'").replace("other['x'] =", "other['z'] =")
        + "other.close()\n",
    }[order]
    check_quiet(run_python(trace_directory, code + reopen))
    (tensor,) = inspect(trace_directory, "--verify")["ranks"][0]["tensors"]
    assert tensor["checksum_ok"]


def test_only_the_c_api_is_exported():
    symbols = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1].split("@")[0] for line in symbols.splitlines()}
    assert names == {
        "ttrace_version",
        "ttrace_last_error",
        "ttrace_open",
        "ttrace_describe",
        "ttrace_describe_axes",
        "ttrace_record",
        "ttrace_cell_edges",
        "ttrace_fingerprint",
        "ttrace_close",
        "ttrace_perturbation",
        "ttrace_open_source",
        "ttrace_find",
        "ttrace_close_source",
    }


def test_the_library_starts_no_thread(trace_directory):
    check_quiet(
        run_python(
            trace_directory,
            RECORD,
            """
        import os
        assert len(os.listdir('/proc/self/task')) == 1
        recorder.close()
        assert len(os.listdir('/proc/self/task')) == 1
    """,
        )
    )


def test_memory_that_the_program_frees_between_tensors_can_be_used_again(trace_directory):
    # What stays of a recorded tensor must not lie where the program's next ones would.
    check_quiet(
        run_python(
            trace_directory,
            RECORD,
            """
        import ctypes, os, struct
        libc = ctypes.CDLL(None)
        libc.aligned_alloc.argtypes, libc.aligned_alloc.restype = [ctypes.c_size_t] * 2, ctypes.c_void_p
        libc.free.argtypes, libc.free.restype = [ctypes.c_void_p], None
        libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD: all of it from the heap

        def step(number):
            blocks = []
            for place in range(100):
                block = libc.aligned_alloc(64, (1 + place % 7) << 18)
                ctypes.memset(block, 1, (1 + place % 7) << 18)
                blocks.append(block)
                data = struct.pack('q', 100 * number + place) * 256
                recorder.record(f'{number}.{place}', data, Dtype.INT64, (256,))
            for block in blocks:
                libc.free(block)

        def resident():
            return int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE')

        for number in range(5):
            step(number)
        before = resident()
        for number in range(5, 30):
            step(number)
        growth = resident() - before
        assert growth < 20 << 20, growth
        recorder.close()
    """,
        )
    )


def test_a_program_that_exits_without_close_leaves_a_readable_trace(trace_directory):
    check_quiet(run_python(trace_directory, RECORD))
    (rank,) = inspect(trace_directory, "--verify")["ranks"]
    assert not rank["complete"]
    assert [tensor["checksum_ok"] for tensor in rank["tensors"]] == [True]


def test_a_forked_child_that_exits_leaves_its_parents_trace_alone(trace_directory):
    # sys.exit runs the libraries' exit handlers in the child.
    check_quiet(
        run_python(
            trace_directory,
            RECORD,
            """
        import os, sys
        child = os.fork()
        if child == 0:
            recorder.close()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        recorder.record('b', bytes(40), Dtype.FLOAT32, (10,))
        recorder.close()
        child = os.fork()
        if child == 0:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """,
        )
    )
    (rank,) = inspect(trace_directory, "--verify")["ranks"]
    assert rank["complete"]
    assert [tensor["name"] for tensor in rank["tensors"]] == ["a", "b"]


def test_a_child_of_multiprocessing_records_a_rank_of_its_own(trace_directory):
    check_quiet(
        run_python(
            trace_directory,
            """
        import multiprocessing
        from recorder import Dtype, Recorder
        def work(rank):
            recorder = Recorder(trace, rank, 2, 'dp=2')
            recorder.record('a', bytes(40), Dtype.FLOAT32, (10,))
            recorder.close()
        work(0)
        child = multiprocessing.get_context('fork').Process(target=work, args=(1,))
        child.start()
        child.join()
        assert child.exitcode == 0
    """,
        )
    )
    assert [rank["complete"] for rank in inspect(trace_directory)["ranks"]] == [True, True]


def test_a_full_disk_neither_kills_nor_garbles_the_program(trace_directory):
    # A limit on file sizes, which sends a deadly signal to programs that do not watch for it.
    run = run_python(
        trace_directory,
        """
        import resource
        from recorder import Dtype, Recorder
        from ttrace_torch.library import TraceError
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it; most programs do not
        recorder = Recorder(trace)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
        for number in range(100):
            try:
                recorder.record(f'a{number}', bytes([number]) * 4000, Dtype.FLOAT32, (1000,))
            except TraceError as error:
                print(number, error.status.name, error)
                break
        try:
            recorder.close()
        except TraceError as error:
            print(error.status.name, error)
    """,
    )
    message = f"FULL {trace_directory}/rank-00000.h5: can't be written: File too large"
    assert (run.returncode, run.stdout, run.stderr) == (0, f"11 {message}\n{message}\n", "")
    (rank,) = inspect(trace_directory, "--verify")["ranks"]
    assert not rank["complete"]
    assert [tensor["checksum_ok"] for tensor in rank["tensors"]] == [True] * 11


def test_a_c_program_records_a_trace(trace_directory):
    check_quiet(subprocess.run([C_PROGRAM, trace_directory], capture_output=True, text=True))
    trace = inspect(trace_directory, "--verify", "--stats")
    assert trace["run_id"] == "c-program"
    assert trace["axes"] == [["tp", 2]] and trace["aliases"] == {"sp": "tp"}
    assert trace["compute_dtype"] == "bfloat16" and trace["provenance"] == {"language": "C"}
    assert [rank["coordinates"] for rank in trace["ranks"]] == [{"tp": 0}, {"tp": 1}]
    for rank in trace["ranks"]:
        assert rank["complete"]
        assert [tensor["name"] for tensor in rank["tensors"]] == [
            "linear",
            "linear.transposed",
            "loss",
            "earlier",
            "later",
        ]
        linear, transposed, loss, earlier, _ = rank["tensors"]
        assert linear["mapping"] == {
            "axes": [{"axis": "tp", "size": 2, "placement": "shard", "dim": 0}],
            "shape": [6, 2],
        }
        assert "mapping" not in transposed and "mapping" not in earlier
        assert linear["shape"] == transposed["shape"] == [3, 2] and loss["shape"] == []
        assert linear["statistics"] == transposed["statistics"]
        assert loss["microbatch"] is None and loss["kind"] == "scalar" and loss["module"] == ""
