"""The directory of the trace: too small, not writable, gone."""

import contextlib
import os
import subprocess

import pytest
from conftest import TTRACE, check, run
from night import at_night

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@contextlib.contextmanager
def mounted(directory, options):
    """A file system in memory."""
    directory.mkdir(exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", directory], capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


@pytest.fixture(scope="module")
def large(collect_job):
    """The trace of a job of two ranks, whose size is that of the disk that it needs."""

    def large(nightly):
        return collect_job("nothing", "--width", "160" if nightly else "48", ranks=2)

    return large


@needs_root
def test_a_disk_that_is_full_at_any_time_ends_the_recording_and_not_the_job(tmp_path, collect_job, large, nightly):
    whole = large(nightly)
    page, megabyte = 1 << 12, 1 << 20
    needed = sum(-(-path.stat().st_size // page) * page for path in whole.trace.iterdir())
    # The last ones have room for the tensors, but not for all of the index, which comes when the file is closed.
    sizes = [16 * page, needed - 2 * page, 2 * needed + megabyte]
    if nightly:
        sizes = [*range(megabyte, needed, megabyte), *(needed - pages * page for pages in range(1, 64, 4)), *sizes]
    for number, size in enumerate(sizes):
        with mounted(tmp_path / str(number), f"size={size}") as disk:
            width = "160" if nightly else "48"
            collected = collect_job("nothing", "--width", width, ranks=2, trace=disk / "trace")
            checked = check(whole, collected)
            if size > needed:
                assert collected.is_whole() and checked.returncode == 0, (collected, checked)
                continue
            assert collected.code == 2 and collected.says("No space left on device"), (size, collected)
            assert checked.returncode in (1, 2), (size, checked)
            if any(collected.trace.glob("*.h5")):
                verified = run([TTRACE, "inspect", collected.trace, "--verify"])
                assert "every checksum agrees" in verified.stdout, (size, verified)
    print(f"{len(sizes)} disks, for a trace of {needed} bytes")


@needs_root
def test_a_directory_that_cannot_be_written_to_is_refused_before_the_job_runs(tmp_path):
    with mounted(tmp_path / "disk", "size=64k,ro") as disk:
        collected = run([TTRACE, "collect", "-o", disk / "trace", "--", "echo", "hello"])
        assert (collected.returncode, collected.stdout) == (2, "")
        assert collected.stderr == f"ttrace: error: {disk}/trace: cannot be made: Read-only file system\n"


@needs_root
def test_a_directory_that_a_rank_cannot_write_to_harms_no_job(tmp_path, collect_job, require_lacking):
    with mounted(tmp_path / "disk", "size=4m") as disk:
        collected = collect_job("make_directory_read_only", "--at", "0", trace=disk / "trace")
        assert collected.says("Read-only file system"), collected
        require_lacking(collected)


@pytest.mark.parametrize("fault", ["remove_directory", *at_night("move_directory", "replace_directory_by_file")])
def test_a_directory_that_disappears_is_named(collect_job, fault):
    collected = collect_job(fault, without="nothing")
    assert collected.code == 2, collected
    assert collected.says("is no directory any more; what was recorded there is lost"), collected
    assert not collected.says("expected a Python program"), collected


def test_a_directory_that_disappears_before_anything_is_recorded_is_made_again(collect_job, require_undisturbed):
    require_undisturbed(collect_job("remove_directory", "--at", "0", without="nothing"))
