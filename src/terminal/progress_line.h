// One line on stderr that says how far the work is; nothing when stderr is no terminal.
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

  // For CompareOptions::progress; empty when there is no terminal. Not to be called after this is gone.
  std::function<void(std::uint64_t, std::uint64_t)> callback() const;

 private:
  std::string what_;
  bool is_terminal_;
};

}  // namespace ttrace
