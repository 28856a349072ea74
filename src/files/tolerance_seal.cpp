#include "files/tolerance_seal.h"

#include <fmt/format.h>

#include <memory>

#include "numeric/xxh3.h"

namespace ttrace {

std::string seal_of(std::string_view text) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  bool in_overrides = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r' || line.back() == '\t')) line.remove_suffix(1);
    const std::size_t first = line.find_first_not_of(" \t");
    if (first == line.npos || line[first] == '#') continue;
    in_overrides = line.starts_with("overrides:") || (in_overrides && (first > 0 || line[0] == '-'));
    if (in_overrides || line.starts_with(kSealKey) || line.starts_with(kSealByKey)) continue;
    XXH3_64bits_update(state.get(), line.data(), line.size());
    XXH3_64bits_update(state.get(), "\n", 1);
  }
  return fmt::format("x{:016x}", XXH3_64bits_digest(state.get()));
}

}  // namespace ttrace
