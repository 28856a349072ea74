#include "workflow/init.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string_view>

#include "base/integer.h"
#include "host/shell_words.h"
#include "text/yaml.h"
#include "workflow/program_inputs.h"

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
    Launcher{"mpiexec", {"-np", "-n", "--np"}},
    Launcher{"srun", {"-n", "--ntasks", ""}},
};

// Names of options that say how large an axis is, without dashes, underscores and the sections before them:
// `--tensor_parallel_size 2`, `parallelism.tp=2`. The axes are in the usual order, fastest first.
struct SizeOptions {
  std::string_view axis;
  std::array<std::string_view, 7> names;
};
constexpr std::array kSizeOptions = {
    SizeOptions{"tp",
                {"tp", "tpsize", "tpdegree", "tensorparallel", "tensorparallelsize", "tensorparalleldegree",
                 "tensormodelparallelsize"}},
    SizeOptions{"etp", {"etp", "etpsize", "experttensorparallelsize", "", "", "", ""}},
    SizeOptions{"cp",
                {"cp", "cpsize", "cpdegree", "contextparallel", "contextparallelsize", "contextparalleldegree", ""}},
    SizeOptions{"ep",
                {"ep", "epsize", "epdegree", "expertparallel", "expertparallelsize", "expertparalleldegree",
                 "expertmodelparallelsize"}},
    SizeOptions{"dp",
                {"dp", "dpsize", "dpdegree", "dataparallel", "dataparallelsize", "dataparallelsharddegree",
                 "dataparallelreplicatedegree"}},
    SizeOptions{"pp",
                {"pp", "ppsize", "ppdegree", "pipelineparallel", "pipelineparallelsize", "pipelineparalleldegree",
                 "pipelinemodelparallelsize"}},
};
// Options of Megatron-LM by which a run is parallel without a size.
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

// Calls `use` with each option for which `is_option` is true, the place of its value, and what stands before the value
// in that word.
template <class IsOption, class Use>
void each_value(const std::vector<std::string>& words, std::size_t begin, std::size_t end, const IsOption& is_option,
                const Use& use) {
  for (std::size_t i = begin; i < end; ++i) {
    const std::size_t equals = words[i].find('=');
    const std::string_view option = std::string_view(words[i]).substr(0, equals);
    if (!is_option(option)) continue;
    if (equals != std::string::npos) {
      use(option, i, words[i].substr(0, equals + 1));
    } else if (option.starts_with('-') && i + 1 < end) {
      use(option, i + 1, std::string());
    }
  }
}

// Returns `words` with a number that sticks to an option of one letter as a word of its own: `srun -n4`.
std::vector<std::string> with_numbers_apart(const std::vector<std::string>& words, std::size_t end) {
  std::vector<std::string> apart;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool sticks = i < end && word.size() > 2 && word[0] == '-' && word[1] == 'n' && integer_of(word.substr(2));
    if (sticks) apart.push_back(word.substr(0, 2));
    apart.push_back(sticks ? word.substr(2) : word);
  }
  return apart;
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

// Returns the line that lists what the program is made of; nothing where git must say it.
std::string inputs_line(const TrainingCommand& command, bool is_in_git) {
  if (command.inputs.empty()) return is_in_git ? "" : "inputs: [.]    # files and folders that it is made of\n";
  std::string list;
  for (const std::string& input : command.inputs) {
    list += (list.empty() ? "" : ", ") + yaml_word(doubled_braces(input));
  }
  return fmt::format("inputs: [{}]    # what it is made of: add what it reads or imports beside\n", list);
}

