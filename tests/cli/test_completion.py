"""Completion in real shells; zsh and fish where they are installed."""

import shutil
import subprocess

import pytest

from traces import PROGRAM


def run(*words, **options):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True, **options).stdout


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        (folder / shell).write_text(run(PROGRAM, "completion", shell))
    return folder


def completed_by_bash(scripts, *words):
    line = " ".join(f"'{word}'" for word in words)
    place = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}"
    ask = f"source {scripts}/bash; {place}; _ttrace; printf '%s\\n' ${{COMPREPLY[@]}}"
    return set(run("bash", "--norc", "-c", ask).split())


def completed_by_fish(scripts, line):
    ask = f"source {scripts}/fish; complete -C '{line}'"
    return {item.split("\t")[0] for item in run("fish", "--no-config", "-c", ask).splitlines()}


def test_bash_completes_commands_and_their_options(scripts):
    assert completed_by_bash(scripts, "ttrace", "ch") == {"check"}
    assert {"collect", "run", "help"} <= completed_by_bash(scripts, "ttrace", "")
    assert completed_by_bash(scripts, "ttrace", "help", "exp") == {"explain", "export"}
    assert completed_by_bash(scripts, "ttrace", "check", "--reference-a") == {"--reference-annotations"}
    assert "--iterations" in completed_by_bash(scripts, "ttrace", "collect", "-")
    assert "--split" not in completed_by_bash(scripts, "ttrace", "check", "-")
    assert completed_by_bash(scripts, "ttrace", "collect", "--", "python", "--it") == set()  # another's options


def test_bash_completes_the_values_of_options(scripts):
    assert completed_by_bash(scripts, "ttrace", "check", "--color", "a") == {"auto", "always"}
    assert completed_by_bash(scripts, "ttrace", "check", "-a", "megatron_l") == {"megatron_llama"}
    assert completed_by_bash(scripts, "ttrace", "show", "--kind", "main") >= {"main_grad"}
    assert "transformers_megatron_llama" in completed_by_bash(scripts, "ttrace", "check", "--correspondence", "")
    assert "--directory" not in completed_by_bash(scripts, "ttrace", "collect", "--")
    # Readline cuts words at `=`.
    assert completed_by_bash(scripts, "ttrace", "check", "--color", "=", "al") == {"always"}
    assert completed_by_bash(scripts, "ttrace", "check", "--color", "=") == {"auto", "always", "never"}
    kinds = completed_by_bash(scripts, "ttrace", "collect", "--kinds", "scalar,main,out")
    assert kinds == {"scalar,main,output"}


def test_bash_completes_an_argument_that_is_one_of_several_words(scripts):
    assert completed_by_bash(scripts, "ttrace", "completion", "") == {"bash", "zsh", "fish"}
    assert completed_by_bash(scripts, "ttrace", "import", "ch") == {"checkpoint"}
    assert completed_by_bash(scripts, "ttrace", "import", "--par") == {"--partial"}
    assert completed_by_bash(scripts, "ttrace", "import", "files", "d") == set()  # a file


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
def test_fish_completes_commands_and_their_options(scripts):
    assert completed_by_fish(scripts, "ttrace chec") == {"check"}
    assert completed_by_fish(scripts, "ttrace check --reference-a") == {"--reference-annotations"}
    assert completed_by_fish(scripts, "ttrace help exp") == {"explain", "export"}
    assert completed_by_fish(scripts, "ttrace check --color=al") == {"--color=always"}
    assert completed_by_fish(scripts, "ttrace collect --kinds scalar,out") == {"scalar,output"}
    assert completed_by_fish(scripts, "ttrace import ch") >= {"checkpoint"}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
def test_zsh_takes_the_script(scripts):
    # With its completion system loaded: names of functions that it calls are looked up when they run.
    ask = f"autoload -U compinit; compinit -D -u; source {scripts}/zsh; print $_comps[ttrace]; whence -w _ttrace"
    assert run("zsh", "-f", "-c", ask).split() == ["_ttrace", "_ttrace:", "function"]
