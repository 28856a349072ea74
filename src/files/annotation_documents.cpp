#include "files/annotation_documents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "files/yaml_document.h"
#include "files/yaml_fields.h"

namespace ttrace::annotation_yaml {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFiles = 64;  // far more than anybody includes

constexpr std::string_view kGuess = "#? ";  // begins a guess, after blanks

// Finds the guesses in the text, and removes their marks from it where `counting`.
std::vector<Guess> take_guesses(std::string& text, const std::string& path, bool counting) {
  std::vector<Guess> guesses;
  int line = 1;
  for (std::size_t begin = 0; begin < text.size(); ++line) {
    const std::size_t mark = text.find_first_not_of(' ', begin);
    if (mark != text.npos && text.compare(mark, kGuess.size(), kGuess) == 0) {
      if (counting) text.erase(mark, kGuess.size());
      const std::size_t from = text.find_first_not_of(' ', counting ? mark : mark + kGuess.size());
      const std::size_t end = std::min({text.find("  #", from), text.find('\n', mark), text.size()});
      guesses.push_back({{path, line}, text.substr(std::min(from, end), end - std::min(from, end))});
    }
    begin = std::min(text.find('\n', begin), text.size() - 1) + 1;
  }
  return guesses;
}

std::vector<Item> parse(const std::string& text, const std::string& path) {
  try {
    const YamlNode document = parse_yaml(text);
    if (document.is_null()) return {};
    return read_items(document, {path, ""}, 1, "patterns and their rules");
  } catch (const YamlError& error) {
    throw InputError(
        fmt::format("{}:{}: {}; expected YAML as in annotations/README.md", path, error.line, error.what()));
  }
}

// True for a name that leads out of the directory of the file that includes it.
bool leads_out(const fs::path& name) {
  return name.is_absolute() || std::find(name.begin(), name.end(), "..") != name.end();
}

bool is_named_as_annotations(const fs::path& name) { return name.extension() == ".yaml" || name.extension() == ".yml"; }

// Reads one name or a list of names.
std::vector<std::string> included_names(const Item& include, const Context& context) {
  constexpr std::string_view kExpected = "the name of an annotation file, or a list of them";
  if (!include.value.is_list()) return {read_word(include.value, context, include.line, kExpected)};
  std::vector<std::string> names;
  for (const YamlNode& name : include.value.items()) names.push_back(read_word(name, context, include.line, kExpected));
  return names;
}

fs::path canonical_path(const fs::path& file) {
  std::error_code ignored;
  return fs::weakly_canonical(file, ignored);
}

class DocumentReader {
 public:
  DocumentReader(const fs::path& presets, bool with_guesses, Includes includes)
      : presets_(presets), with_guesses_(with_guesses), includes_(includes) {}

  void read(const std::string& name) {
    const fs::path file = find_file(name, "");
    add(read_text_file(file, what_is_expected(name)), file);
  }

  void add(std::string text, const fs::path& file) {
    if (seen_.size() == kMostFiles) {
      throw InputError(fmt::format("{}: one file more than {}; expected fewer", file.string(), kMostFiles));
    }
    being_read_.push_back(canonical_path(file));
    seen_.insert(being_read_.back());
    Document document{file.string(), {}, take_guesses(text, file.string(), with_guesses_)};
    document.items = parse(text, file.string());
    for (const Item& item : document.items) {
      if (item.key == kInclude) include_all(item, file);
    }
    documents_.push_back(std::move(document));
    being_read_.pop_back();
  }

  std::vector<Document> documents() { return std::move(documents_); }

 private:
  void include_all(const Item& item, const fs::path& including) {
    const Context context{including.string(), "include"};
    for (const std::string& name : included_names(item, context)) {
      if (includes_ == Includes::kBeside && leads_out(name) && !is_named_as_annotations(name)) {
        fail(context, item.line,
             fmt::format("'{}' leads elsewhere; expected a .yaml file, or one beside this or a preset", name));
      }
      const fs::path file = find_file(name, including.parent_path());
      std::error_code ignored;
      if (!fs::is_regular_file(file, ignored)) {
        fail(context, item.line, fmt::format("'{}' cannot be read; expected {}", name, what_is_expected(name)));
      }
      if (std::find(being_read_.begin(), being_read_.end(), canonical_path(file)) != being_read_.end()) {
        fail(context, item.line, fmt::format("'{}' includes this file; expected no circle", name));
      }
      if (!seen_.contains(canonical_path(file))) add(read_text_file(file, what_is_expected(name)), file);
    }
  }

  fs::path find_file(const std::string& name, const fs::path& directory) const {
    fs::path file = directory / name;
    std::error_code ignored;
    if (fs::exists(file, ignored) || fs::path(name).has_parent_path() || presets_.empty()) return file;
    for (const fs::path& preset : {presets_ / name, presets_ / (name + ".yaml")}) {
      if (fs::exists(preset, ignored)) return preset;
    }
    return file;
  }

  std::string what_is_expected(const std::string& name) const {
    std::set<std::string> presets;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(presets_, ignored)) {
      if (entry.path().extension() == ".yaml") presets.insert(entry.path().stem());
    }
    if (presets.empty() || fs::path(name).has_parent_path()) return "an annotation file";
    return fmt::format("an annotation file or a preset: {}", fmt::join(presets, ", "));
  }

  const fs::path presets_;
  const bool with_guesses_;
  const Includes includes_;
  std::vector<Document> documents_;
  std::set<fs::path> seen_;           // files that were read, or are being read
  std::vector<fs::path> being_read_;  // files whose includes are being read, the outermost first
};

}  // namespace

std::vector<Document> read_documents(const std::string& file, const fs::path& presets, bool with_guesses,
                                     Includes includes) {
  DocumentReader reader(presets, with_guesses, includes);
  reader.read(file);
  return reader.documents();
}

std::vector<Document> parse_documents(const std::string& text, const std::string& file, const fs::path& presets) {
  DocumentReader reader(presets, false, Includes::kBeside);
  reader.add(text, file);
  return reader.documents();
}

}  // namespace ttrace::annotation_yaml
