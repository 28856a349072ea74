// Reads `ttrace.yaml`, which says what `ttrace run` is to do. A key that is unknown or written twice is refused.
//
//   reference:
//     command: python train.py             # for sh, or a list of words
//     axes: tp=2                           # as for collect; may be left out
//     inputs: [train.py, model, data.txt]  # what it is made of, instead of all that git knows of the code
//   candidates:
//     - name: tp{tp}-pp{pp}
//       matrix:                            # a candidate for each combination: files/job_matrix.h
//         tp: [1, 2]
//         pp: [1, 2]
//         exclude: [{tp: 1, pp: 1}]        # `exclude` and `include` may be left out
//         include: [{tp: 2, flags: --sp}, {tp: 1, flags: ""}]
//       command: torchrun --nproc-per-node {ranks} train.py --tp {tp} --pp {pp} {flags}
//       axes: tp={tp},pp={pp}              # {ranks} is the product of these sizes
//       parameters: {first_stage_layers: 1}  # of the annotations, for this candidate; may be left out
//   # All that follows may be left out.
//   annotations: megatron_gpt              # a file, or the name of a preset
//   parameters: {cp_layout: striped}       # of the annotations, as --set gives them
//   correspondence: transformers_megatron_llama  # the candidates are another program: a file, or one that comes along
//   iterations: 0-1                        # to record [as collect]
//   seeds: 3                               # number of perturbed runs [3]
//   estimator: input                       # what they perturb, or modules [input]
//   margin: 3                              # allowed = margin * max(estimate, floor) [3]
//   environment: [CUBLAS_WORKSPACE_CONFIG] # variables that decide what is computed
//   waivers:
//     - {pattern: mlp.router, kinds: [output], candidates: [tp2-*], reason: issue 12, expires: 2027-01-31}
//   accept_overrides: false                # take waivers and overrides however much they excuse [false]
#pragma once

#include <filesystem>
#include <string>

#include "files/run_file.h"

namespace ttrace {

// Throws InputError with `file:line`.
RunFile read_run_file(const std::filesystem::path& path);
RunFile parse_run_file(const std::string& text, const std::string& where);

// True for a day that the calendar has, as in 2027-01-31.
bool is_date(const std::string& text);

}  // namespace ttrace