// Returns the name without dashes, underscores, the `+` of hydra and what stands before its last dot.
std::string plain_name(std::string_view option) {
  std::string name;
  for (const char c : option.substr(option.rfind('.') + 1)) {
    if (c != '-' && c != '_' && c != '+') name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

// Returns the axis whose size the option says; empty for any other word.
std::string_view axis_of(std::string_view option) {
  const std::string name = plain_name(option);
  for (const SizeOptions& options : kSizeOptions) {
    if (contains(options.names, name)) return options.axis;
  }
  return {};
}

// Returns the lines of a configuration that say a size larger than 1, as `conf/small.yaml:3: tp: 2`.
std::vector<std::string> sizes_in(const std::string& file) {
  constexpr std::size_t kMostLines = 20'000, kMostCharacters = 200;
  static const std::regex kSetting(R"re(^\s*["']?([A-Za-z_][\w-]*)["']?\s*[:=]\s*(\d{1,9})\s*,?\s*(?:#.*)?$)re");
  std::vector<std::string> found;
  std::ifstream text(file);
  std::string line;
  for (std::size_t number = 1; number <= kMostLines && std::getline(text, line); ++number) {
    std::smatch match;
    if (line.size() > kMostCharacters || !std::regex_match(line, match, kSetting)) continue;
    if (axis_of(match[1].str()).empty() || integer_of(match[2].str()).value_or(0) <= 1) continue;
    found.push_back(fmt::format("{}:{}: {}: {}", file, number, match[1].str(), match[2].str()));
  }
  return found;
}

// Sets the sizes that follow `at` to 1 in `on_one`, and keeps them.
void take_out_sizes(const std::vector<std::string>& words, std::size_t at, TrainingCommand& command) {
  std::map<std::string_view, std::int64_t> found;
  each_value(
      words, at, words.size(), [](std::string_view option) { return !axis_of(option).empty(); },
      [&](std::string_view option, std::size_t i, const std::string& before) {
        const auto size = integer_of(words[i].substr(before.size()));
        if (!size || *size <= 1) return;
        command.on_one[i] = before + "1";
        found.try_emplace(axis_of(option), 1).first->second *= *size;
      });
  for (const SizeOptions& options : kSizeOptions) {
    if (found.contains(options.axis)) command.sizes.emplace_back(options.axis, found[options.axis]);
  }
}

// Returns the axes that the sizes say, with dp for the rest of the ranks; nothing where they do not divide them, or
// experts make them a second factoring.
std::vector<std::string> axes_of(const TrainingCommand& command) {
  std::vector<std::pair<std::string, std::int64_t>> axes = command.sizes;
  std::int64_t product = 1;
  for (const auto& [axis, size] : axes) {
    if (axis == "ep" || axis == "etp" || size > command.ranks) return {};
    product *= size;
  }
  if (axes.empty() || command.ranks % product != 0) return {};
  const bool has_dp = std::any_of(axes.begin(), axes.end(), [](const auto& axis) { return axis.first == "dp"; });
  if (product < command.ranks && has_dp) return {};
  const auto pipeline = std::find_if(axes.begin(), axes.end(), [](const auto& axis) { return axis.first == "pp"; });
  if (product < command.ranks) axes.insert(pipeline, {"dp", command.ranks / product});
  std::vector<std::string> words;
  for (const auto& [axis, size] : axes) words.push_back(fmt::format("{}={}", axis, size));
  return words;
}

// Returns the line of a candidate's axes. It is a comment where a framework may know better, or where the arguments do
// not say in which order the axes lie.
std::string axes_line(const TrainingCommand& command) {
  const std::vector<std::string> axes = axes_of(command);
  if (axes.size() == 1 && command.frameworks.empty()) {
    return fmt::format("    axes: {}                   # as its arguments say\n", axes.front());
  }
  return "    # How the ranks are arranged, where neither the framework nor a device mesh says it, fastest first:\n" +
         (axes.empty() ? fmt::format("    # axes: dp={}                 # or tp=2,dp=2,sp=tp\n", command.ranks)
                       : fmt::format("    # axes: {}\n", fmt::join(axes, ",")));
}

std::string name_for(const TrainingCommand& command) {
  std::string name;
  for (const char c : command.script.stem().string()) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-') name += c;
  }
  if (name.empty()) name = "candidate";
  return command.ranks == 1 ? name : fmt::format("{}-{}-ranks", name, command.ranks);
}

// Returns the place of the module that `python -m` or torchrun's `-m` runs, whose file becomes the script; the number
// of words where there is none.
std::size_t find_module_to_run(const std::vector<std::string>& words, fs::path& script) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i - 1] != "-m" && words[i - 1] != "--module") continue;
    script = file_of_module(words[i]);
    if (!script.empty()) return i;
  }
  return words.size();
}

