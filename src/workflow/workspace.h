// The directory where `ttrace run` keeps what it made, for the next run:
//
//   reference/            trace/, key.json: what it was made from; seconds: how long that took
//   tolerance/            tolerance.yaml, key.json
//   candidates/<name>/    trace/, key.json; report.json, of the last check
//   second-runs/<name>/   trace/, key.json: of a candidate that differs, its modules given the reference's values
//   whole/until-<n>/      the same directories, of runs that recorded the iterations up to n whole
//   runs/                 the reference's rerun and perturbed runs, until the tolerance is made
//   partial/              what is being made
//
// `one-launch` stands beside a reference and its runs that were recorded in one launch, and beside the tolerance of these
// until a further launch has shown that the reference repeats itself.
//
// An artifact (`reference`, `candidates/tp2`) is made under partial/ and renamed when it is whole, so that a run that
// is killed leaves none in part.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "files/key.h"

namespace ttrace {

class Workspace {
 public:
  explicit Workspace(std::filesystem::path root) : root_(std::move(root)) {}  // touches nothing
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Makes the directory, locks it for the lifetime of this object, and removes what a killed run left. Throws
  // InputError.
  void open();

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path path_of(const std::string& artifact) const { return root_ / artifact; }
  std::filesystem::path trace_of(const std::string& artifact) const { return root_ / artifact / "trace"; }
  CacheState state_of(const std::string& artifact, const Key& now) const;
  std::optional<Key> stored_key(const std::string& artifact) const;
  std::optional<double> seconds_of(const std::string& artifact) const;  // that it took to make; nothing: not known

  std::filesystem::path begin(const std::string& artifact);  // returns an empty directory to make it in
  // Puts what `unfinished` holds in the artifact's place. `seconds`: that it took to make, where that is of interest.
  void finish(const std::filesystem::path& unfinished, const std::string& artifact, const Key& key,
              std::optional<double> seconds = std::nullopt);
  void remove(const std::string& artifact);

 private:
  std::filesystem::path root_;
  int lock_ = -1;
};

}  // namespace ttrace
