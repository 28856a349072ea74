#include "ttrace/load/tolerance_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>

#include "ttrace/error.h"

namespace ttrace {
namespace {

constexpr std::string_view kVersion = "1";

[[noreturn]] void fail(const std::string& file, int line, const std::string& what) {
  throw InputError(fmt::format("{}:{}: {}", file, line, what));
}

int line_of(const YAML::Node& node) { return node.Mark().line + 1; }

// The entries of one mapping. yaml-cpp keeps a key that is written twice, and finds only one of the two;
// and it does not mind a key that nobody asks for.
class Fields {
 public:
  // `what` is for messages: `an override`.
  Fields(const std::string& file, const YAML::Node& node, int line, std::string what)
      : file_(file), line_(line), what_(std::move(what)) {
    if (!node.IsMap()) fail(file_, line_, fmt::format("{} is no mapping; expected `key: value`", what_));
    for (const auto& item : node) {
      const int at = line_of(item.first);
      if (!item.first.IsScalar()) fail(file_, at, fmt::format("{} has a key that is no word; expected one", what_));
      const std::string& key = item.first.Scalar();
      if (!items_.emplace(key, Item{item.second, at}).second) {
        fail(file_, at, fmt::format("{} has '{}' twice; expected it once", what_, key));
      }
    }
  }

  // Each field is taken once; what is left at `done` is unknown.
  std::optional<YAML::Node> take_if(const std::string& key) {
    const auto found = items_.find(key);
    if (found == items_.end()) return std::nullopt;
    const YAML::Node node = found->second.node;
    last_line_ = found->second.line;
    items_.erase(found);
    return node;
  }
  YAML::Node take(const std::string& key) {
    const auto node = take_if(key);
    if (!node) fail(file_, line_, fmt::format("{} has no '{}'; expected one", what_, key));
    return *node;
  }
  std::string take_word(const std::string& key) {
    const YAML::Node node = take(key);
    if (!node.IsScalar() || node.Scalar().empty()) {
      fail(file_, last_line_, fmt::format("'{}' of {} is empty or no word; expected one", key, what_));
    }
    return node.Scalar();
  }
  double take_number(const std::string& key) { return number_of(take(key), key); }

  double number_of(const YAML::Node& node, const std::string& key) const {
    double value = -1;
    const std::string text = node.IsScalar() ? node.Scalar() : "";
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    if (!whole || !std::isfinite(value) || value < 0) {
      fail(file_, last_line_, fmt::format("'{}' of {} is '{}'; expected a finite number from 0", key, what_, text));
    }
    return value;
  }
  Kind kind_of(const std::string& word) const {
    const auto kind = kind_from_name(word);
    if (!kind) fail(file_, last_line_, fmt::format("'{}' is no kind of tensor; expected output, main_grad, ...", word));
    return *kind;
  }
  void done() const {
    if (items_.empty()) return;
    const auto first = std::min_element(items_.begin(), items_.end(), [](const auto& a, const auto& b) {
      return a.second.line < b.second.line;
    });
    fail(file_, first->second.line, fmt::format("{} has an unknown key '{}'; expected none", what_, first->first));
  }

  int line() const { return line_; }            // of the mapping
  int last_line() const { return last_line_; }  // of the field taken last
  // The keys in order of the file; for mappings whose keys are data.
  std::vector<std::string> keys() const {
    std::vector<std::pair<int, std::string>> order;
    for (const auto& [key, item] : items_) order.emplace_back(item.line, key);
    std::sort(order.begin(), order.end());
    std::vector<std::string> keys;
    for (auto& [line, key] : order) keys.push_back(std::move(key));
    return keys;
  }

