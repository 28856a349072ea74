#include "correspond/groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/integer.h"
#include "base/tensor_name.h"

namespace ttrace {
namespace {

constexpr std::string_view kWholeParameter = "param";

// The value of an axis that a name numbers; nothing where it is no number.
std::optional<std::int64_t> number_of(const std::string& text) {
  constexpr std::int64_t kMostNumber = 1'000'000;
  const auto value = integer_of(text);
  return value && *value >= 0 && *value <= kMostNumber ? value : std::nullopt;
}

// Divides captures into those of both sides and the numbers of the side's own.
bool divide(const Captures& captures, const std::set<std::string>& own, GroupKey& key, PatternTensor& place) {
  for (const auto& [name, text] : captures) {
    if (!own.contains(name)) {
      key.captures[name] = text;
      continue;
    }
    const auto number = number_of(text);
    if (!number) return false;
    place.fixed[name] = *number;
  }
  return true;
}

// Gives the pattern as many tensors as the rule has names, where it speaks of one on each side.
IndexPattern same_for_all(IndexPattern pattern, const CorrespondenceRule& rule) {
  for (std::size_t side : {0, 1}) pattern.sides[side].resize(rule.names[side].size(), pattern.sides[side].front());
  return pattern;
}

}  // namespace

std::optional<IndexPattern> pattern_of(const Correspondence& correspondence, const GroupKey& key) {
  const CorrespondenceRule& rule = correspondence.rules[key.rule];
  const bool is_parameter = is_parameter_kind(key.id.kind);
  std::vector<std::string> keys;
  if (is_parameter) {
    keys.push_back(key.id.name.empty() ? std::string(kWholeParameter) : key.id.name.get().substr(1));
  } else {
    keys.emplace_back(name_of(key.id.kind));
    if (key.id.kind == Kind::kGradInput) keys.emplace_back(name_of(Kind::kInput));
    if (key.id.kind == Kind::kGradOutput) keys.emplace_back(name_of(Kind::kOutput));
  }
  for (const std::string& one : keys) {
    const auto found = rule.patterns.find(one);
    if (found != rule.patterns.end()) {
      return found->second ? std::optional(same_for_all(*found->second, rule)) : std::nullopt;
    }
  }
  const bool one_to_one = rule.names[0].size() == 1 && rule.names[1].size() == 1;
  if (!one_to_one || !rule.own_axes(0).empty() || !rule.own_axes(1).empty()) return std::nullopt;
  const bool is_activation = !is_parameter && key.id.kind != Kind::kScalar;
  if (is_activation && correspondence.activations) return correspondence.activations;
  static const IndexPattern kSame = parse_index_pattern(kSameIndices);
  return kSame;
}

const SideNames::Known& SideNames::known(const TensorId& id) const {
  const auto [found, is_new] = known_.try_emplace({id.name, id.kind});
  if (is_new) found->second = find_known(id);
  return found->second;
}

std::vector<Claim> SideNames::claims(const TensorId& id) const {
  std::vector<Claim> claims = known(id).claims;
  for (Claim& claim : claims) {
    claim.key.id.iteration = id.iteration;
    claim.key.id.microbatch = id.microbatch;
    claim.key.id.pass = id.pass;
  }
  return claims;
}

bool SideNames::goes_by_name(const TensorId& id) const { return id.kind == Kind::kScalar && !known(id).is_spoken_of; }

SideNames::Known SideNames::find_known(const TensorId& id) const {
  Known known;
  const TensorName name(id.name);
  const bool is_parameter = is_parameter_kind(id.kind);
  const std::string_view owner = owner_of(name.path);
  known.is_spoken_of = std::any_of(
      correspondence_.none.begin(), correspondence_.none.end(),
      [&](const NamePattern& none) { return none.match(name.path) || (is_parameter && none.match(owner)); });
  if (known.is_spoken_of) return known;
  for (std::size_t i = 0; i < correspondence_.rules.size(); ++i) {
    const CorrespondenceRule& rule = correspondence_.rules[i];
    for (std::size_t k = 0; k < rule.names[side_].size(); ++k) {
      const NamePattern& pattern = rule.names[side_][k];
      const bool is_every_name = pattern.is_every_name();
      if (!is_parameter && !is_every_name &&
          name.member != (pattern.member().empty() ? first_members_.of(name.path, id.kind) : pattern.member())) {
        continue;
      }
      if (!pattern.call().empty() && pattern.call() != name.call) continue;
      Claim claim{{i, {}, id}, {k, {}}};
      claim.key.id.chunk = 0;
      claim.key.id.name = is_parameter || !pattern.call().empty() ? "" : std::string(name.call);
      const std::string whole = std::string(name.path) + std::string(is_every_name ? name.member : "");
      std::optional<Captures> captures = pattern.match(whole);
      if (!captures && is_parameter) {
        captures = pattern.match(owner);
        claim.key.id.name = fmt::format(".{}", last_component(name.path));
      }
      if (!captures || !divide(*captures, rule.own_axes(side_), claim.key, claim.place)) continue;
      known.is_spoken_of = true;
      if (pattern_of(correspondence_, claim.key)) known.claims.push_back(std::move(claim));
    }
  }
  return known;
}

std::string SideNames::name_of(const GroupKey& key, const PatternTensor& place) const {
  const NamePattern& pattern = correspondence_.rules[key.rule].names[side_][place.tensor];
  Captures captures = key.captures;
  for (const auto& [axis, value] : place.fixed) captures[axis] = std::to_string(value);
  const std::string path = pattern.path_with(captures);
  if (is_parameter_kind(key.id.kind)) {
    return key.id.name.empty() ? path : parameter_of(path, std::string_view(key.id.name).substr(1));
  }
  if (pattern.is_every_name()) return path + key.id.name.get();
  const std::string member = pattern.member().empty() ? first_members_.of(path, key.id.kind) : pattern.member();
  return path + member + (pattern.call().empty() ? key.id.name.get() : pattern.call());
}

void add_to_groups(const SideNames& names, const Alignment& alignment, CounterpartGroups& groups) {
  for (const auto& [id, tensor] : alignment.tensors) {
    for (const Claim& claim : names.claims(id)) {
      groups[claim.key].sides[names.side()].emplace(std::pair(claim.place.tensor, claim.place.fixed), id);
    }
  }
}

}  // namespace ttrace
