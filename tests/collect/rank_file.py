"""Reads a rank's file as the grammar in src/base/trace.h says, with h5py alone."""

import json

import h5py
import numpy

from ttrace_torch.library import Kind, Pass

DTYPES = [None, "f8", "f4", "f2", "u2", "u1", "u1", "i1", "i2", "i4", "i8", "u1", "?"]


class RankFile:
    """`tensors` maps (kind, name, micro-batch) to arrays, of iteration 0, chunk 0 and the forward pass;
    `all` maps (iteration, micro-batch, chunk, pass, kind, name), `mappings` the same to what was recorded of the
    tensor's place, None where nothing. bf16 comes as its bits."""

    def __init__(self, path):
        data = path.read_bytes()
        with h5py.File(path) as file:
            self.attributes = {
                name: value.decode() if isinstance(value, bytes) else value for name, value in file.attrs.items()
            }
            rows = file["ttrace/index"][()]
            text = file["ttrace/text"][()].tobytes()
            shapes = file["ttrace/shapes"][()]
        self.all = {}
        self.dtypes = {}
        self.mappings = {}
        for row in rows:
            name = text[row["name"] : row["name"] + row["name_length"]].decode()
            shape = shapes[row["shape"] : row["shape"] + row["ndim"]]
            values = numpy.frombuffer(data[row["offset"] : row["offset"] + row["bytes"]], DTYPES[row["dtype"]])
            identity = (
                int(row["iteration"]),
                int(row["microbatch"]),
                int(row["chunk"]),
                Pass(row["pass"]).text,
                Kind(row["kind"]).text,
                name,
            )
            assert identity not in self.all
            self.all[identity] = values.reshape(shape)
            self.dtypes[identity] = int(row["dtype"])
            mapping = text[row["mapping"] : row["mapping"] + row["mapping_length"]].decode()
            self.mappings[identity] = json.loads(mapping) if mapping else None
        self.complete = bool(self.attributes.get("complete", 0))

    @property
    def tensors(self):
        return {
            (kind, name, microbatch): values
            for (iteration, microbatch, chunk, pass_, kind, name), values in self.all.items()
            if iteration == 0 and chunk == 0 and pass_ == "forward"
        }

    def names(self, kind, microbatch=None, pass_="forward"):
        """In the order of recording."""
        return [name for (_, m, _, p, k, name) in self.all if k == kind and p == pass_ and microbatch in (None, m)]
