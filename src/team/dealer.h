// Decides which process does which task.
//
// Tasks are in an order in which neighbours read neighbouring parts of the same files. Each process has a stretch of
// them that is its own, of about the same weight as the others', and goes through it from the front: it opens few
// files, and reads each from one end to the other. When its stretch is done, it takes the last task of the stretch that
// has most left, of a process on its own node as long as there is one: what that node has read ahead, or holds in
// memory, is of use to both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

class Dealer {
 public:
  // `weights` has one number a task, such as its bytes; `nodes` the name of each process's node.
  Dealer(std::span<const std::uint64_t> weights, std::vector<std::string> nodes);

  // The next task for the process; none where all are dealt.
  std::optional<std::size_t> next(int process);

 private:
  struct Stretch {
    std::size_t begin = 0, end = 0;  // what is left of it
    std::uint64_t weight = 0;
  };
  Stretch* stretch_to_help(int process);

  std::vector<std::uint64_t> weights_;
  std::vector<std::string> nodes_;
  std::vector<Stretch> stretches_;  // by process
};

}  // namespace ttrace
