#include "files/key.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/trace.h"

namespace ttrace {
namespace {

constexpr std::size_t kReasonsShown = 3;
constexpr std::size_t kMostCharactersShown = 80;  // of a value

// Makes a value printable and cuts a long one.
std::string shortened(const std::string& value) {
  const std::string text = printable(value);
  return text.size() <= kMostCharactersShown ? text : text.substr(0, kMostCharactersShown) + "...";
}

}  // namespace

CacheState compare_keys(const std::optional<Key>& stored, const Key& now) {
  if (!stored) return {Freshness::kMissing, {}};
  CacheState state{Freshness::kFits, {}};
  for (const auto& [part, value] : now) {
    const auto before = stored->find(part);
    if (before == stored->end()) {
      state.reasons.push_back(fmt::format("{}: was none, is {}", printable(part), shortened(value)));
    } else if (before->second != value) {
      state.reasons.push_back(
          fmt::format("{}: was {}, is {}", printable(part), shortened(before->second), shortened(value)));
    }
  }
  for (const auto& [part, value] : *stored) {
    if (!now.contains(part))
      state.reasons.push_back(fmt::format("{}: was {}, is none", printable(part), shortened(value)));
  }
  if (!state.reasons.empty()) state.freshness = Freshness::kStale;
  return state;
}

std::string describe(const CacheState& state) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kReasonsShown, state.reasons.size()); ++i) {
    text += (i > 0 ? "; " : "") + state.reasons[i];
  }
  if (state.reasons.size() > kReasonsShown) text += fmt::format("; and {} more", state.reasons.size() - kReasonsShown);
  return text;
}

}  // namespace ttrace
