"""Is this converted checkpoint the same model? Every format gives the same trace, and what differs is named."""

import json
import pickle
import warnings

import pytest
import torch
from safetensors.torch import save_file


def weights():
    generator = torch.Generator().manual_seed(0)
    return {
        "layers.0.weight": torch.randn(4, 3, generator=generator),
        "layers.0.bias": torch.zeros(4),
        "layers.1.weight": torch.randn(2, 4, generator=generator).bfloat16(),
        "positions": torch.arange(5),
    }


def sharded(folder, tensors):
    """As Hugging Face writes a model that is too large for one file."""
    folder.mkdir()
    names = list(tensors)
    files = {"model-00001-of-00002.safetensors": names[:2], "model-00002-of-00002.safetensors": names[2:]}
    for file, held in files.items():
        save_file({name: tensors[name] for name in held}, folder / file)
    weight_map = {name: file for file, held in files.items() for name in held}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def whole(folder, tensors):
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")


def distributed(folder, tensors):
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is not distributed
        dcp.save(tensors, checkpoint_id=folder, no_dist=True)


WRITERS = {
    "safetensors": lambda path, tensors: save_file(tensors, path.with_suffix(".safetensors")),
    "state dict": lambda path, tensors: torch.save(tensors, path.with_suffix(".bin")),
    "training state": lambda path, tensors: torch.save(
        {"epoch": 3, "optimizer": {"state": {0: torch.ones(3)}}, "model": tensors}, path.with_suffix(".pt")
    ),
    "before PyTorch 1.6": lambda path, tensors: torch.save(
        tensors, path.with_suffix(".pth"), _use_new_zipfile_serialization=False
    ),
    "folder": whole,
    "index": sharded,
    "dcp": distributed,
    "dcp with an optimizer": lambda path, tensors: distributed(path, {"model": tensors, "optim": {"m": torch.ones(3)}}),
}


def written(tmp_path, writer, tensors, name="checkpoint"):
    WRITERS[writer](tmp_path / name, tensors)
    (path,) = (path for path in tmp_path.iterdir() if path.name.partition(".")[0] == name)
    return path.name


@pytest.mark.parametrize("writer", WRITERS)
def test_the_same_model_is_the_same_in_every_format(ttrace, tmp_path, writer):
    save_file(weights(), tmp_path / "original.safetensors")
    ttrace.imports("checkpoint", "--", "original.safetensors", output="original")
    ttrace.imports("checkpoint", "--", written(tmp_path, writer, weights()), output="converted")
    text = ttrace.compares("original", "converted", code=0)
    assert text.startswith("same\n")
    # The bias is zero on both sides: it is compared, and proves nothing.
    assert "proof: 2 of 3 floating-point tensors" in text and "4 compared: 3 pass, 0 fail, 1 untrusted" in text


@pytest.mark.parametrize("writer", ["safetensors", "training state", "index", "dcp"])
def test_an_element_that_changed_is_found_in_its_tensor(ttrace, tmp_path, writer):
    save_file(weights(), tmp_path / "original.safetensors")
    ttrace.imports("checkpoint", "--", "original.safetensors", output="original")
    tensors = weights()
    tensors["layers.1.weight"].view(torch.int16)[1, 2] += 1  # one step of bfloat16
    ttrace.imports("checkpoint", "--", written(tmp_path, writer, tensors), output="converted")
    text = ttrace.compares("original", "converted", code=1)
    assert text.startswith("different\nfirst wrong tensor: layers.1.weight param, iteration 0\n")
    assert "worst at [1, 2]" in text and ", 1 fail," in text


def test_an_integer_that_changed_and_a_tensor_that_is_missing_are_found(ttrace, tmp_path):
    save_file(weights(), tmp_path / "original.safetensors")
    ttrace.imports("checkpoint", "--", "original.safetensors", output="original")
    torch.save(weights() | {"positions": torch.arange(5) + 1}, tmp_path / "moved.pt")
    ttrace.imports("checkpoint", "--", "moved.pt", output="moved")
    assert "first wrong tensor: positions param" in ttrace.compares("original", "moved", code=1)
    torch.save({name: tensor for name, tensor in weights().items() if name != "layers.0.bias"}, tmp_path / "less.pt")
    ttrace.imports("checkpoint", "--", "less.pt", output="less")
    text = ttrace.compares("original", "less", code=1)
    assert text.startswith("different\nfirst missing tensor: layers.0.bias param, iteration 0\n")
    assert ttrace.compares("less", "original", code=1).startswith("different\nfirst missing tensor: layers.0.bias")


