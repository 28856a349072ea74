// What a trace says of its own program: how its ranks are arranged, and how it is parallel. What a user says wins.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/annotation.h"
#include "base/error.h"
#include "base/trace.h"

namespace ttrace {

// Nothing says how the ranks of a trace are arranged.
class MissingAxes : public InputError {
 public:
  MissingAxes(const std::string& message, std::string proposed) : InputError(message), proposed_(std::move(proposed)) {}
  const std::string& proposed() const { return proposed_; }  // "tp=2,dp=2", by the samples that the ranks read

 private:
  std::string proposed_;
};

// Whose axes a user means who says them.
enum class AxesOf : std::uint8_t {
  kThisTrace,  // those of this trace
  kAnother,    // those of a trace that is compared with this one: they count here where it knows none itself
};

// Gives a trace of several ranks the axes that `annotations` declare, each rank with the coordinates of its number.
// The axes may add to those that the trace has recorded: aliases, further factorings. Throws InputError where they
// contradict them, and MissingAxes where several ranks have axes neither from the trace nor from `annotations`.
void settle_axes(Trace& trace, const Annotations& annotations, AxesOf whose);

// The annotations that hold for this trace: of `parallelism`, what its program says counts where `annotations` say
// nothing of that key.
Annotations with_program_words(Annotations annotations, const Trace& trace);

// Notes that say which keys come from the program, and which its ranks disagree on.
std::vector<std::string> notes_of_program_words(const Annotations& annotations, const Trace& trace);

}  // namespace ttrace
