// The processes that work on one command together, of which process 0 is the command: it alone reads options, aligns,
// judges, prints and writes. The others wait for tasks, and answer.
//
//     process 0                              each of the others
//     Team::deal  ──────── task ──────────▶  serve: the worker makes the answer
//                 ◀─────── answer ─────────
//     Team::dismiss ─────────────────────▶  serve returns
//
// A task is bytes that say all that it needs, so that others hold no more of a trace than the tasks they are at.
// Process 0 takes part in the work. Which process does a task never shows in its answer: results are the same bytes for
// any number of processes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "team/communicator.h"

namespace ttrace {

// Says what tasks are about: which worker does them.
enum class Work : std::uint8_t { kReadIndex, kCompare, kReplaySteps };

// Some tasks for all processes.
struct Tasks {
  Work work = Work::kCompare;
  std::vector<std::uint64_t> weights;  // one a task, such as its bytes; neighbours read neighbouring parts of files
  // Does the task: for process 0's own share, on a thread of its own.
  std::function<void(std::size_t)> own;
  // Say what the task's bytes are, and what is done with the answer: for another process, on the calling thread.
  std::function<std::string(std::size_t)> request;
  std::function<void(std::size_t, std::string)> take;
  // Is called on the calling thread when the task is done, by whichever process. May be empty.
  std::function<void(std::size_t)> finished = {};
};

// Says which program a process is and what it was asked for. All processes of a team must say the same.
struct Identity {
  std::string program;    // version and build
  std::string arguments;  // the command line
};

class Team {
 public:
  Team() = default;  // this process alone
  // Process 0 of several. Throws InputError where another one is another program, or was given other arguments.
  Team(std::unique_ptr<Communicator> communicator, const Identity& identity);
  ~Team();  // dismisses the others, if nobody has
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return communicator_ ? communicator_->size() : 1; }

  // Deals out the tasks and returns when all are done. Where some fail, no more are dealt, and the error of the first
  // in order is thrown: InputError as it was, others as std::runtime_error.
  void deal(const Tasks& tasks);

  // Ends the others, and returns when they know it.
  void dismiss();

 private:
  void require_identity(const Identity& identity);

  std::unique_ptr<Communicator> communicator_;
  std::vector<std::string> nodes_;  // by process
};

// The loop of the other processes: introduces this one, and does what it is given until it is dismissed.
// `worker` turns a task's bytes into the answer's.
using Worker = std::function<std::string(Work, std::string_view)>;
void serve(Communicator& communicator, const Identity& identity, const Worker& worker);

}  // namespace ttrace
