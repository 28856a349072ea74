#include "identify/no_module.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/renumbered.h"
#include "identify/renamed.h"

namespace ttrace {
namespace {

// One of a rank's tensors of no module, as it is before its first step.
struct Trained {
  std::string name;
  Shape shape;
  Dtype dtype = Dtype::kFloat32;
  std::uint64_t checksum = 0;

  std::tuple<Shape, Dtype, std::uint64_t> value() const { return {shape, dtype, checksum}; }
};

std::vector<Trained> trained_of(const RankTrace& rank) {
  std::vector<Trained> trained;
  for (const Entry& entry : rank.entries) {
    const std::string& name = entry.id.name.get();
    if (entry.id.kind != Kind::kParam || !name.starts_with(kOfNoModule)) continue;
    const auto is_it = [&](const Trained& each) { return each.name == name; };
    if (std::any_of(trained.begin(), trained.end(), is_it)) continue;  // of a later iteration
    trained.push_back({name, entry.shape.get(), entry.dtype, entry.checksum});
  }
  return trained;
}

// Pairs names of two sides, each once.
class Pairing {
 public:
  Pairing(std::vector<Trained> reference, std::vector<Trained> candidate)
      : reference_(std::move(reference)), candidate_(std::move(candidate)) {}

  // Pairs, in their order, those of one key that either side has as often, and where that is at most `most` times.
  template <class KeyOf>
  void pair_by(const KeyOf& key_of, std::size_t most) {
    using Key = decltype(key_of(std::declval<const Trained&>()));
    std::map<Key, std::pair<std::vector<std::string>, std::vector<std::string>>> alike;
    for (const Trained& each : reference_) alike[key_of(each)].first.push_back(each.name);
    for (const Trained& each : candidate_) alike[key_of(each)].second.push_back(each.name);
    for (const auto& [key, names] : alike) {
      const auto& [trusted, own] = names;
      if (trusted.size() != own.size() || own.size() > most) continue;
      for (std::size_t i = 0; i < own.size(); ++i) pair(trusted[i], own[i]);
    }
  }

  // Pairs the others in their order; those that only the candidate has get numbers that the reference has not.
  void pair_rest(std::size_t unused) {
    while (!reference_.empty() && !candidate_.empty()) {
      const std::string trusted = reference_.front().name, own = candidate_.front().name;
      pair(trusted, own);
    }
    for (const Trained& each : candidate_) names_.emplace(each.name, fmt::format("{}{}", kOfNoModule, unused++));
  }

  const std::map<std::string, std::string>& names() const { return names_; }  // the candidate's -> the reference's

 private:
  void pair(const std::string& trusted, const std::string& own) {
    names_.emplace(own, trusted);
    std::erase_if(reference_, [&](const Trained& each) { return each.name == trusted; });
    std::erase_if(candidate_, [&](const Trained& each) { return each.name == own; });
  }

  std::vector<Trained> reference_, candidate_;
  std::map<std::string, std::string> names_;
};

}  // namespace

void number_as_reference(const Trace& reference, Trace& candidate) {
  if (reference.ranks.empty()) return;
  const std::vector<Trained> trusted = trained_of(reference.ranks.front());
  if (trusted.empty()) return;
  for (RankTrace& rank : candidate.ranks) {
    const std::vector<Trained> own = trained_of(rank);
    Pairing pairing(trusted, own);
    pairing.pair_by([](const Trained& each) { return each.value(); }, own.size());
    pairing.pair_by([](const Trained& each) { return each.shape; }, 1);
    pairing.pair_rest(trusted.size());
    const auto& names = pairing.names();
    if (std::all_of(names.begin(), names.end(), [](const auto& pair) { return pair.first == pair.second; })) continue;
    rename_tensors(rank, [&](std::int32_t /*chunk*/, const std::string& name) {
      const auto found = names.find(name);
      return found == names.end() ? name : found->second;
    });
  }
}

}  // namespace ttrace
