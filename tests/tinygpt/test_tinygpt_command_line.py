import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps import launch
from tinygpt.bugs import BUGS
from tinygpt.command_line import parse_options

TRAIN = Path(__file__).resolve().parents[2] / "tools" / "tinygpt" / "train.py"
STEP = r"step 0 loss \d+\.\d+ grad_norm \d+\.\d+\n"
DIGEST = r"parameters [0-9a-f]{64}\n"


def output_of(*command):
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def torchrun(processes, *arguments):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes]
    return output_of(*launcher, TRAIN, *arguments)


def test_a_single_process_prints_the_same_digits_every_time_and_others_for_another_seed():
    first, again = (output_of(TRAIN, "--print-digest") for _ in range(2))
    other_seed = output_of(TRAIN, "--print-digest", "--seed", 7)
    assert re.fullmatch(STEP + DIGEST, first)
    assert first == again
    assert first.splitlines()[1] != other_seed.splitlines()[1]


def test_four_ranks_print_the_same_digits_every_time_whoever_starts_them():
    arguments = ("--tp", 2, "--sp", "--dp", 2, "--print-digest")
    started = torchrun(4, *arguments)
    assert re.fullmatch(STEP + DIGEST, started)
    assert output_of(launch.__file__, 4, TRAIN, *arguments) == started


def test_the_single_process_runs_without_the_parallel_code():
    script = (
        f"import sys; sys.path.insert(0, {str(TRAIN.parents[1])!r})\n"
        "from tinygpt import train; train.main([])\n"
        "print([m for m in sys.modules if m.startswith('tinygpt.parallel')])"
    )
    assert output_of("-c", script).splitlines()[-1] == "[]"


def test_help_states_the_rank_order_and_every_bug():
    text = output_of(TRAIN, "--help")
    order = "tensor parallel fastest, then context parallel, then data parallel, then pipeline"
    assert f"rank = tp + TP * (cp + CP * (dp + DP * pp)): {order}" in " ".join(text.split())
    assert "experts the same ranks are counted as rank = etp + ETP * (ep + EP * (edp + EDP * pp))" in text
    for bug in BUGS:
        assert f"\n  {bug}: " in text


