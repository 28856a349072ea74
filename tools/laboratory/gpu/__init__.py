"""Whether ttrace does on a GPU what it does on a CPU, in a few minutes of one. `tools/gpu` says how it is run."""