 private:
  struct Item {
    YAML::Node node;
    int line;
  };
  std::string file_;
  int line_;
  int last_line_ = 0;
  std::string what_;
  std::map<std::string, Item> items_;
};

YAML::Node require_list(const std::string& file, const YAML::Node& node, int line, std::string_view key) {
  if (!node.IsSequence()) fail(file, line, fmt::format("'{}' is no list; expected one", key));
  return node;
}

void read_perturbed(const std::string& where, Fields& header, ToleranceFile& file) {
  const YAML::Node runs = header.take("perturbed");
  for (const YAML::Node& node : require_list(where, runs, header.last_line(), "perturbed")) {
    Fields run(where, node, line_of(node), "a perturbed run");
    file.perturbed_runs.push_back(run.take_word("run"));
    const std::string word = run.take_word("seed");
    std::uint64_t seed = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), seed);
    if (error != std::errc() || end != word.data() + word.size()) {
      fail(where, run.last_line(), fmt::format("seed '{}'; expected an integer from 0", word));
    }
    file.seeds.push_back(seed);
    run.done();
  }
}

void read_overrides(const std::string& where, Fields& header, ToleranceFile& file) {
  const YAML::Node overrides = header.take("overrides");
  for (const YAML::Node& node : require_list(where, overrides, header.last_line(), "overrides")) {
    Fields fields(where, node, line_of(node), "an override");
    ToleranceOverride item;
    item.line = fields.line();
    item.pattern = fields.take_word("pattern");
    item.allowed = fields.take_number("allowed");
    item.reason = fields.take_word("reason");
    if (const auto kind = fields.take_if("kind")) item.kind = fields.kind_of(kind->IsScalar() ? kind->Scalar() : "");
    fields.done();
    file.overrides.push_back(std::move(item));
  }
}

Tolerance read_tolerance(const std::string& where, const YAML::Node& node, int line, const std::string& name) {
  Fields fields(where, node, line, fmt::format("'{}'", name));
  Tolerance tolerance;
  const YAML::Node samples = fields.take("samples");
  for (const YAML::Node& sample : require_list(where, samples, fields.last_line(), "samples")) {
    tolerance.samples.push_back(fields.number_of(sample, "samples"));
  }
  if (const auto rerun = fields.take_if("rerun")) tolerance.rerun = fields.number_of(*rerun, "rerun");
  tolerance.estimate = fields.take_number("estimate");
  tolerance.floor = fields.take_number("floor");
  tolerance.allowed = fields.take_number("allowed");
  fields.done();
  return tolerance;
}

void read_tensors(const std::string& where, Fields& header, ToleranceFile& file) {
  const YAML::Node tensors = header.take("tensors");
  Fields kinds(where, tensors, header.last_line(), "'tensors'");
  for (const std::string& word : kinds.keys()) {
    const YAML::Node node = kinds.take(word);
    const Kind kind = kinds.kind_of(word);
    Fields names(where, node, kinds.last_line(), fmt::format("'{}'", word));
    for (const std::string& name : names.keys()) {
      const YAML::Node entry = names.take(name);
      file.tensors.emplace(ToleranceKey{kind, name}, read_tolerance(where, entry, names.last_line(), name));
    }
  }
}

void read_epsilon(const std::string& where, Fields& header, ToleranceFile& file) {
  file.compute_dtype = header.take_word("compute_dtype");
  const auto dtype = dtype_from_name(file.compute_dtype);
  if (!dtype || !is_floating(*dtype)) {
    fail(where, header.last_line(),
         fmt::format("compute_dtype is '{}'; expected a floating-point one, such as bfloat16", file.compute_dtype));
  }
  file.epsilon = header.take_number("epsilon");
  if (file.epsilon != epsilon_of(*dtype)) {
    fail(where, header.last_line(), fmt::format("epsilon is {}; expected {}, that of {}", file.epsilon,
                                                epsilon_of(*dtype), file.compute_dtype));
  }
}

ToleranceFile read_header(const std::string& where, Fields& header) {
  ToleranceFile file;
  file.path = where;
  const std::string version = header.take_word("ttrace_tolerance");
  if (version != kVersion) {
    fail(where, header.last_line(),
         fmt::format("tolerance file version {}; expected {}, all that this program reads", version, kVersion));
  }
  file.reference_run = header.take_word("reference");
  read_perturbed(where, header, file);
  const YAML::Node rerun = header.take("rerun");
  if (!rerun.IsNull()) file.rerun = rerun.IsScalar() ? rerun.Scalar() : "";
  read_epsilon(where, header, file);
  file.margin = header.take_number("margin");
  const YAML::Node notes = header.take("notes");
  for (const YAML::Node& note : require_list(where, notes, header.last_line(), "notes")) {
    file.notes.push_back(note.IsScalar() ? note.Scalar() : "");
  }
  read_overrides(where, header, file);
  read_tensors(where, header, file);
  header.done();
  return file;
}

