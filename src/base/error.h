// The one exception type for everything that keeps ttrace from looking: a user's mistake, an unreadable file, a command
// that failed.
//
// An exception means "could not look". A difference between two traces is a value (a `Finding`), never
// an exception. The test for which it is: could the training code have caused it? Then it is a finding.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace ttrace {

// Text form: `where: what; what was expected`, on one line. Caught once, in src/cli/main.cpp, printed as
// `ttrace: error: ...` on stderr; the exit code is 2.
class InputError : public std::runtime_error {
 public:
  explicit InputError(const std::string& message) : std::runtime_error(without_nul(message)) {}

 private:
  // what() is read up to the first NUL, which names and values from files may hold.
  static std::string without_nul(std::string text) {
    for (std::size_t at = text.find('\0'); at != text.npos; at = text.find('\0', at)) text.replace(at, 1, "\\x00");
    return text;
  }
};

// Throws InputError, `file:line: what`, for files that people write.
[[noreturn]] inline void fail_at(const std::string& file, int line, const std::string& what) {
  throw InputError(file + ":" + std::to_string(line) + ": " + what);
}

}  // namespace ttrace
