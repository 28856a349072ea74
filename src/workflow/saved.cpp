#include "workflow/saved.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "distribute/index.h"
#include "files/regular_file.h"
#include "format/provenance.h"
#include "format/safetensors.h"
#include "host/exit_codes.h"
#include "host/installation.h"
#include "host/launch.h"
#include "host/temporary_directory.h"
#include "load/safetensors_reader.h"
#include "load/tensors_in_place.h"
#include "load/trace_reader.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCheckpoint = "checkpoint";
constexpr std::array<std::string_view, 7> kSuffixes = {".safetensors", ".npz", ".npy", ".pt", ".pth", ".bin", ".ckpt"};
constexpr std::string_view kConfig = "config.json";
// A dump's own files lie this deep, and among the first.
constexpr int kDeepest = 4;
constexpr int kMostLookedAt = 10'000;

struct Source {
  std::string path, key;  // key: the part of a checkpoint; or empty
};

// Behind `::` stands a key, unless there is a file of the whole name.
Source source_of(const std::string& text) {
  const std::size_t at = text.rfind("::");
  std::error_code ignored;
  if (at == std::string::npos || fs::exists(text, ignored) || !fs::exists(text.substr(0, at), ignored)) {
    return {text, ""};
  }
  return {text.substr(0, at), text.substr(at + 2)};
}

std::string text_of(const Source& source) { return source.key.empty() ? source.path : source.path + "::" + source.key; }

bool is_tensor_file(const std::string& name) {
  return std::any_of(kSuffixes.begin(), kSuffixes.end(),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

// Returns the format by one file of a folder, or of folders in it; empty where it says nothing.
std::string format_by(const fs::path& file) {
  const std::string name = file.filename().string(), parent = file.parent_path().filename().string();
  if (name == "dump.json") return "msprobe";
  if (!name.ends_with(".pt")) return "";
  if (name.find("___name=") != std::string::npos || name.starts_with("name=")) return "sglang";
  const bool is_of_rank = file.parent_path().parent_path().filename().string().starts_with("rank_");
  return is_of_rank && parent.starts_with("iter_") ? "transformer-engine" : "";
}

bool holds_trace(const fs::path& folder) {
  std::error_code ignored;
  const auto is_of_trace = [](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    return name.starts_with("rank-") || name.starts_with("iteration-0");
  };
  return std::any_of(begin(fs::directory_iterator(folder, ignored)), fs::directory_iterator(), is_of_trace);
}

std::string format_of_folder(const fs::path& folder) {
  if (holds_trace(folder)) return "";
  std::error_code ignored;
  for (const char* name : {".metadata", "latest_checkpointed_iteration.txt"}) {
    if (fs::exists(folder / name, ignored)) return kCheckpoint;
  }
  bool has_tensors = false;
  int looked_at = 0;
  fs::recursive_directory_iterator inside(folder, fs::directory_options::skip_permission_denied, ignored);
  for (; inside != fs::recursive_directory_iterator() && ++looked_at < kMostLookedAt; inside.increment(ignored)) {
    if (inside.depth() >= kDeepest) inside.disable_recursion_pending();
    if (std::string format = format_by(inside->path()); !format.empty()) return format;
    has_tensors |= inside.depth() == 0 && is_tensor_file(inside->path().filename().string());
  }
  return has_tensors ? kCheckpoint : "";
}

std::string import_name(std::size_t i, std::string_view what) { return fmt::format("{}-{}", what, i); }

std::vector<std::string> import_command(const Source& source, const std::string& format, const std::string& python,
                                        const fs::path& output, const fs::path& places) {
  std::vector<std::string> command = run_python_module(python.empty() ? "python3" : python, "ttrace_import");
  command.insert(command.end(),
                 {format, "--output", output.string(), "--library", beside_program("lib/libttrace.so").string()});
  if (!source.key.empty()) command.push_back("--key=" + source.key);
  if (format == kCheckpoint) command.insert(command.end(), {"--places", places.string()});
  command.insert(command.end(), {"--", source.path});
  return command;
}

// Throws InputError with what Python refused, or with what became of it.
[[noreturn]] void refuse_import(const Source& source, const std::string& python, const CommandResult& result,
                                const fs::path& log) {
  constexpr std::string_view kError = "ttrace: error: ";
  std::string last = read_text_file(log, "what the import says");
  while (last.ends_with('\n')) last.pop_back();
  last = last.substr(last.rfind('\n') + 1);
  if (result.exit_code == kExitCouldNotLook && last.starts_with(kError)) throw InputError(last.substr(kError.size()));
  throw InputError(
      fmt::format("{}: {}, which reads it, {}{}; expected a Python with the packages of its format, or --python PYTHON",
                  source.path, python.empty() ? "python3" : python, result.failure, last.empty() ? "" : ": " + last));
}

// Imports all of them side by side (large tensors of checkpoints stay in their files), as a Python takes a second to start where it needs torch.
std::vector<Trace> import_all(const std::vector<std::pair<Source, std::string>>& sources, const SavedOptions& options) {
  const TemporaryDirectory scratch("what is imported");
  std::vector<LoggedCommand> commands;
  for (const auto& [source, format] : sources) {
    const std::size_t i = commands.size();
    commands.push_back({import_command(source, format, options.python, scratch.path() / import_name(i, "trace"),
                                       scratch.path() / import_name(i, "places")),
                        scratch.path() / import_name(i, "log"),
                        {python_path_with(beside_program("share/ttrace"))}});
  }
  std::vector<CommandResult> results(commands.size());
  SideBySideEvents events;
  events.on_start = [](std::size_t) {};
  events.on_end = [&](std::size_t i, const CommandResult& result) {
    results[i] = result;
    return true;
  };
  run_side_by_side(commands, commands.size(), events);
  std::vector<Trace> traces;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const Source& source = sources[i].first;
    if (results[i].exit_code != 0) refuse_import(source, options.python, results[i], commands[i].log);
    traces.push_back(read_trace(scratch.path() / import_name(i, "trace"), options.threads));
    const fs::path places = scratch.path() / import_name(i, "places");
    if (sources[i].second == kCheckpoint) add_tensors_in_place(traces.back(), places, options.threads);
    traces.back().directory = text_of(source);
  }
  return traces;
}

// Returns the format of what is saved there; empty: a trace, or nothing. Throws InputError for a regular file that is
// neither.
std::string format_of(const std::string& text) {
  const Source source = source_of(text);
  std::error_code ignored;
  if (fs::is_directory(source.path, ignored)) return format_of_folder(source.path);
  if (!fs::is_regular_file(source.path, ignored)) return "";
  if (is_tensor_file(source.path)) return kCheckpoint;
  throw InputError(
      fmt::format("{}: a file that is not known; expected the directory of a trace, or of what others "
                  "saved, or a file with a name in .safetensors, .npz, .npy, .pt, .pth, .bin or .ckpt",
                  source.path));
}

bool is_native(const Source& source, const std::string& format) {
  return format == kCheckpoint && source.key.empty() && is_safetensors(source.path);
}

Trace read_native(const Source& source, const SavedOptions& options) {
  Trace trace = read_safetensors(source.path, options.threads);
  trace.provenance.text = describe_imported(kCheckpoint, {source.path});
  return trace;
}

// Reads what is no trace.
std::vector<ReadRun> read_saved(const std::vector<std::pair<Source, std::string>>& sources,
                                const SavedOptions& options) {
  std::vector<std::pair<Source, std::string>> others;
  for (const auto& each : sources) {
    if (!is_native(each.first, each.second)) others.push_back(each);
  }
  std::vector<Trace> imported;
  if (!others.empty()) imported = import_all(others, options);
  std::vector<ReadRun> runs;
  for (std::size_t next = 0; const auto& [source, format] : sources) {
    Trace trace = is_native(source, format) ? read_native(source, options) : std::move(imported[next++]);
    runs.push_back({std::move(trace), format});
  }
  return runs;
}

std::string describe(const std::string& format) {
  return format == kCheckpoint ? "a checkpoint" : fmt::format("a dump of {}", format);
}

void declare_partial(ReadRun& run) {
  for (RankTrace& rank : run.trace.ranks) {
    NotSeen statement;
    statement.reason = describe(run.format);
    statement.everything = true;
    rank.not_seen.push_back(std::move(statement));
  }
}

}  // namespace

