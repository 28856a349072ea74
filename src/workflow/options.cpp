#include "workflow/options.h"

#include <algorithm>
#include <filesystem>

#include "tolerance/default_tolerance.h"
#include "workflow/annotations.h"

namespace ttrace {

std::string long_name_of(const Option& option) {
  const std::string names = option.names;
  return names.substr(names.find("--"));
}

std::string keyword_of(const Option& option) {
  if (*option.keyword != '\0') return option.keyword;
  std::string keyword = long_name_of(option).substr(2);
  std::replace(keyword.begin(), keyword.end(), '-', '_');
  return keyword;
}

namespace choices {
namespace {

// Returns the names of the YAML files in a directory, without their ending.
std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

template <class Fits>
std::vector<std::string> kinds_that(Fits fits) {
  std::vector<std::string> names;
  for (std::uint8_t number = kKindFirst; number <= kKindLast; ++number) {
    const Kind kind = static_cast<Kind>(number);
    if (fits(kind)) names.emplace_back(name_of(kind));
  }
  return names;
}

}  // namespace

std::vector<std::string> annotations() {
  std::vector<std::string> names = names_in(preset_directory());
  names.emplace_back(kNoAnnotations);
  return names;
}

std::vector<std::string> correspondences() { return names_in(preset_directory() / "correspondences"); }

std::vector<std::string> tolerances() { return {std::string(kDefaultTolerance)}; }

std::vector<std::string> kinds() {
  return kinds_that([](Kind) { return true; });
}

std::vector<std::string> recorded_kinds() {
  return kinds_that([](Kind kind) { return !is_optimizer_state(kind); });
}

std::vector<std::string> roundings() { return {"bf16", "fp16", "fp32", "float8_e4m3fn", "float8_e5m2"}; }

std::vector<std::string> estimators() { return {kEstimatorNames.begin(), kEstimatorNames.end()}; }

}  // namespace choices
}  // namespace ttrace