// The configurations that hydra takes for `parallel=two`: conf/parallel/two.yaml, below any folder of this directory.
std::vector<std::string> files_of_group(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == word.size()) return {};
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(".", ignored)) {
    const fs::path file = entry.path().filename() / word.substr(0, equals) / (word.substr(equals + 1) + ".yaml");
    if (fs::is_regular_file(file, ignored)) files.push_back(file.string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Returns the number of processes that a configuration of accelerate says; nothing where it says none.
std::optional<std::int64_t> processes_in(const std::string& file) {
  static const std::regex kProcesses(R"(^num_processes:\s*(\d{1,9})\s*(?:#.*)?$)");
  std::ifstream text(file);
  for (std::string line; std::getline(text, line);) {
    std::smatch match;
    if (line.size() < 200 && std::regex_match(line, match, kProcesses)) return integer_of(match[1].str());
  }
  return std::nullopt;
}

// Takes the number of ranks of accelerate from the configuration that its words name, and says 1 among the words of the
// reference.
void take_configured_ranks(const std::vector<std::string>& words, std::size_t script, TrainingCommand& command) {
  const auto is_file = [](std::string_view option) { return option == "--config_file" || option == "--config-file"; };
  std::size_t option_at = words.size();
  each_value(words, 0, script, is_file, [&](std::string_view option, std::size_t i, const std::string& before) {
    const auto ranks = processes_in(words[i].substr(before.size()));
    if (!ranks || *ranks < 1) return;
    command.ranks = *ranks;
    option_at = static_cast<std::size_t>(std::find(words.begin(), words.end(), option) - words.begin());
    if (!before.empty()) option_at = i;
  });
  if (option_at == words.size()) return;
  const std::vector<std::string> one = {"--num_processes", "1"};
  command.on_one.insert(command.on_one.begin() + static_cast<std::ptrdiff_t>(option_at), one.begin(), one.end());
}

// The files of this directory that the arguments behind the script name, such as configurations.
std::vector<std::string> files_among(const std::vector<std::string>& words, std::size_t script) {
  std::vector<std::string> files;
  for (std::size_t i = script + 1; i < words.size(); ++i) {
    std::string name = words[i].substr(words[i].find('=') + 1);
    if (fs::path(name).is_relative() && fs::is_regular_file(name)) files.push_back(std::move(name));
    for (std::string& file : files_of_group(words[i])) files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

TrainingCommand look_at(const std::vector<std::string>& given) {
  TrainingCommand command;
  const auto is_script = [](const std::string& word) { return word.ends_with(".py"); };
  const auto place_of_script = [&](const std::vector<std::string>& words) {
    return static_cast<std::size_t>(std::find_if(words.begin(), words.end(), is_script) - words.begin());
  };
  command.words = given;
  std::vector<std::string> words = given;
  if (const Launcher* launcher = launcher_of(given, place_of_script(given));
      launcher && contains(launcher->ranks, "-n")) {
    words = with_numbers_apart(given, place_of_script(given));
  }
  command.on_one = words;
  std::size_t at = place_of_script(words);
  if (at < words.size()) {
    command.script = words[at];
  } else {
    at = find_module_to_run(words, command.script);
  }
  if (!command.script.empty()) command.frameworks = frameworks_in(command.script);
  const std::vector<std::string> files = files_among(words, at);
  if (fs::is_regular_file(command.script)) command.inputs = program_inputs(command.script, files);
  for (const std::string& file : files) {
    for (std::string& size : sizes_in(file)) command.sizes_in_files.push_back(std::move(size));
  }
  bool is_configured = false;
  if (const Launcher* launcher = launcher_of(words, at)) {
    const auto is_ranks = [&](std::string_view option) { return contains(launcher->ranks, option); };
    bool is_said = false;
    each_value(words, 0, at, is_ranks, [&](std::string_view /*option*/, std::size_t i, const std::string& before) {
      const auto ranks = integer_of(words[i].substr(before.size()));
      if (!ranks || *ranks < 1) return;
      command.ranks = *ranks;
      command.on_one[i] = before + "1";
      is_said = true;
    });
    is_configured = !is_said && launcher->name.starts_with("accelerate");
  }
  if (at < words.size()) take_out_sizes(words, at + 1, command);
  if (is_configured) take_configured_ranks(words, at, command);
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
  for (const std::string& size : command.sizes_in_files) {
    text += fmt::format("# {}: give the command below a copy of the file that says 1 there.\n", size);
  }
  text += fmt::format("reference:\n  command: {}\n", yaml_word(shell_line(command.on_one)));
  const std::string inputs = inputs_line(command, is_in_git);
  if (!inputs.empty()) text += "  " + inputs;
  text += "\ncandidates:\n";
  text += fmt::format("  - name: {}\n    command: {}\n", name_for(command),
                      yaml_word(doubled_braces(shell_line(command.words))));
  if (is_parallel) {
    text += axes_line(command);
  }
  if (!inputs.empty()) text += "    " + inputs;
  text += "    # matrix: {tp: [1, 2]}       # one candidate for each: {tp} in name, command and axes\n\n";
  if (!command.frameworks.empty()) text += fmt::format("# It imports {}.\n", fmt::join(command.frameworks, ", "));
  text += advice_for(command.frameworks);
  text +=
      "\n# iterations: 0                # which are recorded, from 0: `0-1` checks an optimizer's state as well\n"
      "# then: 2                      # iterations behind these of which gradients, updates and losses are looked at\n"
      "# seeds: 3                     # runs of the reference with rounding errors, which measure tolerances\n"
      "# timeout: 30m                 # of each command\n"
      "# environment: [CUBLAS_WORKSPACE_CONFIG]    # variables that change what is computed\n";
  return text;
}

}  // namespace ttrace
