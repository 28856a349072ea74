// What `ttrace run` makes and keeps: the reference, its tolerance, the candidates' traces.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ttrace/plan/run_file.h"
#include "workflow/collect.h"
#include "workflow/workspace.h"

namespace ttrace {

inline constexpr const char* kReference = "reference";
inline constexpr const char* kTolerance = "tolerance";
std::string piece_of(const Job& candidate);         // "candidates/tp2"
std::string second_piece_of(const Job& candidate);  // "second-runs/tp2"

// Makes pieces, where the workspace has none that fits. What it says goes to stderr. All of it throws InputError.
class Pieces {
 public:
  // `apart`: files that are no part of the code that is run, such as reports.
  Pieces(const RunFile& file, Workspace& work, std::set<std::filesystem::path> apart);

  CacheState reference_state();
  CacheState tolerance_state();  // stale too where the reference is
  CacheState candidate_state(const Job& candidate);

  // Refused where what is there is stale, unless it is to be made again.
  void make_reference(bool refresh);
  void make_tolerance(bool refresh);
  void make_candidate(const Job& candidate);
  // `run`: as `second_run_of` the candidate has it, for just these two traces.
  void make_second_run(const Job& candidate, const CollectOptions& run);

 private:
  Key key_of(const Job& job);
  std::string annotations_print() const;  // of their files and parameters
  Key tolerance_key(const std::string& reference_run) const;
  const Key& code();
  Key run_key(const std::string& reference_run, std::optional<std::uint64_t> seed);
  std::filesystem::path make_run(const std::string& reference_run, std::optional<std::uint64_t> seed);
  void collect_piece(const std::string& piece, const Job& job, const Key& key, std::optional<std::uint64_t> seed);
  void collect_as(const std::string& piece, const std::string& name, const Key& key, CollectOptions run);
  void require_fresh(const std::string& piece, const CacheState& state, bool refresh) const;

  const RunFile& file_;
  Workspace& work_;
  std::set<std::filesystem::path> apart_;
  std::optional<Key> code_;  // asked of git once
};

}  // namespace ttrace
