#include "workflow/init.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <regex>
#include <set>
#include <string_view>

#include "base/integer.h"
#include "host/shell_words.h"
#include "text/yaml.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

struct Launcher {
  std::string_view name;                  // the file name of a command, or the module behind `python -m`
  std::array<std::string_view, 3> ranks;  // options that say how many processes it starts
};
constexpr std::array kLaunchers = {
    Launcher{"torchrun", {"--nproc-per-node", "--nproc_per_node", ""}},
    Launcher{"torch.distributed.run", {"--nproc-per-node", "--nproc_per_node", ""}},
    Launcher{"torch.distributed.launch", {"--nproc-per-node", "--nproc_per_node", ""}},
    Launcher{"accelerate", {"--num_processes", "--num-processes", ""}},
    Launcher{"accelerate.commands.launch", {"--num_processes", "--num-processes", ""}},
    Launcher{"deepspeed", {"--num_gpus", "--num_accelerators", ""}},
    Launcher{"mpirun", {"-np", "-n", "--np"}},
};

// Options of Megatron-LM by which a run is parallel: with a size, or alone.
constexpr std::array<std::string_view, 5> kSizes = {"--tensor-model-parallel-size", "--pipeline-model-parallel-size",
                                                    "--context-parallel-size", "--expert-model-parallel-size",
                                                    "--expert-tensor-parallel-size"};
constexpr std::array<std::string_view, 2> kFlags = {"--sequence-parallel", "--use-distributed-optimizer"};

constexpr std::array<std::string_view, 8> kFrameworks = {"accelerate",
                                                         "deepspeed",
                                                         "lightning",
                                                         "megatron",
                                                         "torchtitan",
                                                         "transformers",
                                                         "torch.distributed.fsdp",
                                                         "torch.distributed.tensor"};

template <class List>
bool contains(const List& list, std::string_view word) {
  return !word.empty() && std::find(list.begin(), list.end(), word) != list.end();
}

const Launcher* launcher_of(const std::vector<std::string>& words, std::size_t script) {
  for (std::size_t i = 0; i < script; ++i) {
    const std::string name = fs::path(words[i]).filename().string();
    for (const Launcher& launcher : kLaunchers) {
      if (name == launcher.name) return &launcher;
    }
  }
  return nullptr;
}

// Calls `use` with the place of the option's value, and what stands before the value in that word.
template <class Options, class Use>
void each_value(const std::vector<std::string>& words, std::size_t begin, std::size_t end, const Options& options,
                const Use& use) {
  for (std::size_t i = begin; i < end; ++i) {
    const std::size_t equals = words[i].find('=');
    if (equals != std::string::npos && contains(options, std::string_view(words[i]).substr(0, equals))) {
      use(i, words[i].substr(0, equals + 1));
    } else if (contains(options, words[i]) && i + 1 < end) {
      use(i + 1, std::string());
    }
  }
}

std::vector<std::string> frameworks_in(const fs::path& script) {
  constexpr std::size_t kMostLines = 20'000;
  std::ifstream file(script);
  std::set<std::string> found;
  const std::regex imports(R"(^\s*(?:import|from)\s+([A-Za-z_][A-Za-z0-9_.]{0,200}))");
  std::string line;
  for (std::size_t lines = 0; lines < kMostLines && std::getline(file, line); ++lines) {
    std::smatch match;
    if (line.size() > 500 || !std::regex_search(line, match, imports)) continue;
    const std::string module = match[1].str() + ".";
    for (const std::string_view framework : kFrameworks) {
      if (module.starts_with(std::string(framework) + ".")) found.emplace(framework);
    }
  }
  return {found.begin(), found.end()};
}

// Says what this framework's annotations are, as a comment.
std::string advice_for(const std::vector<std::string>& frameworks) {
  if (contains(frameworks, "megatron")) {
    return "# Megatron-core says most of it by itself; else name a preset:\n"
           "# annotations: megatron_gpt        # or megatron_llama, megatron_moe\n";
  }
  if (contains(frameworks, "torchtitan") || contains(frameworks, "torch.distributed.fsdp") ||
      contains(frameworks, "torch.distributed.tensor")) {
    return "# DTensors say how they lie; what they leave open is in a preset:\n"
           "# annotations: torch_fsdp2_tp\n";
  }
  return "# Where shards of tensors are not whole on every rank, and neither the framework\n"
         "# nor DTensors say so: a file that `ttrace annotate` drafts, or a preset.\n"
         "# annotations: annotations.yaml\n";
}

