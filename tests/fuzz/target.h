// Declares the targets, and what they are run by: main.cpp on generated input, tests/unit/fuzz on the seeds alone. A
// target does with one input what the program does with such a file, and may throw InputError; anything else that goes
// wrong is a bug.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ttrace::fuzz {

enum class Outcome : std::uint8_t {
  kFound,  // read, and a difference was found, or there was nothing to call the same
  kSame,   // read, and said to be as the original is
};

struct Target {
  std::string_view name;
  Outcome (*run)(std::string_view input);  // InputError: refused
};

// Report what an input broke, each in the words of what runs the targets.
[[noreturn]] void fail_silent_pass(const std::string& what);  // accepted, different, and called the same
[[noreturn]] void fail_promise(const std::string& what);      // another promise does not hold

Outcome fuzz_reader(std::string_view input);          // a rank's file, or its journal
Outcome fuzz_check(std::string_view input);           // all of `ttrace check`, on two traces
Outcome fuzz_metadata(std::string_view input);        // the JSON in traces
Outcome fuzz_annotations(std::string_view input);     // annotation files, and what they do to a trace; patterns
Outcome fuzz_tolerance(std::string_view input);       // tolerance and calibration files
Outcome fuzz_run_file(std::string_view input);        // ttrace.yaml
Outcome fuzz_report(std::string_view input);          // reports about tensors with hostile names
Outcome fuzz_c_api(std::string_view input);           // a recorder that is misused
Outcome fuzz_history(std::string_view input);         // the database of `--history`
Outcome fuzz_selection(std::string_view input);       // NAME and --slice of `ttrace show` and `ttrace export`
Outcome fuzz_correspondence(std::string_view input);  // correspondence files, and what they do to two traces; patterns

inline constexpr std::array kTargets = {
    Target{"reader", fuzz_reader},
    Target{"check", fuzz_check},
    Target{"metadata", fuzz_metadata},
    Target{"annotations", fuzz_annotations},
    Target{"tolerance", fuzz_tolerance},
    Target{"run_file", fuzz_run_file},
    Target{"report", fuzz_report},
    Target{"c_api", fuzz_c_api},
    Target{"history", fuzz_history},
    Target{"selection", fuzz_selection},
    Target{"correspondence", fuzz_correspondence},
};

}  // namespace ttrace::fuzz
