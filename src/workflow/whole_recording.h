// Records runs of `ttrace run` once more, where only what modules computed in a light iteration tells why it differs:
// the iterations up to that one whole, of the reference, of the runs that its tolerance is estimated from, since errors
// grow from step to step, and of a candidate. They lie in a workspace below the first, for the next run and other
// candidates.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

#include "files/run_file.h"
#include "workflow/artifacts.h"
#include "workflow/workspace.h"

namespace ttrace {

class WholeRecording {
 public:
  // `first` has the reference and the candidate as they were recorded; `iteration` is a light one of theirs. `written`,
  // `jobs` and `launches` are as those of Artifacts. Throws InputError.
  WholeRecording(const RunFile& file, const Workspace& first, std::int32_t iteration,
                 std::set<std::filesystem::path> written, std::size_t jobs, std::size_t& launches);

  // Makes what is not there. The reference and the candidate must be the first runs again, to the last bit: what one run
  // did is no word on another one. Throws InputError, also where they are not, and Interrupted.
  void make(const Job& candidate);

  // Says by how many runs all of it is made: "5 of the reference and 1 of the candidate".
  std::string runs() const;

  const RunFile& file() const { return file_; }
  const Workspace& workspace() const { return workspace_; }
  Artifacts& artifacts() { return artifacts_; }

 private:
  std::string lacking_runs(const Job& candidate);
  void require_first_run(const std::string& artifact) const;

  RunFile file_;
  const Workspace& first_;
  Workspace workspace_;
  Artifacts artifacts_;
};

}  // namespace ttrace
