"""Names come from traces, and a trace from anybody: every output shows them escaped, parses, and injects nothing."""

import csv
import html.parser
import io
import json
import sqlite3
import struct
import unicodedata
import xml.etree.ElementTree as xml
import zipfile
from dataclasses import replace

import pytest
from conftest import model

from traces import record_run

NAMES = {
    "control characters": "a\x01\x07\x1b[2J\x7f\x85b",
    "line ends": "a\nverdict: same\r\n\tb",
    "markup": "<script>alert(1)</script>&amp;]]>\"'",
    "a formula": '=HYPERLINK("http://x","y")',
    "a command": "+cmd|' /C calc'!A0",
    "an at sign": "@SUM(A1:A2)",
    "right to left": "a\u202eb\u2066c\u200fd\u061ce",
    "what takes no room": "a\u200bb\u00adc\u2060d\ufeffe\u3164f\ufe0fg\U000e0041h",
    "line separators": "a\u2028b\u2029c",
    "Markdown": "[x](http://x) **bold** | cell `code`",
    "SQL": "'); DROP TABLE checks; --",
    "a shell's": "$(touch here); `touch here` | x",
    "a format's": "{0} {name} %s %n",
    "commas and quotes": 'a,b";c',
    "a path": "../../here",
    "YAML": "a: {b}\n- c # \ufeff",
    "a long one": "x" * 4096,
}
CHECK = ("check", "--reference", "reference", "--candidate", "candidate")


def is_harmless(character):
    return (
        character == "\n"
        or unicodedata.category(character) not in ("Cc", "Cf", "Zl", "Zp")
        and character not in "\u115f\u1160\u3164\uffa0\ufe0f"
    )


@pytest.mark.parametrize("what", NAMES)
def test_a_hostile_name_is_shown_escaped_everywhere(ttrace, tmp_path, what):
    name = NAMES[what]
    right = [replace(tensor, name=name) if tensor.name == "embedding" else tensor for tensor in model()]
    wrong = [replace(tensor, values=tensor.values + 1) if tensor.name == name else tensor for tensor in right]
    record_run(tmp_path / "reference", [right])
    record_run(tmp_path / "candidate", [wrong])
    outputs = {option: tmp_path / f"out{option}" for option in ("--json", "--junit", "--csv", "--history")}
    words = [word for option, path in outputs.items() for word in (option, path.name)]
    text = ttrace.reports(*CHECK, "--all", *words, code=1)
    assert all(map(is_harmless, text)) and text.startswith("different\n")
    (shown,) = [row for row in text.splitlines() if row.startswith("  fail ")]
    assert shown.endswith("output, iteration 0, micro-batch 0")

    report = json.loads(outputs["--json"].read_text())
    assert [finding["name"] for finding in report["findings"]] == [name]
    cases = [case for case in xml.parse(outputs["--junit"]).iter("testcase") if case.find("failure") is not None]
    assert len(cases) == 1 and all(map(is_harmless, "".join(cases[0].itertext()) + cases[0].get("name")))
    rows = list(csv.DictReader(io.StringIO(outputs["--csv"].read_text())))
    assert [row["verdict"] for row in rows].count("fail") == 1 and not any(None in row for row in rows)
    assert not any(cell.startswith(("=", "+", "@", "\t", "\r")) for row in rows for cell in row.values() if cell)
    assert not any(row["name"].startswith("-") for row in rows)
    with sqlite3.connect(outputs["--history"]) as history:
        assert history.execute("select count(*) from checks").fetchone() == (1,)
    assert not (tmp_path / "here").exists()
    for words in (("inspect", "candidate"), ("abft", "candidate"), ("history", "out--history")):
        stdout, stderr = ttrace(*words, code=2 if words[0] == "abft" else 0)
        assert all(map(is_harmless, stdout + stderr))