@pytest.mark.parametrize(
    "arguments, started, message",
    [
        ("--heads 3", 1, "--hidden over --heads: 64 is not divisible by 3"),
        ("--tp 4 --heads 2", 4, "--heads over --tp: 2 is not divisible by 4"),
        ("--tp 4 --vocab 126", 4, "--vocab over --tp: 126 is not divisible by 4"),
        ("--pp 3", 3, "--layers over --pp: 4 is not divisible by 3"),
        ("--dp 3", 3, "--micro-batches over --dp: 4 is not divisible by 3"),
        ("--tp 2 --sp --seq 33", 2, "--seq over --tp with --sp: 33 is not divisible by 2"),
        ("--cp 2 --seq 34", 2, "--seq over 2 * --cp with --cp-layout zigzag: 34 is not divisible by 4"),
        ("--cp 2 --seq 33 --cp-layout striped", 2, "--seq over --cp: 33 is not divisible by 2"),
        ("--cp 2 --tp 4 --sp --seq 36", 8, "--seq over --cp * --tp with --sp: 36 is not divisible by 8"),
        ("--cp 0", 1, "--cp 0: must be 1 or more"),
        ("--kv-heads 2", 1, "--kv-heads needs --arch llama: a GPT's heads have a key and a value each"),
        ("--arch llama --kv-heads 3", 1, "--heads over --kv-heads: 4 is not divisible by 3"),
        ("--arch llama --kv-heads -1", 1, "--kv-heads -1: must be 0 (as many as --heads) or more"),
        ("--arch llama --hidden 60", 1, "--hidden over 2 * --heads with --arch llama: 60 is not divisible by 8"),
        ("--pad-vocab-to -1", 1, "--pad-vocab-to -1: must be 0 (off) or more"),
        (
            "--packed --seq 8 --micro-batch-size 4 --vocab 16",
            1,
            "--packed needs 8 documents of different lengths from half to all of --seq, 2 for each of "
            "--micro-batch-size: --seq 8 has only 5",
        ),
        ("--sp", 1, "--sp needs --tp 2 or more: it shards the sequence over the tensor parallel ranks"),
        (
            "--unfused-attention --cp 2",
            2,
            "--unfused-attention needs --cp 1: a context parallel rank has no scores of the whole row",
        ),
        ("--gather-buffers --tp 2", 2, "--gather-buffers needs --sp: without it nothing is gathered"),
        (
            "--cp-gradients average",
            1,
            "--cp-gradients average needs --cp 2 or more: it averages over the context parallel ranks",
        ),
        (
            "--recompute-layers 2",
            1,
            "--recompute-layers needs --recompute: it says how many layers are recomputed together",
        ),
        ("--recompute-layers 0", 1, "--recompute-layers 0: must be 1 or more"),
        ("--experts 4 --dp 3 --micro-batches 3 --ep 3", 3, "--experts over --ep: 4 is not divisible by 3"),
        (
            "--experts 4 --dp 2 --ep 2 --etp 2",
            2,
            "the ranks of a pipeline stage over --ep times --etp: 2 is not divisible by 4",
        ),
        (
            "--experts 4 --tp 4 --seq 33 --micro-batch-size 1",
            4,
            "--seq times --micro-batch-size over --tp: 33 is not divisible by 4",
        ),
        ("--experts 4 --topk 5", 1, "--topk 5: must be --experts, 4, or less"),
        ("--experts 4 --topk 0", 1, "--topk 0: must be 1 or more"),
        ("--experts -1", 1, "--experts -1: must be 0 (none) or more"),
        ("--dp 2 --ep 2", 2, "--ep 2 --etp 1 need --experts: they place experts on ranks"),
        ("--layers 0", 1, "--layers 0: must be 1 or more"),
        ("--clip-grad -1", 1, "--clip-grad -1.0: must be 0 (off) or more"),
        ("--lr nan", 1, "--lr nan: must be 0 or more"),
        ("--seed 4294967296", 1, "--seed 4294967296: must be below 2**32"),
        ("--seq 4", 1, "--vocab 128 has 16 boundary tokens, a micro-batch only 8 positions"),
        ("--tp 2 --dp 2", 1, "--tp 2 --cp 1 --dp 2 --pp 1 needs 4 processes, 1 started (torchrun --nproc-per-node 4)"),
        ("", 2, "--tp 1 --cp 1 --dp 1 --pp 1 needs 1 processes, 2 started (torchrun --nproc-per-node 1)"),
        ("--vpp 2", 1, "--vpp needs --pp 2 or more: it interleaves the stages of a pipeline"),
        ("--vpp 0", 1, "--vpp 0: must be 1 or more"),
        ("--pp 2 --vpp 4", 2, "--layers over --pp times --vpp: 4 is not divisible by 8"),
        (
            "--pp 2 --vpp 2 --micro-batches 3",
            2,
            "--micro-batches of a data parallel rank over --pp with --vpp: 3 is not divisible by 2",
        ),
        ("--count-head", 1, "--count-head needs --pp 2 or more"),
        ("--pp 2 --count-head", 2, "--layers and --count-head over --pp: 5 is not divisible by 2"),
        ("--first-stage-layers 2", 1, "--first-stage-layers needs --pp 2 or more"),
        ("--pp 2 --first-stage-layers 0", 2, "--first-stage-layers 0: must be 1 or more"),
        ("--pp 2 --first-stage-layers 4", 2, "--layers after --first-stage-layers: 0 left, other stages: 1"),
        (
            "--pp 2 --first-stage-layers 1 --last-stage-layers 1",
            2,
            "--layers after --first-stage-layers and --last-stage-layers: 2 left, other stages: 0",
        ),
        (
            "--pp 3 --first-stage-layers 1",
            3,
            "--layers after --first-stage-layers over the other stages: 3 is not divisible by 2",
        ),
        ("--pp 2 --vpp 2 --first-stage-layers 1", 2, "layers of a stage over --vpp: 1 is not divisible by 2"),
        (
            "--pp 2 --first-stage-layers 1 --count-head",
            2,
            "--first-stage-layers and --count-head: give one of them; each says what the first or last stage holds",
        ),
        ("--zero 1", 1, "--zero needs --dp 2 or more: it divides the optimizer over the data parallel ranks"),
        (
            "--zero 2 --dp 2 --pp 2 --tied",
            4,
            "--zero 2 with --tied needs --pp 1: no rank has the whole gradient that two stages share",
        ),
        ("--zero 1 --dp 2 --experts 4", 2, "--zero needs --experts 0: experts have data parallel ranks of their own"),
        (
            "--zero 2 --dp 2 --tp 2 --arch llama --kv-heads 1",
            4,
            "--zero 2 needs --kv-heads divisible by --tp: no rank has the whole gradient of heads that several share",
        ),
        (
            "--experts 4 --cp 2 --tp 4 --seq 36 --micro-batch-size 1",
            8,
            "--seq times --micro-batch-size over --cp * --tp: 36 is not divisible by 8",
        ),
        (
            "--experts 4 --cp 2 --ep 2 --etp 2",
            2,
            "the ranks of a pipeline stage over --ep times --etp: 2 is not divisible by 4",
        ),
        ("--loss-scale 3 --dtype fp16", 1, "--loss-scale 3: must be a power of two"),
        ("--loss-scale 8", 1, "--loss-scale needs --dtype fp16: the gradients of other dtypes do not vanish"),
        ("--fp8 --dtype fp16", 1, "--fp8 needs --dtype bf16 or fp32: its gradients have scales of their own"),
        ("--fp8 --experts 4", 1, "--fp8 needs --experts 0: an expert that gets no token would have no scale"),
        (
            "--overlap-param-gather --dp 2",
            2,
            "--overlap-param-gather needs --zero 1: parameters are gathered in its gradient buffer",
        ),
        (
            "--fp8 --bug fp8-amax-group --tp 2 --sp",
            2,
            "--bug fp8-amax-group needs --fp8, --tp 2 or more, --sp and --steps 2 or more",
        ),
        ("--zero 3", 1, "argument --zero: invalid choice: 3 (choose from 0, 1, 2)"),
        ("--layers x", 1, "argument --layers: invalid int value: 'x'"),
        ("--tpp 2", 1, "unrecognized arguments: --tpp 2"),
    ],
)
def test_a_run_that_cannot_be_is_refused_with_one_line(arguments, started, message, monkeypatch, capsys):
    monkeypatch.setitem(os.environ, "WORLD_SIZE", str(started))
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SystemExit) as exit_:
        parse_options(arguments.split())
    assert exit_.value.code == 2
    assert capsys.readouterr() == ("", f"tinygpt: error: {message}\n")


