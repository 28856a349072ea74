"""`make DIRECTORY BYTES`: one model as safetensors and as DCP. `compare SAFETENSORS DCP`: what one writes without
ttrace: each tensor of both, with PyTorch's reader of DCP, equal or not and how far."""

import json
import pathlib
import struct
import sys

import numpy as np
import torch
from torch.distributed import checkpoint

ELEMENTS = (4096, 4096)  # of each tensor, in fp32: 64 MiB


def make(directory, size):
    count = max(1, size // (4 * ELEMENTS[0] * ELEMENTS[1]))
    state = {
        f"layers.{i}.weight": torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(i)) for i in range(count)
    }
    checkpoint.save(state, checkpoint_id=directory / "candidate", no_dist=True)
    header, end = {}, 0
    for name, tensor in state.items():
        header[name] = {"dtype": "F32", "shape": list(ELEMENTS), "data_offsets": [end, end + 4 * tensor.numel()]}
        end += 4 * tensor.numel()
    text = json.dumps(header).encode()
    with (directory / "reference.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in state.values():
            file.write(tensor.numpy())


def compare(reference, candidate):
    with reference.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    data = np.memmap(reference, dtype=np.uint8, mode="r", offset=8 + length)
    metadata = checkpoint.FileSystemReader(candidate).read_metadata().state_dict_metadata
    state = {name: torch.empty(one.size, dtype=one.properties.dtype) for name, one in metadata.items()}
    checkpoint.load(state, checkpoint_id=candidate, no_dist=True)
    for name, said in header.items():
        begin, end = said["data_offsets"]
        a, b = data[begin:end].view(np.float32).reshape(said["shape"]), state[name].numpy()
        difference = np.linalg.norm(a - b) / np.linalg.norm(a)
        print(name, np.array_equal(a, b), difference, np.abs(a - b).max())


if __name__ == "__main__":
    mode, first, second = sys.argv[1:]
    make(pathlib.Path(first), int(second)) if mode == "make" else compare(pathlib.Path(first), pathlib.Path(second))