// Names come from traces. What could mean something to YAML is quoted.
std::string quoted(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
  };
  const bool word = !text.empty() && ((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z'));
  if (word && text != "null" && std::all_of(text.begin(), text.end(), plain)) return std::string(text);
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += fmt::format("\\{}", c);
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string header_yaml(const ToleranceFile& file) {
  std::string text = fmt::format(
      "# What each tensor may differ by in `ttrace check`: allowed = margin * max(estimate, floor), where\n"
      "# estimate is the largest of `samples` (the perturbed runs) and `rerun`. To allow something else, add\n"
      "# an override: {{pattern: mlp.router, kind: output, allowed: 0.2, reason: ...}}\n"
      "ttrace_tolerance: {}\nreference: {}\nperturbed:\n",
      kVersion, quoted(file.reference_run));
  for (std::size_t i = 0; i < file.perturbed_runs.size(); ++i) {
    text += fmt::format("  - {{run: {}, seed: {}}}\n", quoted(file.perturbed_runs[i]), file.seeds[i]);
  }
  text += fmt::format("rerun: {}\ncompute_dtype: {}\nepsilon: {}\nmargin: {}\n",
                      file.rerun ? quoted(*file.rerun) : "null", file.compute_dtype, file.epsilon, file.margin);
  text += file.notes.empty() ? "notes: []\n" : "notes:\n";
  for (const std::string& note : file.notes) text += fmt::format("  - {}\n", quoted(note));
  text += file.overrides.empty() ? "overrides: []\n" : "overrides:\n";
  for (const ToleranceOverride& item : file.overrides) {
    text += fmt::format("  - {{pattern: {}, {}allowed: {}, reason: {}}}\n", quoted(item.pattern),
                        item.kind ? fmt::format("kind: {}, ", name_of(*item.kind)) : "", item.allowed,
                        quoted(item.reason));
  }
  return text;
}

}  // namespace

ToleranceFile parse_tolerances(const std::string& text, const std::string& where) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() != 1 || !documents[0].IsMap()) {
      throw InputError(fmt::format("{}: not one YAML mapping; expected a file of `ttrace estimate-tolerance`", where));
    }
    Fields header(where, documents[0], 1, "the file");
    return read_header(where, header);
  } catch (const YAML::Exception& error) {
    const std::string line = error.mark.is_null() ? "" : fmt::format(":{}", error.mark.line + 1);
    throw InputError(
        fmt::format("{}{}: {}; expected YAML as `ttrace estimate-tolerance` writes it", where, line, error.msg));
  }
}

ToleranceFile read_tolerances(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code ignored;
  if (!file || std::filesystem::is_directory(path, ignored)) {
    throw InputError(fmt::format("{}: cannot be read; expected a file of `ttrace estimate-tolerance`", path.string()));
  }
  return parse_tolerances(std::string(std::istreambuf_iterator<char>(file), {}), path.string());
}

std::string to_yaml(const ToleranceFile& file) {
  std::string text = header_yaml(file);
  text += file.tensors.empty() ? "tensors: {}\n" : "tensors:\n";
  std::optional<Kind> kind;
  for (const auto& [key, tolerance] : file.tensors) {
    if (kind != key.first) text += fmt::format("  {}:\n", name_of(key.first));
    kind = key.first;
    text += fmt::format("    {}: {{samples: [{}], ", quoted(key.second), fmt::join(tolerance.samples, ", "));
    if (tolerance.rerun) text += fmt::format("rerun: {}, ", *tolerance.rerun);
    text += fmt::format("estimate: {}, floor: {}, allowed: {}}}\n", tolerance.estimate, tolerance.floor,
                        tolerance.allowed);
  }
  return text;
}

}  // namespace ttrace
