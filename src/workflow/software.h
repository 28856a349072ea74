// The versions of Python and PyTorch that runs were made on: what other ones compute is no measure.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace ttrace {

struct SoftwareDifference {
  std::string name;            // "torch"
  std::string reference, run;  // the versions, as the provenance of the two traces has them
};

// The first difference between the software of two traces. Where one of them does not name a version, nothing differs.
std::optional<SoftwareDifference> software_difference(const std::filesystem::path& reference,
                                                      const std::filesystem::path& run);

}  // namespace ttrace
