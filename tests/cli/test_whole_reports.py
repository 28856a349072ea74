"""A report appears whole or not at all: what was there before stays until the new one is, and where it cannot be."""

import json
import os
import re
import resource
import signal
import subprocess
import time

import numpy
import pytest
from conftest import CHECK

from traces import PROGRAM, Tensor, record_run

OPTIONS = ["--json", "--junit", "--csv", "--html", "--sarif", "--history", "-t", "-a"]
REPORTS = OPTIONS[:5]
PARTIAL = re.compile(r"\.report\.(json|csv)\.[0-9a-f]{8}\.partial")


@pytest.mark.parametrize("option", OPTIONS)
def test_an_empty_name_of_a_file_is_refused(ttrace, reference, candidate, option):
    candidate()
    assert ttrace.refuses(*CHECK[:-2], option, "").endswith(": an empty name; expected what `ttrace check --help` says")


@pytest.mark.parametrize("other", ["report", "./report", "link", "hard"])
def test_two_reports_do_not_go_to_one_file(ttrace, reference, candidate, tmp_path, other):
    candidate()
    (tmp_path / "report").write_text("of yesterday")
    (tmp_path / "link").symlink_to("report")
    (tmp_path / "hard").hardlink_to(tmp_path / "report")
    error = ttrace.refuses(*CHECK, "--json", "report", "--html", other)
    assert error == f"--json, --html: both go to {other}; expected a file of its own for each"
    assert (tmp_path / "report").read_text() == "of yesterday"


def test_no_report_takes_the_place_of_a_trace_or_a_history(ttrace, reference, candidate, tmp_path):
    candidate()
    ttrace(*CHECK, "--history", "history", code=0)
    for name, what in (("reference/rank-00000.h5", "a file of a trace"), ("history", "a history")):
        before = (tmp_path / name).read_bytes()
        for option in REPORTS:
            error = ttrace.refuses(*CHECK, option, name)
            assert error == f"{name}: is {what}; expected another place to write to"
        assert (tmp_path / name).read_bytes() == before


@pytest.mark.parametrize("option", REPORTS)
def test_what_does_not_fit_on_the_disk_leaves_the_report_of_before(ttrace, reference, candidate, tmp_path, option):
    candidate()
    (tmp_path / "report").write_text("of yesterday")
    before = sorted(os.listdir(tmp_path))

    def fill_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    full = subprocess.run(
        [PROGRAM, *CHECK, option, "report"], cwd=tmp_path, preexec_fn=fill_disk, capture_output=True, text=True
    )
    assert full.returncode == 2
    assert full.stderr == "ttrace: error: report: cannot be written (File too large); expected a file\n"
    assert (tmp_path / "report").read_text() == "of yesterday"
    assert sorted(os.listdir(tmp_path)) == before


def test_a_report_is_written_through_a_link_and_keeps_its_mode(ttrace, reference, candidate, tmp_path):
    candidate()
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "report").write_text("of yesterday")
    (tmp_path / "there" / "report").chmod(0o600)
    (tmp_path / "link").symlink_to("there/report")
    ttrace(*CHECK, "--json", "link", code=0)
    assert json.loads((tmp_path / "there" / "report").read_text())["verdict"] == "same"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "report").stat().st_mode & 0o777 == 0o600


def is_whole(text, is_json):
    return json.loads(text)["verdict"] == "same" if is_json else text.count("\n") == 2001


def test_a_check_that_is_killed_leaves_the_old_report_or_the_new(tmp_path):
    values = numpy.arange(64, dtype="float32")
    for name in ("reference", "candidate"):
        record_run(tmp_path / name, [[Tensor(f"m{i}", values) for i in range(2000)]], run_id=name)
    old = {"report.json": "{}", "report.csv": "old\n"}
    words = ["check", "--reference", "reference", "--candidate", "candidate", "-t", "default", "--all"]
    seen = set()
    for attempt in range(24):
        for name, text in old.items():
            (tmp_path / name).write_text(text)
        process = subprocess.Popen(
            [PROGRAM, *words, "--json", "report.json", "--csv", "report.csv"], cwd=tmp_path, stdout=subprocess.DEVNULL
        )
        time.sleep(0.005 * attempt)
        process.send_signal(signal.SIGKILL if attempt % 2 else signal.SIGTERM)
        process.wait()
        # A file without a name cannot take another's place at once: for a moment the new one has two, and is whole.
        left = set(os.listdir(tmp_path)) - {"candidate", "reference", *old}
        assert len(left) <= 1 and all(PARTIAL.fullmatch(name) for name in left), left
        for name in left:
            assert is_whole((tmp_path / name).read_text(), ".json." in name), name
            (tmp_path / name).unlink()
        report, table = ((tmp_path / name).read_text() for name in old)
        assert report == old["report.json"] or is_whole(report, True)
        assert table == old["report.csv"] or is_whole(table, False)
        seen.add(report == old["report.json"])
    assert True in seen


def test_an_export_that_is_ended_leaves_nothing_behind(tmp_path):
    values = numpy.ones((512, 1024), "float32")
    record_run(tmp_path / "trace", [[Tensor(f"m{i}", values + i) for i in range(100)]])
    ends = set()
    for name in ("t.safetensors", "t.npz"):
        for attempt in range(6):
            words = ["export", "trace", "-o", name]
            process = subprocess.Popen([PROGRAM, *words], cwd=tmp_path, stdout=subprocess.DEVNULL)
            time.sleep(0.02 * attempt)
            process.send_signal(signal.SIGTERM)
            ends.add(process.wait())
            left = sorted(os.listdir(tmp_path))
            assert left in (["trace"], sorted([name, "trace"]))
            assert left == ["trace"] or (tmp_path / name).stat().st_size > 100 * values.nbytes
            (tmp_path / name).unlink(missing_ok=True)
    assert -signal.SIGTERM in ends


def test_a_pipe_that_nobody_reads_is_refused_and_one_with_a_reader_is_written_to(ttrace, reference, tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    words = ("export", "reference", "-o", "pipe.npz")
    assert ttrace.refuses(*words) == "pipe.npz: a pipe that nobody reads; expected a file, or a reader"
    ttrace("export", "reference", "-o", "file.npz", code=0)
    reader = subprocess.Popen(["cat", "pipe.npz"], cwd=tmp_path, stdout=subprocess.PIPE)
    writer = subprocess.Popen([PROGRAM, *words], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while b"nobody reads" in (said := writer.communicate()[1]):  # the reader has not come yet
        writer = subprocess.Popen([PROGRAM, *words], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert (writer.returncode, said) == (0, b"")
    assert reader.communicate()[0] == (tmp_path / "file.npz").read_bytes()