Trace read_run(const std::string& source, const SavedOptions& options) {
  const std::string format = format_of(source);
  if (format.empty()) return read_trace(source, options.threads);
  return std::move(read_saved({{source_of(source), format}}, options).front().trace);
}

Trace read_run_as_it_is(const std::string& source, const SavedOptions& options) {
  return format_of(source).empty() ? read_trace_as_it_is(source, options.threads) : read_run(source, options);
}

ReadPair read_pair(const std::string& reference, const std::string& candidate, const SavedOptions& options,
                   Team& team) {
  std::vector<std::pair<Source, std::string>> saved;
  for (const std::string& source : {reference, candidate}) {
    if (const std::string format = format_of(source); !format.empty()) saved.emplace_back(source_of(source), format);
  }
  if (!saved.empty() && team.size() > 1) {
    throw InputError(
        fmt::format("{}: is no trace, and read by one process; expected `ttrace import` first, or no mpirun",
                    saved.front().first.path));
  }
  ReadPair pair;
  std::vector<ReadRun*> open;
  for (auto& [source, run] : {std::pair(&reference, &pair.reference), std::pair(&candidate, &pair.candidate)}) {
    if (format_of(*source).empty()) {
      run->trace = read_trace(*source, team, options.threads);
      if (const auto imported = parse_imported(run->trace.provenance.text)) run->format = imported->format;
    } else {
      open.push_back(run);
    }
  }
  std::vector<ReadRun> read = read_saved(saved, options);
  for (std::size_t i = 0; i < open.size(); ++i) *open[i] = std::move(read[i]);
  if (pair.reference.format != pair.candidate.format) {
    for (ReadRun* run : open) declare_partial(*run);
  }
  return pair;
}

std::map<std::string, std::int64_t> model_sizes_of(const std::string& text) {
  const fs::path path = source_of(text).path;
  std::error_code ignored;
  const fs::path config = (fs::is_directory(path, ignored) ? path : path.parent_path()) / kConfig;
  if (!fs::is_regular_file(config, ignored)) return {};
  return parse_model_sizes(read_text_file(config, "a model's config.json"));
}

std::vector<std::string> left_out_of(const Trace& trace) {
  const auto imported = parse_imported(trace.provenance.text);
  return imported ? imported->left_out : std::vector<std::string>{};
}

bool is_imported(const Trace& trace) { return parse_imported(trace.provenance.text).has_value(); }

}  // namespace ttrace