@pytest.mark.parametrize(
    "bug, arguments, started",
    [
        ("embedding-mask", "--dp 2", 2),
        ("stale-recompute-input", "--recompute reentrant", 1),
        ("stale-recompute-input", "--recompute reentrant --recompute-layers 2 --pp 4", 4),
        ("cp-loss-scale", "--cp 2 --per-token-loss", 2),
        ("cp-gradient-scale", "--cp 2 --cp-gradients average --per-token-loss", 2),
        ("zero-tied-embedding", "--tied --zero 1 --dp 2", 2),
        ("router-gradient", "--tp 2 --sp", 2),
        ("stage-division", "--pp 2 --vpp 2", 2),
        ("stage-division", "--pp 2 --vpp 2 --layers 10 --first-stage-layers 6", 2),
        ("overwritten-buffer", "--tp 2 --sp --gather-buffers --pp 4", 8),
        ("norm-gradient", "--tp 2", 2),
        ("strided-gradient", "--cp 2 --micro-batch-size 1", 2),
    ],
)
def test_a_bug_that_cannot_show_is_refused(bug, arguments, started, monkeypatch, capsys):
    monkeypatch.setitem(os.environ, "WORLD_SIZE", str(started))
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SystemExit) as exit_:
        parse_options([*arguments.split(), "--bug", bug])
    assert exit_.value.code == 2
    assert capsys.readouterr().err == f"tinygpt: error: --bug {bug} needs {BUGS[bug].needs}\n"


def test_only_the_first_rank_prints_the_error(monkeypatch, capsys):
    monkeypatch.setitem(os.environ, "RANK", "1")
    with pytest.raises(SystemExit):
        parse_options(["--layers", "0"])
    assert capsys.readouterr() == ("", "")
