// Makes what `ttrace run` keeps: the reference, its tolerance, and the candidates' traces.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "files/run_file.h"
#include "workflow/collect.h"
#include "workflow/software.h"
#include "workflow/workspace.h"

namespace ttrace {

// The names of artifacts, which are their paths in the workspace.
inline constexpr const char* kReference = "reference";
inline constexpr const char* kTolerance = "tolerance";
inline constexpr const char* kWhole = "whole";          // workspaces of their own (workflow/whole_recording.h)
std::string candidate_artifact(const Job& candidate);   // "candidates/tp2"
std::string second_run_artifact(const Job& candidate);  // "second-runs/tp2"

// A signal came for this process while it ran a command: the user wants no further one.
class Interrupted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Something is wrong with what the run is given or keeps, whatever the code is that it runs: another commit won't help.
class SetupError : public InputError {
 public:
  using InputError::InputError;
};

// Says which of a stale reference and a stale tolerance are made again.
enum class Renewal { kNone, kCheap, kAll };
// A reference is cheap where it and its tolerance take no longer to make, by the time that it took before.
inline constexpr double kMostCheapSeconds = 120;

// Makes each artifact, unless the workspace has one that fits, and prints to stderr what it makes and why. Throws
// InputError, and Interrupted.
class Artifacts {
 public:
  // `written` has the files that this run itself writes, such as reports: they are not part of the code that it runs.
  // Up to `jobs` runs are collected side by side, where they wait for nothing. `launches` counts on with each.
  Artifacts(const RunFile& file, Workspace& workspace, std::set<std::filesystem::path> written, std::size_t jobs,
            std::size_t& launches);

  CacheState reference_state();
  CacheState tolerance_state();  // stale, too, where the reference is
  CacheState candidate_state(const Job& candidate);

  bool makes_again(const CacheState& state, Renewal renewal) const;  // true for what is not stale, too

  // These two refuse to replace what is stale, but for what `renewal` says. Throw SetupError. `with_runs`: a tolerance
  // is wanted, too, and its runs are recorded in the reference's launch where the program lets that be.
  void make_reference(Renewal renewal, bool with_runs);
  void make_tolerance(Renewal renewal);
  // Where no launch of its own has shown so far that the reference repeats itself, launches it once more: what differs
  // from launch to launch, no replay tells. Returns whether it does not, and the tolerance was made again, from launches.
  bool makes_tolerance_from_launches();
  // Says what of the reference and its tolerance was made again, and what else a reader must know of them.
  const std::vector<std::string>& notes() const { return notes_; }
  // Collects side by side what no artifact fits, or nothing where one job runs at a time. What fails is reported when
  // its candidate is made.
  void prepare_candidates(const std::vector<Job>& candidates);
  void make_candidate(const Job& candidate);
  // `options` come from `second_run_options`.
  void make_second_run(const Job& candidate, const CollectOptions& options);

 private:
  const Key& code_key();
  std::map<std::string, std::string> files_of_folder() const;
  void add_files_of_command(const Job& job, Key& key) const;
  void add_loaded_files(const std::filesystem::path& trace, Key& key) const;
  Key loaded_now(const Key& stored) const;
  CacheState state_of(const std::string& artifact, const Key& now) const;
  void note_unlisted_changes();
  Key job_key(const Job& job);
  Key rerun_key(const std::string& reference_run, std::optional<std::uint64_t> seed);
  Key tolerance_key(const std::string& reference_run) const;
  std::string reference_run_id() const;
  RecordedIterations stated_iterations() const;
  RecordedIterations iterations_of_reference() const;
  static void set_iterations(const RecordedIterations& recorded, CollectOptions& options);
  CacheState state_of_run(const std::string& artifact, const Key& key);
  std::optional<SoftwareDifference> other_software(const std::string& artifact) const;
  void record_as_reference(CollectOptions& options) const;
  CollectOptions options_for(const Job& job) const;
  // A trace that `ttrace collect` makes.
  struct Run {
    std::string artifact;
    Key key;
    CollectOptions options;
    int line = 0;  // of its command, in the file
  };
  Run rerun_of(const std::string& reference_run, std::optional<std::uint64_t> seed);
  Run candidate_run(const Job& candidate);
  std::filesystem::path make_run(const Run& run);
  void collect_run(const Run& run);
  bool collect_with_replays(const Run& reference);
  void collect_side_by_side(std::vector<Run> runs);
  // `seconds`: that it took, where nothing ran beside it.
  void finish_run(const Run& run, const std::filesystem::path& unfinished, int code, std::optional<double> seconds);
  void require_same_software(const std::string& artifact) const;
  std::optional<double> seconds_to_renew() const;
  void require_renewal(const std::string& artifact, const CacheState& state, Renewal renewal);

  const RunFile& file_;
  Workspace& workspace_;
  std::set<std::filesystem::path> not_code_;
  std::filesystem::path source_root_;  // the directory that traces name the program's files from
  std::optional<Key> code_key_;        // git is asked once
  std::size_t jobs_;
  std::size_t& launches_;
  std::vector<std::string> notes_;
  std::map<std::string, std::string> failed_;  // by artifact: why it could not be made beside others
};

}  // namespace ttrace