def test_chunks_of_several_ranks_are_put_together(ttrace, tmp_path):
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex

    # As two ranks write it that hold two rows each; made of one rank's checkpoint, without starting two.
    rows = weights()["layers.0.weight"]
    for name, part in (("a", rows[:2]), ("b", rows[2:])):
        distributed(tmp_path / name, {"layers.0.weight": part.clone()})
    folder = tmp_path / "both"
    folder.mkdir()
    read = {name: read_metadata(tmp_path / name) for name in "ab"}
    stored = read["a"].state_dict_metadata["layers.0.weight"]
    stored.size = torch.Size([4, 3])
    stored.chunks = [ChunkStorageMetadata(torch.Size([2 * i, 0]), torch.Size([2, 3])) for i in range(2)]
    places = {}
    for i, name in enumerate("ab"):
        (info,) = read[name].storage_data.values()
        (tmp_path / name / info.relative_path).rename(folder / f"__{i}_0.distcp")
        info.relative_path = f"__{i}_0.distcp"
        places[MetadataIndex("layers.0.weight", torch.Size([2 * i, 0]), i)] = info
    metadata = Metadata({"layers.0.weight": stored}, planner_data=None, storage_data=places)
    write_metadata(folder, metadata)
    ttrace.imports("checkpoint", "--", "both", output="both-trace")
    save_file({"layers.0.weight": rows}, tmp_path / "whole.safetensors")
    ttrace.imports("checkpoint", "--", "whole.safetensors", output="whole")
    assert ttrace.compares("whole", "both-trace", code=0).startswith("same\n")
    # The second chunk where the first lies already.
    stored.chunks[1] = ChunkStorageMetadata(torch.Size([1, 0]), torch.Size([2, 3]))
    places[MetadataIndex("layers.0.weight", torch.Size([1, 0]), 1)] = places.popitem()[1]
    write_metadata(folder, metadata)
    assert "each part once" in ttrace.refuses_to_import("checkpoint", "--", "both")


def test_plans_of_saving_beside_the_metadata_are_no_obstacle(ttrace, tmp_path):
    from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

    distributed(tmp_path / "dcp", weights())
    metadata = read_metadata(tmp_path / "dcp")  # Megatron-core keeps them there
    chunk = metadata.state_dict_metadata["layers.0.weight"].chunks[0]
    data = TensorWriteData(chunk, metadata.state_dict_metadata["layers.0.weight"].properties, torch.Size([4, 3]))
    (index, *_) = metadata.storage_data
    metadata.all_local_plans = [SavePlan([WriteItem(index, WriteItemType.SHARD, tensor_data=data)])]
    write_metadata(tmp_path / "dcp", metadata)
    ttrace.imports("checkpoint", "--", "dcp", output="planned")
    save_file(weights(), tmp_path / "whole.safetensors")
    ttrace.imports("checkpoint", "--", "whole.safetensors", output="whole")
    assert ttrace.compares("whole", "planned", code=0).startswith("same\n")


def read_metadata(folder):
    return pickle.loads((folder / ".metadata").read_bytes())


def write_metadata(folder, metadata):
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


def test_key_says_which_part_holds_the_parameters(ttrace, tmp_path):
    torch.save({"generator": weights(), "discriminator": {"weight": torch.ones(2)}}, tmp_path / "gan.pt")
    assert ttrace.refuses_to_import("checkpoint", "--", "gan.pt") == (
        "gan.pt: the tensors are below generator, discriminator; expected --key with one that holds them"
    )
    printed = ttrace.imports("checkpoint", "--key", "discriminator", "--", "gan.pt")
    assert printed.out == "left out: 4 tensors of other parts".join(
        [f"{tmp_path}/trace: 1 tensor, 8 bytes\n", ", such as generator.layers.0.weight\n"]
    )


def test_a_parameter_that_a_trace_cannot_hold_is_refused(ttrace, tmp_path):
    torch.save(weights() | {"freqs": torch.ones(2, dtype=torch.uint64)}, tmp_path / "unsigned.pt")
    assert ttrace.refuses_to_import("checkpoint", "--", "unsigned.pt") == (
        "unsigned.pt: freqs: a tensor of dtype uint64, which a trace cannot hold"
    )


def test_a_nested_tensor_is_refused_by_name(ttrace, tmp_path):
    nested = torch.nested.nested_tensor([torch.ones(3), torch.ones(2)])
    torch.save({"w": nested}, tmp_path / "nested.pt")
    error = ttrace.refuses_to_import("checkpoint", "nested.pt")
    assert error == "nested.pt: w: a nested tensor, which a trace cannot hold"


def test_a_folder_is_read_as_programs_load_it_or_not_at_all(ttrace, tmp_path):
    sharded(tmp_path / "model", weights())
    sharded(tmp_path / "same", weights())
    save_file({name: tensor + 1 for name, tensor in weights().items()}, tmp_path / "model" / "model.safetensors")
    error = (
        "model/model.safetensors.index.json: does not list model.safetensors, which lies beside it, and a program "
        "loads the one or the other; expected one of them"
    )
    assert ttrace.refuses_to_import("checkpoint", "--", "model") == error
    assert ttrace.refuses("check", "--reference", "same", "--candidate", "model") == error
    (tmp_path / "same" / "pytorch_model.bin").write_bytes(b"not looked at where there are safetensors")
    ttrace.imports("checkpoint", "--", "same")


def test_an_index_must_say_what_its_files_hold(ttrace, tmp_path):
    sharded(tmp_path / "model", weights())
    index = tmp_path / "model" / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    file = listed["weight_map"].pop("positions")
    index.write_text(json.dumps(listed))
    assert "holds 'positions', of which" in ttrace.refuses_to_import("checkpoint", "--", "model")
    listed["weight_map"] |= {"positions": file, "extra": file}
    index.write_text(json.dumps(listed))
    assert "'extra' is not in the file that it names" in ttrace.refuses_to_import("checkpoint", "--", "model")
    (tmp_path / "model" / file).unlink()
    assert "No such file" in ttrace.refuses_to_import("checkpoint", "--", "model")
