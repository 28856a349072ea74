// Compares the versions of Python and PyTorch of two runs: a run on other versions cannot be compared.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace ttrace {

struct SoftwareDifference {
  std::string name;            // "torch"
  std::string reference, run;  // the versions, as the provenance of the two traces has them
};

// Returns the first difference between the software of two traces. A version that one of them does not name counts as
// equal.
std::optional<SoftwareDifference> software_difference(const std::filesystem::path& reference,
                                                      const std::filesystem::path& run);

}  // namespace ttrace