class Tags(html.parser.HTMLParser):
    """The tags of a page, with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, sorted(attributes)))


def named(name, added=0.0):
    return [
        replace(tensor, name=name, values=tensor.values + added) if tensor.name == "embedding" else tensor
        for tensor in model()
    ]


@pytest.mark.parametrize("what", NAMES)
def test_a_hostile_name_adds_nothing_to_a_page(ttrace, tmp_path, what):
    def tags(name, directory):
        record_run(directory / "reference", [named(name)], run_id="reference")
        record_run(directory / "candidate", [named(name, 1)], run_id="candidate")
        pair = ("--reference", directory / "reference", "--candidate", directory / "candidate")
        ttrace.reports("check", *pair, "--html", directory / "page.html", code=1)
        return Tags((directory / "page.html").read_text()).found

    hostile, harmless = tmp_path / "a", tmp_path / "b"
    hostile.mkdir()
    harmless.mkdir()
    assert tags(NAMES[what], hostile) == tags("x", harmless)


@pytest.mark.parametrize("what", NAMES)
def test_a_hostile_name_is_shown_and_exported_escaped(ttrace, tmp_path, what):
    record_run(tmp_path / "reference", [named(NAMES[what])])
    record_run(tmp_path / "candidate", [named(NAMES[what], 1)])
    stdout, stderr = ttrace("show", "candidate", "*", "--kind", "output", "--reference", "reference", code=0)
    assert all(map(is_harmless, stdout + stderr))
    for suffix in ("safetensors", "npz"):
        stdout, stderr = ttrace("export", "candidate", "-o", f"out.{suffix}", code=0)
        assert all(map(is_harmless, stdout + stderr))
    with zipfile.ZipFile(tmp_path / "out.npz") as archive:
        assert archive.testzip() is None
        keys = archive.namelist()
    data = (tmp_path / "out.safetensors").read_bytes()
    keys += json.loads(data[8 : 8 + struct.unpack_from("<Q", data)[0]])
    assert all(is_harmless(character) and character != "\n" for key in keys for character in key)
    assert not any(".." in key.split("/") or key.startswith("/") for key in keys)


@pytest.mark.parametrize("what", NAMES)
def test_a_hostile_name_is_the_same_in_a_tolerance_file(ttrace, tmp_path, what):
    record_run(tmp_path / "reference", [named(NAMES[what])])
    for seed in (1, 2, 3):
        provenance = json.dumps({"perturb_seed": seed})
        record_run(tmp_path / f"p{seed}", [named(NAMES[what], seed / 1024)], provenance=provenance)
    record_run(tmp_path / "candidate", [named(NAMES[what], 2 / 1024)])
    words = ("estimate-tolerance", "-o", "t.yaml", "--reference", "reference", "--perturbed", "p1", "p2", "p3")
    assert all(map(is_harmless, ttrace.reports(*words, code=0)))
    # Were it another name there, the tensor would have no tolerance, and the check would say so.
    assert ttrace.reports(*CHECK, "-t", "t.yaml", code=0).startswith("same\n")


def test_a_history_that_another_program_holds_loses_nothing(ttrace, reference, candidate, tmp_path):
    candidate()
    ttrace.reports(*CHECK, "-a", "a.yaml", "--history", "h.db", code=0)
    history = sqlite3.connect(tmp_path / "h.db", isolation_level=None)
    history.execute("begin exclusive")
    stdout, stderr = ttrace(*CHECK, "-a", "a.yaml", "--history", "h.db", code=2)  # waits for ten seconds
    assert stderr == "ttrace: error: h.db: database is locked; expected a history that `ttrace check --history` made\n"
    history.execute("rollback")
    assert history.execute("select count(*) from checks").fetchone() == (1,)
    ttrace.reports(*CHECK, "-a", "a.yaml", "--history", "h.db", code=0)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6])
def test_a_damaged_history_is_refused_and_left_as_it_is(ttrace, reference, candidate, tmp_path, part):
    candidate()
    ttrace.reports(*CHECK, "-a", "a.yaml", "--history", "h.db", code=0)
    data = bytearray((tmp_path / "h.db").read_bytes())
    begin = int(part * len(data))
    data[begin : begin + 4096] = b"\xff" * len(data[begin : begin + 4096])
    (tmp_path / "h.db").write_bytes(data)
    stdout, stderr = ttrace(*CHECK, "-a", "a.yaml", "--history", "h.db", code=2)
    assert stderr.startswith("ttrace: error: h.db: ") and stderr.count("\n") == 1
    assert (tmp_path / "h.db").read_bytes() == data
