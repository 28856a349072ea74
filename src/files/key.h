// Compares keys. A key is all that an artifact was made from: the artifact may be used again while its key is the same.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

// The parts of a key (`command`, `git commit`, `input model.py`, ...) -> their text or its fingerprint.
using Key = std::map<std::string, std::string>;

enum class Freshness { kFits, kMissing, kStale };

struct CacheState {
  Freshness freshness = Freshness::kMissing;
  std::vector<std::string> reasons;  // for kStale, one for each part that changed: `command: was a, is b`
};

// `stored` is absent where nothing was made yet.
CacheState compare_keys(const std::optional<Key>& stored, const Key& now);

// Returns the first three reasons on one line.
std::string describe(const CacheState& state);

}  // namespace ttrace