std::string doubled_braces(const std::string& text) {
  std::string result;
  for (const char c : text) result += (c == '{' || c == '}') ? std::string(2, c) : std::string(1, c);
  return result;
}

std::string inputs_of(const TrainingCommand& command) {
  const fs::path folder = command.script.parent_path();
  const std::string input = command.script.empty() ? "." : folder.empty() ? command.script.string() : folder.string();
  return fmt::format("    inputs: [{}]    # files and folders that it is made of: no git repository knows them here\n",
                     yaml_word(doubled_braces(input)));
}

std::string name_for(const TrainingCommand& command) {
  std::string name;
  for (const char c : command.script.stem().string()) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-') name += c;
  }
  if (name.empty()) name = "candidate";
  return command.ranks == 1 ? name : fmt::format("{}-{}-ranks", name, command.ranks);
}

}  // namespace

TrainingCommand look_at(const std::vector<std::string>& words) {
  TrainingCommand command{words, 1, words, {}, {}};
  const auto is_script = [](const std::string& word) { return word.ends_with(".py"); };
  const auto at = static_cast<std::size_t>(std::find_if(words.begin(), words.end(), is_script) - words.begin());
  if (at < words.size()) {
    command.script = words[at];
    command.frameworks = frameworks_in(command.script);
  }
  if (const Launcher* launcher = launcher_of(words, at)) {
    each_value(words, 0, at, launcher->ranks, [&](std::size_t i, const std::string& before) {
      const auto ranks = integer_of(words[i].substr(before.size()));
      if (!ranks || *ranks < 1) return;
      command.ranks = *ranks;
      command.on_one[i] = before + "1";
    });
  }
  each_value(words, at, words.size(), kSizes,
             [&](std::size_t i, const std::string& before) { command.on_one[i] = before + "1"; });
  std::erase_if(command.on_one, [](const std::string& word) { return contains(kFlags, word); });
  return command;
}

std::string run_file_for(const TrainingCommand& command, bool is_in_git) {
  const bool is_parallel = command.ranks > 1;
  std::string text = "# What `ttrace run` runs and compares; `ttrace run --plan` only says it.\n\n";
  text += "# What is right by definition.";
  text += is_parallel ? " The same program with one process: remove from its\n"
                        "# arguments what else makes it parallel, and give it the whole batch.\n"
                      : " Say here how to run what the candidate must equal:\n"
                        "# an eager, unfused or older program, which computes the same in theory.\n";
  text += fmt::format("reference:\n  command: {}\n", yaml_word(shell_line(command.on_one)));
  if (!is_in_git) text += inputs_of(command).substr(2);
  text += "\ncandidates:\n";
  text += fmt::format("  - name: {}\n    command: {}\n", name_for(command),
                      yaml_word(doubled_braces(shell_line(command.words))));
  if (is_parallel) {
    text += "    # How the ranks are arranged, where neither the framework nor a device mesh says it:\n";
    text += fmt::format("    # axes: dp={}                 # or tp=2,dp=2,sp=tp\n", command.ranks);
  }
  if (!is_in_git) text += inputs_of(command);
  text += "    # matrix: {tp: [1, 2]}       # one candidate for each: {tp} in name, command and axes\n\n";
  if (!command.frameworks.empty()) text += fmt::format("# It imports {}.\n", fmt::join(command.frameworks, ", "));
  text += advice_for(command.frameworks);
  text +=
      "\n# iterations: 0                # which are recorded, from 0: `0-1` checks an optimizer's state as well\n"
      "# seeds: 3                     # runs of the reference with rounding errors, which measure tolerances\n"
      "# timeout: 30m                 # of each command\n"
      "# environment: [CUBLAS_WORKSPACE_CONFIG]    # variables that change what is computed\n";
  return text;
}

}  // namespace ttrace
