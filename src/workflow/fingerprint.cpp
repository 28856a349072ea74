#include "workflow/fingerprint.h"

#include <fmt/format.h>
#include <glob.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "files/regular_file.h"
#include "numeric/xxh3.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

std::string hexadecimal(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

bool is_installed_or_hidden(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with('.') || name == "__pycache__" || name == "node_modules" || fs::exists(path / "pyvenv.cfg");
}

std::vector<fs::path> files_below(const fs::path& directory, const fs::path& without) {
  std::vector<fs::path> files;
  for (auto entry = fs::recursive_directory_iterator(directory); entry != fs::recursive_directory_iterator(); ++entry) {
    if (is_installed_or_hidden(entry->path()) || fs::weakly_canonical(entry->path()) == without) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file()) {
      files.push_back(entry->path());
    }
  }
  return files;
}

std::vector<std::string> expand_pattern(const std::string& pattern) {
  glob_t found{};
  const std::unique_ptr<glob_t, decltype(&globfree)> owner(&found, globfree);
  if (glob(pattern.c_str(), 0, nullptr, &found) != 0) return {};
  return {found.gl_pathv, found.gl_pathv + found.gl_pathc};
}

}  // namespace

std::uint64_t bytes_below(const fs::path& directory, const fs::path& without) {
  std::uint64_t bytes = 0;
  for (const fs::path& file : files_below(directory, without)) bytes += fs::file_size(file);
  return bytes;
}

std::string fingerprint(std::string_view bytes) { return hexadecimal(XXH3_128bits(bytes.data(), bytes.size())); }

std::string fingerprint_of(const fs::path& path) {
  if (fs::is_directory(path)) return "directory";
  if (fs::is_symlink(path) && !fs::exists(path)) return "link to nothing";
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  const RegularFile file(path, "a regular file");
  std::vector<char> buffer(std::size_t{1} << 20);
  while (const std::size_t count = file.read(buffer.data(), buffer.size())) {
    XXH3_128bits_update(state.get(), buffer.data(), count);
  }
  return hexadecimal(XXH3_128bits_digest(state.get()));
}

std::map<std::string, std::string> fingerprints_of(const std::vector<std::string>& inputs, const fs::path& without) {
  std::map<std::string, std::string> files;
  for (const std::string& input : inputs) {
    std::map<std::string, std::string> found;
    for (const std::string& path : expand_pattern(input)) {
      if (fs::is_directory(path)) {
        for (const fs::path& file : files_below(path, without)) found.emplace(file.string(), fingerprint_of(file));
      } else {
        found.emplace(path, fingerprint_of(path));
      }
    }
    if (found.empty()) {
      throw InputError(fmt::format("'{}': no such file; expected a file, a directory with files, or a pattern", input));
    }
    files.merge(found);
  }
  return files;
}

}  // namespace ttrace
