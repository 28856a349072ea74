"""An installed ttrace: nothing of the build or the source tree is needed."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["TTRACE_BUILD"]).resolve()
C_PROGRAM = ROOT / "tests" / "c_api" / "record_trace.c"


def run(*words, cwd, **environment):
    """Runs a command with an environment that knows nothing of this checkout."""
    clean = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(cwd), **environment}
    result = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=clean, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, f"{words}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--prefix", prefix, cwd=prefix)
    return prefix


def test_nothing_that_is_installed_leads_back(prefix):
    leading_back = []
    for path in prefix.rglob("*"):
        if path.is_symlink():
            assert prefix in path.resolve().parents, f"{path} leads to {path.resolve()}"
        elif path.is_file() and any(str(tree).encode() in path.read_bytes() for tree in (BUILD, ROOT)):
            leading_back.append(path.relative_to(prefix))
    assert leading_back == []


def test_a_c_program_is_built_by_pkg_config(prefix, tmp_path):
    where = {"PKG_CONFIG_PATH": str(next(prefix.rglob("ttrace.pc")).parent)}
    flags = run("pkg-config", "--cflags", "--libs", "ttrace", cwd=tmp_path, **where).split()
    run("cc", C_PROGRAM, *flags, "-lm", "-o", "record", cwd=tmp_path)
    libraries = str(next(prefix.rglob("libttrace.so")).parent)
    run("./record", "trace", cwd=tmp_path, LD_LIBRARY_PATH=libraries)
    assert "linear" in run(prefix / "bin" / "ttrace", "inspect", "trace", cwd=tmp_path)


def test_a_c_program_is_built_by_cmake(prefix, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(record C)\nfind_package(ttrace 0.3 REQUIRED)\n"
        f"add_executable(record {C_PROGRAM})\ntarget_link_libraries(record ttrace::ttrace m)\n"
    )
    run("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}", cwd=tmp_path)
    run("cmake", "--build", "build", cwd=tmp_path)
    run("build/record", "trace", cwd=tmp_path)
    assert "linear" in run(prefix / "bin" / "ttrace", "inspect", "trace", cwd=tmp_path)


def test_presets_are_found_by_name(prefix, tmp_path):
    libraries = next(prefix.rglob("ttrace.pc")).parents[1]
    run("cc", C_PROGRAM, f"-I{prefix}/include", f"-L{libraries}", "-lttrace", "-lm", "-o", "record", cwd=tmp_path)
    run("./record", "trace", cwd=tmp_path, LD_LIBRARY_PATH=str(libraries))
    shown = run(prefix / "bin" / "ttrace", "explain", "trace", "linear", "-a", "megatron_gpt", cwd=tmp_path)
    assert "linear" in shown


def test_each_page_of_the_manual_is_a_man_page(prefix):
    pages = {page.stem.removeprefix("ttrace-") for page in prefix.glob("share/man/man[17]/*")}
    assert pages == {"ttrace", *(page.stem for page in (ROOT / "src" / "manual").glob("*.md"))} - {"README"}
    page = (prefix / "share" / "man" / "man7" / "ttrace-loss-curves.7").read_text()
    assert "ttrace-loss-curves \\- My loss curves differ\n" in page
    assert "ttrace-loss-curves\\fR(7)" in (prefix / "share" / "man" / "man1" / "ttrace.1").read_text()


def test_pages_of_the_manual_ask_for_fonts_that_there_are(prefix):
    """groff 1.23 has no font C any more, and says so at each word that is to be in it."""
    pages = {page.stem: page.read_text() for page in prefix.glob("share/man/man[17]/*")}
    fonts = {name: set(re.findall(r"\\f(\(..|.)|^\.ft (.+)$", text, re.M)) for name, text in pages.items()}
    known = {"R", "B", "I", "P", "(CR", "(CI", "(CB"}
    asked = {font for of_page in fonts.values() for pair in of_page for font in pair if font}
    assert asked <= known and "(CR" in asked, asked


def test_each_command_has_a_manual_page(prefix, tmp_path):
    listed = run(prefix / "bin" / "ttrace", "help", cwd=tmp_path).partition("Commands:\n")[2].partition("\n\n")[0]
    commands = {line.split()[0] for line in listed.splitlines()} - {"help"}
    pages = {page.stem for page in prefix.rglob("*.1")}
    assert pages == {"ttrace", *(f"ttrace-{command}" for command in commands)}
    page = (prefix / "share" / "man" / "man1" / "ttrace-check.1").read_text()
    assert "ttrace-check \\- compares a candidate's trace with the reference's\n" in page
    assert "\\-\\-reference TRACE" in page


def test_python_imports_the_package(prefix, tmp_path):
    program = "import ttrace; print(ttrace.__file__, ttrace.__version__); ttrace.open('nowhere')"
    path = {"PYTHONPATH": str(prefix / "lib" / "python")}
    clean = {"PATH": "/usr/bin:/bin", **path}
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=clean, capture_output=True, text=True)
    assert result.stdout.startswith(str(prefix))
    assert result.stderr.splitlines()[-1].startswith("ttrace.InputError: nowhere: ")
