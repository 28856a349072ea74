"""Times `ttrace check` on made traces of a correct run, beside plain reading of the same files (the faster of mapped
and `pread`: what no program can beat that looks at every byte), h5diff, a numpy script and a torch script that do the
same comparison, and the machine's plain memory-read bandwidth. Both sides are on 8 ranks; resharded, the reference is
on one. All figures are GB/s of input, both sides counted, from a warm page cache; the machine is shared with whatever
else runs on it, so each is the median of several runs, and memory, files and ttrace take turns."""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HELP = "speed and memory of ttrace check"

HERE = pathlib.Path(__file__).resolve().parent
GIB = 1 << 30
ROUNDS = 5  # of memory_read and ttrace, in turns
THREADS = 2
# HDF5 converts bf16, a custom float to it, element by element: h5diff gets one group of tensors, rank 0 only.
SLICE_BYTES = 1
REFERENCES = ["reference", "whole"]


def add_options(parser):
    parser.add_argument(
        "--gib", type=float, default=4, help="size of two traces together (default: 4); there are six at a time"
    )
    parser.add_argument("--dir", type=pathlib.Path, help="where to make the traces (default: the temporary directory)")
    parser.add_argument(
        "--python", default=str(HERE.parents[2] / ".venv" / "bin" / "python"), help="with numpy, h5py and torch"
    )


def run(options):
    programs = {name: options.build / "benchmarks" / name for name in ("make_traces", "memory_read", "file_read")}
    programs["ttrace"] = options.build / "bin" / "ttrace"
    with tempfile.TemporaryDirectory(prefix="ttrace-bench-", dir=options.dir) as scratch:
        figures = measure(options, programs, pathlib.Path(scratch))
    print(table(figures))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


def measure(options, programs, scratch):
    directory = scratch / "pair"
    slice_directory = scratch / "slice"
    say(f"making {options.gib:g} GiB of traces in {directory}")
    size = make_traces(programs["make_traces"], directory, int(options.gib * GIB))
    make_traces(programs["make_traces"], slice_directory, SLICE_BYTES)
    perturbed = sorted(directory.glob("perturbed-*"))
    for reference in REFERENCES:
        say(f"ttrace estimate-tolerance, for {reference}")
        estimate(programs["ttrace"], directory, reference, perturbed)
    for trace in perturbed:
        shutil.rmtree(trace)
    warm(directory)

    files = sorted(directory.glob("reference/*.h5")) + sorted(directory.glob("candidate/*.h5"))
    memory, mapped, pread, resharded, ttrace, unverified, peaks = [], [], [], [], [], [], []
    for turn in range(ROUNDS):
        say(f"memory read, file read and ttrace check, {turn + 1} of {ROUNDS}")
        memory.append(float(subprocess.run([programs["memory_read"], str(THREADS)], check=True, **CAPTURED).stdout))
        for way, speeds in (("mapped", mapped), ("pread", pread)):
            command = [programs["file_read"], way, str(THREADS), *files]
            speeds.append(float(subprocess.run(command, check=True, stderr=subprocess.DEVNULL, **CAPTURED).stdout))
        seconds, peak = time_check(programs["ttrace"], directory)
        ttrace.append(size / seconds / 1e9)
        peaks.append(peak)
        unverified.append(size / time_check(programs["ttrace"], directory, options=["--no-checksums"])[0] / 1e9)
        resharded.append(bytes_of(directory, "whole") / time_check(programs["ttrace"], directory, "whole")[0] / 1e9)
    figures = {
        "bytes": size,
        "memory_read_gbps": statistics.median(memory),
        "file_read_gbps": max(statistics.median(mapped), statistics.median(pread)),
        "ttrace_gbps": statistics.median(ttrace),
        "no_checksums_gbps": statistics.median(unverified),
        "resharded_gbps": statistics.median(resharded),
        "ttrace_peak_rss_mib": max(peaks),
        "h5diff_gbps": time_h5diff(slice_directory),
        "numpy_gbps": time_script(options.python, "compare_numpy.py", directory),
        "torch_gbps": time_script(options.python, "compare_torch.py", directory),
        "samples": {
            "memory_read_gbps": memory,
            "mapped_read_gbps": mapped,
            "pread_gbps": pread,
            "ttrace_gbps": ttrace,
            "no_checksums_gbps": unverified,
            "resharded_gbps": resharded,
        },
    }
    figures["ratios"] = {
        name: ratio(figures["ttrace_gbps"], figures[f"{name}_gbps"])
        for name in ("file_read", "memory_read", "no_checksums", "resharded", "h5diff", "numpy", "torch")
    }
    figures["ratios"]["resharded_to_file_read"] = ratio(figures["resharded_gbps"], figures["file_read_gbps"])
    return figures


