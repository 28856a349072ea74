"""Reads the traces that make_traces writes, as a plain script would: h5py finds the datasets, the bytes are read
at their offset. (HDF5's own conversion of bf16, a custom float to it, is far slower: this favours the scripts.)"""

import pathlib

import h5py
import numpy as np

TP_DIM = {"column_bf16.weight": 0, "column_fp32.weight": 0, "row_bf16.weight": 1, "row_fp32.weight": 1}


class Trace:
    def __init__(self, directory):
        self.files = [h5py.File(path) for path in sorted(pathlib.Path(directory).glob("rank-*.h5"))]
        self.raw = [open(file.filename, "rb", buffering=0) for file in self.files]  # noqa: SIM115 (read until the end)
        self.names = []
        self.files[0]["tensors"].visititems(
            lambda name, item: self.names.append(name) if isinstance(item, h5py.Dataset) else None
        )
        self.bytes = 0

    def shards(self, name):
        """Every rank's array: float32, or uint16 for bfloat16."""
        arrays = []
        for file, raw in zip(self.files, self.raw, strict=True):
            dataset = file["tensors"][name]
            # h5py shows bf16 as float32.
            width = dataset.id.get_storage_size() // dataset.size
            array = np.empty(dataset.shape, np.float32 if width == 4 else np.uint16)
            raw.seek(dataset.id.get_offset())
            if raw.readinto(array) != array.nbytes:
                raise EOFError(name)
            arrays.append(array)
            self.bytes += array.nbytes
        return arrays


def tp_dim(name):
    """The dimension that the ranks split, or None where all hold the whole tensor."""
    return next((dim for suffix, dim in TP_DIM.items() if name.endswith(suffix)), None)
