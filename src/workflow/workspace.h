// The directory where `ttrace run` keeps what it made, for the next run:
//
//   reference/            trace/, key.json: what it was made from
//   tolerance/            tolerance.yaml, key.json
//   candidates/<name>/    trace/, key.json; report.json, of the last check
//   second-runs/<name>/   trace/, key.json: of a candidate that differs, its modules given the reference's values
//   runs/                 the reference's rerun and perturbed runs, until the tolerance is made
//   partial/              what is being made
//
// A piece (`reference`, `candidates/tp2`) is made under partial/ and renamed when it is whole: a run that is killed
// leaves no piece in part.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "ttrace/plan/key.h"

namespace ttrace {

class Workspace {
 public:
  explicit Workspace(std::filesystem::path root) : root_(std::move(root)) {}  // touches nothing
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Makes the directory, keeps other runs out of it until this is gone, and removes what a killed one left. Throws
  // InputError.
  void open();

  std::filesystem::path path_of(const std::string& piece) const { return root_ / piece; }
  std::filesystem::path trace_of(const std::string& piece) const { return root_ / piece / "trace"; }
  CacheState state_of(const std::string& piece, const Key& now) const;

  std::filesystem::path begin(const std::string& piece);  // an empty directory to make it in
  void finish(const std::filesystem::path& made, const std::string& piece, const Key& key);
  void remove(const std::string& piece);

 private:
  std::optional<Key> key_of(const std::string& piece) const;

  std::filesystem::path root_;
  int lock_ = -1;
};

// The file is the old one or the new one, whenever this is killed. Throws InputError.
void replace_file(const std::filesystem::path& path, const std::string& text);

}  // namespace ttrace
