// Shows on one line of stderr how much of the work is done; shows nothing when stderr is no terminal.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ttrace {

class ProgressLine {
 public:
  explicit ProgressLine(std::string what);
  ~ProgressLine();  // erases the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Returns a function for CompareOptions::progress, empty when there is no terminal. It must not outlive this object.
  std::function<void(std::uint64_t, std::uint64_t)> callback() const;

 private:
  std::string what_;
  bool is_terminal_;
};

}  // namespace ttrace
