// A key is all that an artifact was made from. The artifact may be used again only while its key is what it was.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

// `command`, `git commit`, `input model.py`, ... -> the text itself or its fingerprint.
using Key = std::map<std::string, std::string>;

enum class Freshness { kFits, kMissing, kStale };

struct CacheState {
  Freshness freshness = Freshness::kMissing;
  std::vector<std::string> reasons;  // for kStale, one for each part that changed: `command: was a, is b`
};

// `stored` is absent where nothing was made yet.
CacheState compare_keys(const std::optional<Key>& stored, const Key& now);

// The first three reasons on one line.
std::string describe(const CacheState& state);

}  // namespace ttrace
