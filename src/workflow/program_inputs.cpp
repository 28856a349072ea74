#include "workflow/program_inputs.h"

#include <algorithm>
#include <array>
#include <deque>
#include <fstream>
#include <regex>
#include <set>
#include <string_view>

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// Bounds for what is read of a project that is larger than any program.
constexpr std::size_t kMostFiles = 2'000, kMostLines = 20'000, kMostCharacters = 2'000;

fs::path relative_to_here(const fs::path& path) {
  const fs::path relative = fs::absolute(path).lexically_normal().lexically_relative(fs::current_path());
  return relative.empty() || *relative.begin() == ".." ? fs::absolute(path).lexically_normal() : relative;
}

// The name that stands for a module's own package, as in `from .model import x`.
constexpr const char* kOwnPackage = ".";

// Returns the top-level names of the modules that the file imports.
std::set<std::string> imports_of(const fs::path& file) {
  static const std::regex kFrom(R"(^\s*from\s+([A-Za-z_]\w*)[\w.]*\s+import\b)");
  static const std::regex kRelative(R"(^\s*from\s+\.)");
  static const std::regex kImport(R"(^\s*import\s+([A-Za-z_][\w.,\s]*))");
  static const std::regex kName(R"((?:^|,)\s*([A-Za-z_]\w*))");
  std::set<std::string> names;
  std::ifstream text(file);
  std::string line;
  for (std::size_t lines = 0; lines < kMostLines && std::getline(text, line); ++lines) {
    if (line.size() > kMostCharacters) continue;
    std::smatch match;
    if (std::regex_search(line, match, kFrom)) names.insert(match[1]);
    if (std::regex_search(line, kRelative)) names.insert(kOwnPackage);
    if (!std::regex_search(line, match, kImport)) continue;
    const std::string list = match[1];
    for (std::sregex_iterator name(list.begin(), list.end(), kName), end; name != end; ++name) names.insert((*name)[1]);
  }
  return names;
}

bool is_package(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) return false;
  return std::any_of(fs::directory_iterator(directory, ignored), fs::directory_iterator(),
                     [](const fs::directory_entry& entry) { return entry.path().extension() == ".py"; });
}

// Returns the module's file, or its package's directory; empty where it lies in none of the places.
fs::path find_module(const std::string& name, const std::vector<fs::path>& places) {
  if (name == kOwnPackage) return {};
  for (const fs::path& place : places) {
    if (is_package(place / name)) return place / name;
    if (fs::is_regular_file(place / (name + ".py"))) return place / (name + ".py");
  }
  return {};
}

std::vector<fs::path> files_of(const fs::path& module) {
  if (!fs::is_directory(module)) return {module};
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(module)) {
    if (entry.path().extension() == ".py" && entry.is_regular_file()) files.push_back(entry.path());
    if (files.size() == kMostFiles) break;
  }
  return files;
}

bool lies_in_one_of(const fs::path& file, const std::set<std::string>& directories) {
  for (fs::path parent = file.parent_path(); !parent.empty() && parent != parent.root_path();
       parent = parent.parent_path()) {
    if (directories.contains(parent.string())) return true;
  }
  return false;
}

// Adds the configurations beside the script, which no import names: files, and the folders where they usually lie.
void add_configurations(const fs::path& script, std::set<std::string>& inputs) {
  constexpr std::array<std::string_view, 6> kSuffixes = {".yaml", ".yml", ".json", ".toml", ".cfg", ".ini"};
  constexpr std::array<std::string_view, 3> kFolders = {"conf", "config", "configs"};
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::absolute(script).parent_path())) {
    const fs::path name = entry.path().filename();
    const bool is_file = entry.is_regular_file() && std::ranges::find(kSuffixes, name.extension()) != kSuffixes.end();
    const bool is_folder = entry.is_directory() && std::ranges::find(kFolders, name) != kFolders.end();
    if (!name.string().starts_with('.') && (is_file || (is_folder && !fs::is_empty(entry.path())))) {
      inputs.insert(relative_to_here(entry.path()).string());
    }
  }
}

}  // namespace

std::vector<std::string> program_inputs(const fs::path& script, const std::vector<std::string>& named) {
  const std::vector<fs::path> places = {fs::absolute(script).parent_path(), fs::current_path(),
                                        fs::current_path() / "src"};
  std::set<std::string> inputs;
  std::size_t read = 0;
  for (std::deque<fs::path> modules = {script}; !modules.empty() && read < kMostFiles; modules.pop_front()) {
    if (!inputs.insert(relative_to_here(modules.front()).string()).second) continue;
    for (const fs::path& file : files_of(modules.front())) {
      ++read;
      const std::set<std::string> imports = imports_of(file);
      const bool is_whole_package = fs::is_directory(modules.front());
      if (imports.contains(kOwnPackage) && !is_whole_package) modules.push_back(fs::absolute(file).parent_path());
      for (const std::string& name : imports) {
        if (const fs::path found = find_module(name, places); !found.empty()) modules.push_back(found);
      }
    }
  }
  add_configurations(script, inputs);
  for (const std::string& name : named) inputs.insert(relative_to_here(name).string());
  std::erase_if(inputs, [&](const std::string& input) { return lies_in_one_of(input, inputs); });
  return {inputs.begin(), inputs.end()};
}

fs::path file_of_module(const std::string& module) {
  std::string path = module;
  std::replace(path.begin(), path.end(), '.', '/');
  for (const fs::path& place : {fs::path(), fs::path("src")}) {
    for (const std::string& ending : {std::string(".py"), std::string("/__main__.py")}) {
      if (fs::is_regular_file(place / (path + ending))) return place / (path + ending);
    }
  }
  return {};
}

}  // namespace ttrace
