#include "workflow/workspace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "terminal/write_file.h"
#include "ttrace/error.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKeyFile = "key.json";

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

void replace_file(const fs::path& path, const std::string& text) {
  const fs::path partial = path.string() + ".partial";
  write_file(partial, text);
  fs::rename(partial, path);
}

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
  replace_file(root_ / ".gitignore", "*\n");  // no part of the code that is run
  remove("partial");
}

std::optional<Key> Workspace::key_of(const std::string& piece) const {
  std::ifstream file(path_of(piece) / kKeyFile, std::ios::binary);
  if (!file) return std::nullopt;
  return parse_key(std::string(std::istreambuf_iterator<char>(file), {}));
}

CacheState Workspace::state_of(const std::string& piece, const Key& now) const {
  // As it would be read back: what is no UTF-8 does not come back as it was.
  return compare_keys(key_of(piece), parse_key(to_text(now)));
}

fs::path Workspace::begin(const std::string& piece) {
  // A name that is never used again: processes that outlive a killed run write into nobody else's piece.
  std::string made = (root_ / "partial" / piece).string() + "-XXXXXX";
  fs::create_directories(fs::path(made).parent_path());
  if (mkdtemp(made.data()) == nullptr)
    throw InputError(fmt::format("{}: cannot be made; expected to write there", made));
  fs::permissions(made, fs::perms(0755));
  return made;
}

void Workspace::finish(const fs::path& made, const std::string& piece, const Key& key) {
  replace_file(made / kKeyFile, to_text(key));
  fs::create_directories(path_of(piece).parent_path());
  const fs::path before = begin("before");  // aside, for it may take long to delete
  if (fs::exists(path_of(piece))) fs::rename(path_of(piece), before / "piece");
  fs::rename(made, path_of(piece));
  fs::remove_all(before);
}

void Workspace::remove(const std::string& piece) {
  if (!fs::exists(path_of(piece))) return;
  // Out of sight first: a piece that is removed in part must not look whole.
  if (fs::exists(path_of(piece) / kKeyFile)) fs::remove(path_of(piece) / kKeyFile);
  fs::remove_all(path_of(piece));
}

}  // namespace ttrace