CAPTURED = {"stdout": subprocess.PIPE, "text": True}


def say(text):
    print(f"bench: {text}", file=sys.stderr)


def ratio(part, whole):
    return part / whole if whole else None


def make_traces(program, directory, size):
    return int(subprocess.run([program, directory, str(size)], check=True, **CAPTURED).stdout)


def warm(directory):
    block = bytearray(8 << 20)
    for path in sorted(directory.rglob("*.h5")):
        with open(path, "rb", buffering=0) as file:
            while file.readinto(block):
                pass


def bytes_of(directory, reference):
    """Of the files of both sides."""
    files = [path for side in (reference, "candidate") for path in (directory / side).glob("*.h5")]
    return sum(path.stat().st_size for path in files)


def estimate(program, directory, reference, perturbed):
    command = [program, "estimate-tolerance", "-q", "-o", directory / f"{reference}.yaml"]
    command += ["--reference", directory / reference, "--perturbed", *perturbed, "-a", directory / "annotations.yaml"]
    subprocess.run(command, check=True)


def time_check(program, directory, reference="reference", options=()):
    """Seconds and peak MiB of one `ttrace check`."""
    command = [program, "check", "--threads", str(THREADS), *options, "-a", directory / "annotations.yaml"]
    command += ["--reference", directory / reference, "--candidate", directory / "candidate"]
    command += ["-t", directory / f"{reference}.yaml"]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"tools/bench: ttrace check ended with {process.returncode}, not 0 (same):\n{text}")
    return seconds, usage.ru_maxrss / 1024


def time_h5diff(directory):
    """GB/s of rank 0's files of the slice, or None without h5diff."""
    program = shutil.which("h5diff")
    if program is None:
        say("no h5diff here")
        return None
    say("h5diff, one group of tensors of one rank")
    files = [directory / side / "rank-00000.h5" for side in ("reference", "candidate")]
    start = time.perf_counter()
    status = subprocess.run([program, "-q", "-p", "0.02", *files, "/tensors", "/tensors"]).returncode
    seconds = time.perf_counter() - start
    if status not in (0, 1):
        sys.exit(f"tools/bench: h5diff ended with {status}")
    return sum(file.stat().st_size for file in files) / seconds / 1e9


def time_script(python, script, directory):
    """GB/s that a script of the same comparison reports, or None where it cannot run."""
    say(f"{script}, {THREADS} threads")
    command = [python, HERE / script, directory / "reference", directory / "candidate"]
    environment = os.environ | {name: str(THREADS) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    environment["OMP_WAIT_POLICY"] = "passive"  # spinning threads would make torch slower still on a busy machine
    try:
        done = subprocess.run(command, check=True, env=environment, **CAPTURED)
    except (OSError, subprocess.CalledProcessError) as error:
        say(f"{script} did not run: {error}")
        return None
    figures = json.loads(done.stdout)
    return figures["bytes"] / figures["seconds"] / 1e9


def table(figures):
    rows = [
        ("plain read of the same files", "file_read"),
        ("plain memory read", "memory_read"),
        ("ttrace check", "ttrace"),
        ("ttrace check --no-checksums", "no_checksums"),
        ("ttrace check, resharded", "resharded"),
        ("h5diff (a slice: one group, rank 0)", "h5diff"),
        ("numpy script", "numpy"),
        ("torch script", "torch"),
    ]
    lines = [f"{figures['bytes'] / GIB:.2f} GiB, both sides counted; {THREADS} threads; page cache warm", ""]
    lines.append(f"{'':36} {'GB/s':>8}  ttrace is")
    for title, name in rows:
        speed = figures[f"{name}_gbps"]
        times = figures["ratios"].get(name)
        shown = f"{speed:8.3f}" if speed is not None else f"{'-':>8}"
        lines.append(f"{title:36} {shown}  " + (f"{times:.3g} x" if times else ""))
    lines += ["", f"ttrace's peak memory: {figures['ttrace_peak_rss_mib']:.0f} MiB"]
    return "\n".join(lines)
