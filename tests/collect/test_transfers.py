"""Tensors of a device reach the trace late, and by another way. No device is needed: copies of programs/late_copies.py
arrive as a device's would, which says nothing of CUDA itself."""

import sys
from unittest import mock

import pytest
from conftest import HERE, TTRACE, program, python, run

sys.path.insert(0, str(HERE / "programs"))

import torch
from late_copies import LateCopy

from ttrace_torch import side_stream, transfers
from ttrace_torch.problems import CollectError
from ttrace_torch.tensors import NotTraceable

LATE = HERE / "programs" / "late_copies.py"
TINYGPT = HERE.parent.parent / "tools" / "tinygpt" / "train.py"

pytestmark = pytest.mark.usefixtures("warm_programs")


class Stream:
    """Whose copies arrive when they are told to, in any order, or waited for."""

    def __init__(self):
        self.begun = []

    def begin(self, tensor):
        copy = Awaited(tensor)
        self.begun.append(copy)
        return copy


class Awaited(LateCopy):
    def __init__(self, tensor):
        super().__init__(tensor, fails=False)

    def wait(self):
        self.arrive()


@pytest.fixture
def stream(monkeypatch):
    stream = Stream()
    monkeypatch.setattr(transfers.side_stream, "side_stream_of", lambda device: stream)
    return stream


@pytest.fixture
def queue(stream):
    return transfers.Transfers()


def values_of(received):
    return [tensor.tolist() for tensor in received]


def taking(received):
    return lambda host: received.append(host.clone())


def test_tensors_are_handed_over_in_the_order_of_recording_whichever_copy_arrives_first(queue, stream):
    received = []
    for value in range(3):
        queue.add(torch.tensor([value]), taking(received))
    stream.begun[2].arrive()
    stream.begun[1].arrive()
    queue.add(torch.tensor([3]), taking(received))
    assert received == []
    stream.begun[0].arrive()
    queue.add(torch.tensor([4]), taking(received))
    assert values_of(received) == [[0], [1], [2]]
    queue.finish()
    assert values_of(received) == [[0], [1], [2], [3], [4]]


def test_a_tensor_of_the_host_waits_for_those_of_the_device_that_came_before(queue, stream):
    received = []
    queue.add(torch.tensor([0]), taking(received))
    queue._streams[torch.device("cpu")] = None
    on_host = torch.tensor([1])
    queue.add(on_host, taking(received))
    on_host.fill_(7)
    assert received == []
    queue.finish()
    queue.add(on_host, taking(received))
    assert values_of(received) == [[0], [1], [7]]


def test_values_are_those_at_the_hook_and_rows_come_in_order(queue, stream):
    received = []
    tensor = torch.arange(6).reshape(2, 3)
    queue.add(tensor.t(), taking(received))
    tensor.zero_()
    queue.finish()
    assert values_of(received) == [[[0, 3], [1, 4], [2, 5]]]


def test_no_more_waits_than_there_is_room_for(queue, stream, monkeypatch):
    monkeypatch.setattr(transfers, "_MOST_BYTES", 32)
    received = []
    for value in range(5):
        queue.add(torch.tensor([value, value]), taking(received))  # 16 bytes
        assert value + 1 - len(received) <= 2
    assert [tensor[0] for tensor in received] == [0, 1, 2]
    larger = torch.arange(5)
    queue.add(larger, taking(received))  # waited for, with all before it
    assert len(stream.begun) == 5
    assert values_of(received)[-2:] == [[4, 4], [0, 1, 2, 3, 4]]


def test_a_device_without_memory_for_the_copy_is_waited_for(queue, stream, monkeypatch):
    received = []
    queue.add(torch.tensor([0]), taking(received))

    def refuse(tensor):
        raise transfers.OutOfDeviceMemory("CUDA out of memory")

    monkeypatch.setattr(stream, "begin", refuse)
    queue.add(torch.tensor([1]), taking(received))
    assert values_of(received) == [[0], [1]]
    monkeypatch.undo()
    queue.add(torch.tensor([2]), taking(received))
    assert len(stream.begun) == 2  # the next one is tried again


