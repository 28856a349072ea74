// Makes what `ttrace run` keeps: the reference, its tolerance, and the candidates' traces.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>

#include "ttrace/plan/run_file.h"
#include "workflow/collect.h"
#include "workflow/software.h"
#include "workflow/workspace.h"

namespace ttrace {

// The names of artifacts, which are their paths in the workspace.
inline constexpr const char* kReference = "reference";
inline constexpr const char* kTolerance = "tolerance";
std::string candidate_artifact(const Job& candidate);   // "candidates/tp2"
std::string second_run_artifact(const Job& candidate);  // "second-runs/tp2"

// A signal came for this process while it ran a command: the user wants no further one.
class Interrupted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Makes each artifact, unless the workspace has one that fits, and prints to stderr what it makes and why. Throws
// InputError, and Interrupted.
class Artifacts {
 public:
  // `written` has the files that this run itself writes, such as reports: they are not part of the code that it runs.
  Artifacts(const RunFile& file, Workspace& workspace, std::set<std::filesystem::path> written);

  CacheState reference_state();
  CacheState tolerance_state();  // stale, too, where the reference is
  CacheState candidate_state(const Job& candidate);

  // These two refuse to replace what is stale, unless `refresh` asks for it.
  void make_reference(bool refresh);
  void make_tolerance(bool refresh);
  void make_candidate(const Job& candidate);
  // `options` come from `second_run_options`.
  void make_second_run(const Job& candidate, const CollectOptions& options);

 private:
  const Key& code_key();
  Key job_key(const Job& job);
  Key rerun_key(const std::string& reference_run, std::optional<std::uint64_t> seed);
  Key tolerance_key(const std::string& reference_run) const;
  std::string reference_run_id() const;
  CacheState state_of_run(const std::string& artifact, const Key& key);
  std::optional<SoftwareDifference> other_software(const std::string& artifact) const;
  CollectOptions options_for(const Job& job) const;
  std::filesystem::path make_rerun(const std::string& reference_run, std::optional<std::uint64_t> seed);
  void make_run(const std::string& artifact, const Key& key, const CollectOptions& options);
  void collect_artifact(const std::string& artifact, const Key& key, CollectOptions options);
  void refuse_stale(const std::string& artifact, const CacheState& state) const;

  const RunFile& file_;
  Workspace& workspace_;
  std::set<std::filesystem::path> not_code_;
  std::optional<Key> code_key_;  // git is asked once
};

}  // namespace ttrace
