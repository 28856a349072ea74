"""Makes a trace of tensors that other programs recorded: `ttrace import` runs it. A job that records imports nothing of
it. torch, numpy and safetensors are imported where a format needs them.

    __main__.py          the command line
    refusal.py           why a source is not imported, in one line
    options.py           what the command line asks for
    trace.py             the trace that is written
    budget.py            what an import may cost
    source_files.py      the regular files of a source
    pattern.py           what a path and a key say of a tensor
    tensor_files.py      the tensors in a safetensors, npz, npy or pt file
    pickle_cost.py       what a pickle costs to read
Formats:
    files.py             files with names that a pattern explains
    checkpoint.py        parameters: safetensors and state dicts, whole or sharded
    dcp.py               ... of torch.distributed.checkpoint
    restricted_pickle.py ... whose metadata is a pickle
    msprobe.py           dumps of MindStudio's msprobe
    sglang.py            dumps of SGLang's dumper
    transformer_engine.py  dumps of Transformer Engine's debug feature DumpTensors
    torchtitan.py        refuses torchtitan's, which hold no values
"""