def test_a_tensor_that_cannot_be_copied_at_all_is_named(queue, stream, monkeypatch):
    def refuse(*_):
        raise transfers.OutOfDeviceMemory("CUDA out of memory")

    monkeypatch.setattr(stream, "begin", refuse)
    monkeypatch.setattr(torch.Tensor, "to", refuse)
    with pytest.raises(NotTraceable, match="no memory to copy"):
        queue.add(torch.tensor([0]), taking([]))


def test_a_device_without_pinned_memory_is_waited_for_from_then_on(queue, stream, monkeypatch):
    def refuse(tensor):
        raise RuntimeError("Need to provide pin_memory allocator to use pin memory.")

    received = []
    monkeypatch.setattr(stream, "begin", refuse)
    queue.add(torch.tensor([0]), taking(received))
    monkeypatch.undo()
    queue.add(torch.tensor([1]), taking(received))
    assert (values_of(received), stream.begun) == ([[0], [1]], [])


@pytest.mark.parametrize("question", ["has_arrived", "wait"])
def test_a_device_that_fails_is_named_in_one_line(queue, stream, monkeypatch, question):
    def fail():
        raise RuntimeError("CUDA error: unspecified launch failure\nCompile with `TORCH_USE_CUDA_DSA`")

    queue.add(torch.tensor([0]), taking([]))
    monkeypatch.setattr(stream.begun[0], question, fail)
    with pytest.raises(CollectError, match="from its device: CUDA error: unspecified launch failure$"):
        queue.add(torch.tensor([1]), taking([]))
        queue.finish()


def test_a_side_stream_asks_torch_cuda_for_what_it_has(monkeypatch):
    """Names and arguments; what they do takes a device."""
    cuda, empty = mock.create_autospec(torch.cuda), torch.empty
    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.setattr(torch, "empty", lambda *sizes, pin_memory, **options: empty(*sizes, **options))
    stream = side_stream.side_stream_of(torch.device("cuda", 1))
    copy = stream.begin(torch.tensor([1, 2]))
    cuda.Stream.assert_called_once_with(torch.device("cuda", 1))
    cuda.stream.assert_called_once_with(cuda.Stream())
    waits, records = cuda.Stream().wait_stream, cuda.Stream().record_event
    waits.assert_called_once_with(cuda.current_stream())
    assert copy.has_arrived() is records().query()
    copy.wait()
    records().synchronize.assert_called_once_with()
    assert copy.host.tolist() == [1, 2]


def test_devices_without_streams_are_waited_for():
    assert side_stream.side_stream_of(torch.device("cpu")) is None
    assert side_stream.side_stream_of(torch.device("mps")) is None


# Programs.


def require_same_traces(at_once, late):
    assert late.code == at_once.code == 0, late
    first, second = at_once.rank(), late.rank()
    assert list(first.all) == list(second.all)  # in this order
    assert first.mappings == second.mappings
    for identity, values in first.all.items():
        assert values.tobytes() == second.all[identity].tobytes(), identity


@pytest.mark.parametrize("options", [(), ("--optimizer", "adamw", "--clip", "--recompute", "reentrant")])
def test_a_program_has_the_trace_that_it_has_without_a_device(collect, options):
    options = [*options, "--steps", "3", "--microbatches", "2"]
    late = collect("--iterations", "0-1", command=python(LATE, HERE / "programs" / "small.py", *options))
    require_same_traces(collect("--iterations", "0-1", command=program("small", *options)), late)


def test_a_model_has_the_trace_that_it_has_without_a_device(collect):
    late = collect(command=python(LATE, TINYGPT))
    require_same_traces(collect(command=python(TINYGPT)), late)
    assert int(late.stdout.rpartition(" ")[2]) > 1  # it was asynchronous


def test_a_copy_that_does_not_arrive_ends_the_recording_and_not_the_program(collect):
    late = collect(command=python(LATE, "--fail-at", "40", TINYGPT))
    plain = run(python(LATE, TINYGPT))
    assert late.code == 2, late
    assert late.stdout.partition("most")[0] == plain.stdout.partition("most")[0]
    assert any(
        "a tensor could not be copied from its device: an illegal memory access was encountered" in message
        for message in late.messages
    ), late
    whole = collect(command=python(TINYGPT))
    checked = run([TTRACE, "check", "--reference", whole.directory, "--candidate", late.directory, "-t", "default"])
    assert checked.returncode in (1, 2), checked.stdout
