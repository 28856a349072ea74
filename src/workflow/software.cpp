#include "workflow/software.h"

#include "load/trace_reader.h"

namespace ttrace {
namespace {

std::string quoted(const std::string& version) { return '"' + printable(version) + '"'; }

}  // namespace

std::optional<SoftwareDifference> software_difference(const std::filesystem::path& reference,
                                                      const std::filesystem::path& run) {
  const Provenance of_reference = read_trace(reference).provenance, of_run = read_trace(run).provenance;
  const auto differs = [](const std::string& one, const std::string& other) {
    return !one.empty() && !other.empty() && one != other;
  };
  if (differs(of_reference.python, of_run.python)) {
    return SoftwareDifference{"python", quoted(of_reference.python), quoted(of_run.python)};
  }
  if (differs(of_reference.torch, of_run.torch)) {
    return SoftwareDifference{"torch", quoted(of_reference.torch), quoted(of_run.torch)};
  }
  return std::nullopt;
}

}  // namespace ttrace
