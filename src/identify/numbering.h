// Makes the numbers in names global that are local to a part of the model.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

struct Numbering {
  std::string layers;  // precedes the numbers in names: "decoder.layers"; empty where no names are numbered
  // The global number of each part's local 0, by the whole prefix of the number ("module.decoder.layers").
  std::map<std::string, std::vector<std::int64_t>, std::less<>> starts;
};

// The name with its global number; nothing where the name has no number of this numbering.
std::optional<std::string> renumbered(const Numbering& numbering, std::string_view name, std::int64_t part);

// By prefix, how many layers (or experts) each part holds: 1 + its largest local number.
using PartCounts = std::map<std::string, std::vector<std::int64_t>, std::less<>>;

// The sum of the counts. A part that is not `present`, because all its ranks are missing, is taken to hold as many as
// the fullest one.
std::int64_t sum_of_parts(std::vector<std::int64_t> counts, const std::vector<bool>& present);

std::vector<std::int64_t> starts_of(const std::vector<std::int64_t>& counts);  // 0, then the partial sums

}  // namespace ttrace
