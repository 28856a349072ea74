"""The keywords of `check`: made by tools/report_types, not to be edited."""

import os
from collections.abc import Sequence
from typing import TypedDict


class CheckOptions(TypedDict, total=False):
    """The options of `ttrace check` by their keywords."""

    # How the program places its tensors: a file (YAML), the name of a preset, or none
    annotations: "str | os.PathLike[str]"
    settings: Sequence[str]  # Give a parameter of the annotations a value; repeatable
    axes: str  # Axes of the ranks, fastest first, as in tp=2,dp=2, where the trace does not say them
    # How a reference on several ranks places its tensors, where that is not what -a says
    reference_annotations: "str | os.PathLike[str]"
    reference_settings: Sequence[str]  # Give a parameter of these a value; repeatable
    # The two are programs of their own: which tensor of one is which of the other (YAML), a file or one that comes with
    # ttrace
    correspondence: "str | os.PathLike[str]"
    # What each tensor may differ by, from `ttrace estimate-tolerance`; without, all must be equal; default: a closed
    # form, not measured
    tolerance: "str | os.PathLike[str]"
    # Take overrides of the tolerance file however much they allow, and what they excuse for proved
    accept_overrides: bool
    # Every logical tensor must have the reference's bits, as of a deterministic mode on other ranks; says by how many
    # units in the last place the first one differs
    bits: bool
    # The two were given the same sequences in other batches: padded otherwise, packed, in other micro-batches or
    # decoded with a cache; rows are held against each other by sequence and position, which the tokens tell: the name
    # of the input that holds them, or auto
    sequences: str
    # The candidate's tensors of this dtype are the reference's rounded to it, as in a converted checkpoint (bf16, fp16,
    # ...): compare them with that, so that only what differs beyond it is seen
    rounded_to: str
    only: str  # Only tensors whose name matches this glob or dotted suffix
    iterations: Sequence[int]  # Compare these iterations alone, as in 0,2,5-7
    # Compare these iterations of the reference with those of --candidate-iterations, as of a run that was resumed
    reference_iterations: Sequence[int]
    candidate_iterations: Sequence[int]  # The candidate's iterations that these are held against, one each
    strict: bool  # Untrusted tensors count as failed; ones that a program could not record are refused
    checksums: bool  # False: Do not verify the checksums of the tensors that are compared
    allow_same_run: bool  # The candidate may be the reference itself
    threads: int  # Number of threads [one a core]
    # The Python that reads what is no trace, with the packages of its format [python3]
    python: "str | os.PathLike[str]"
    pictures: bool  # Draw the tensors that `Report.to_html` shows
