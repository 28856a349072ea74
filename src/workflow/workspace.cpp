#include "workflow/workspace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "host/write_file.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKeyFile = "key.json";
constexpr const char* kSecondsFile = "seconds";

Key parse_key(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  Key key;
  if (json.is_object()) {
    for (const auto& [part, value] : json.items())
      key[part] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  if (key.empty()) key[kKeyFile] = "unreadable";
  return key;
}

std::string to_text(const Key& key) {
  return nlohmann::json(key).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

Workspace::~Workspace() {
  if (lock_ >= 0) close(lock_);
}

void Workspace::open() {
  std::error_code error;
  fs::create_directories(root_, error);
  if (error) throw InputError(fmt::format("{}: cannot be made: {}", root_.string(), error.message()));
  lock_ = ::open((root_ / "lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  if (lock_ < 0)
    throw InputError(fmt::format("{}: cannot be written; expected a directory to work in", root_.string()));
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    throw InputError(fmt::format("{}: another ttrace works there; expected one at a time, or another --work directory",
                                 root_.string()));
  }
  write_file(root_ / ".gitignore", "*\n");  // git must not take it for code that is run
  // Files that a process which outlived the last run still writes there are left for the next run: no name is used
  // twice.
  std::error_code ignored;
  fs::remove_all(root_ / "partial", ignored);
}

std::optional<Key> Workspace::stored_key(const std::string& artifact) const {
  std::ifstream file(path_of(artifact) / kKeyFile, std::ios::binary);
  if (!file) return std::nullopt;
  return parse_key(std::string(std::istreambuf_iterator<char>(file), {}));
}

CacheState Workspace::state_of(const std::string& artifact, const Key& now) const {
  // `now` goes through text as the stored key did: writing it changes bytes that are not UTF-8.
  return compare_keys(stored_key(artifact), parse_key(to_text(now)));
}

std::optional<double> Workspace::seconds_of(const std::string& artifact) const {
  std::ifstream file(path_of(artifact) / kSecondsFile);
  double seconds = 0;
  if (!(file >> seconds) || !(seconds >= 0)) return std::nullopt;
  return seconds;
}

fs::path Workspace::begin(const std::string& artifact) {
  // The name is never used again: processes that outlive a killed run write into nobody else's artifact.
  std::string unfinished = (root_ / "partial" / artifact).string() + "-XXXXXX";
  fs::create_directories(fs::path(unfinished).parent_path());
  if (mkdtemp(unfinished.data()) == nullptr)
    throw InputError(fmt::format("{}: cannot be made; expected to write there", unfinished));
  fs::permissions(unfinished, fs::perms(0755));
  return unfinished;
}

void Workspace::finish(const fs::path& unfinished, const std::string& artifact, const Key& key,
                       std::optional<double> seconds) {
  if (seconds) write_file(unfinished / kSecondsFile, fmt::format("{:.1f}\n", *seconds));
  write_file(unfinished / kKeyFile, to_text(key));
  fs::create_directories(path_of(artifact).parent_path());
  const fs::path former = begin("former");  // the former artifact is moved here first: deleting it may take long
  if (fs::exists(path_of(artifact))) fs::rename(path_of(artifact), former / "artifact");
  fs::rename(unfinished, path_of(artifact));
  fs::remove_all(former);
}

void Workspace::remove(const std::string& artifact) {
  if (!fs::exists(path_of(artifact))) return;
  // The key goes first: an artifact that is removed in part must not look whole.
  if (fs::exists(path_of(artifact) / kKeyFile)) fs::remove(path_of(artifact) / kKeyFile);
  fs::remove_all(path_of(artifact));
}

}  // namespace ttrace
