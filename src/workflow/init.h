// Drafts a ttrace.yaml for a training command.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {

// Holds what a training command says of itself.
struct TrainingCommand {
  std::vector<std::string> words;
  std::int64_t ranks = 1;           // that its launcher starts here
  std::vector<std::string> on_one;  // the same with one process, and with 1 for the sizes of what makes it parallel
  std::vector<std::pair<std::string, std::int64_t>> sizes;  // that its arguments say, larger than 1: {{"tp", 2}}
  std::vector<std::string> sizes_in_files;  // those of files that its arguments name: "conf/small.yaml:3: tp: 2"
  std::filesystem::path script;             // empty: none was found
  std::vector<std::string>
      frameworks;                   // "megatron", "deepspeed", ..., that the script imports, in order of the alphabet
  std::vector<std::string> inputs;  // files and directories that it is made of; empty where no script was found
};

// Reads the command's words and its script. Knows torchrun and `python -m torch.distributed.run`, accelerate, deepspeed,
// mpirun, mpiexec and srun.
TrainingCommand look_at(const std::vector<std::string>& given);

// Renders a commented file that `ttrace run` takes as it is. `is_in_git` is false where `inputs` must say what runs.
std::string run_file_for(const TrainingCommand& command, bool is_in_git);

}  // namespace ttrace
