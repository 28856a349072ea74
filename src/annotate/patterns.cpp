#include "annotate/patterns.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "base/tensor_name.h"
#include "base/trace.h"

namespace ttrace {
namespace {

bool says_the_same(const DraftRule& a, const DraftRule& b) {
  return a.remarks.empty() && b.remarks.empty() &&
         std::equal(a.lines.begin(), a.lines.end(), b.lines.begin(), b.lines.end(),
                    [](const DraftLine& x, const DraftLine& y) {
                      return x.text == y.text && x.counts == y.counts && (x.certain || !y.certain);
                    });
}

// Returns the recorded names by their patterns. A shorter pattern is tried on all of them: `1`, the second layer, is a
// suffix of `layers.1.experts.1`, and none of `layers.1.experts.0`.
std::map<std::string, std::set<std::string>> names_by_pattern(std::span<const Trace* const> traces) {
  std::set<std::string> names;
  for (const Trace* trace : traces) {
    for (const RankTrace& rank : trace->ranks) {
      for (const Entry& entry : rank.entries) {
        const TensorName name(entry.id.name);
        names.insert(name.path.empty() ? entry.id.name.get() : fmt::format("{}{}", name.path, name.member));
      }
    }
  }
  std::map<std::string, std::set<std::string>> by_pattern;
  for (const std::string& name : names) by_pattern[pattern_of(name)].insert(name);
  return by_pattern;
}

struct Shortener {
  std::map<std::string, std::set<std::string>> names;  // by pattern
  std::set<std::string> taken;

  bool is_unambiguous(const std::string& suffix, const std::string& pattern) const {
    if (taken.contains(suffix)) return false;
    return std::all_of(names.begin(), names.end(), [&](const auto& item) {
      // A module's pattern may fit its members too: those that are placed otherwise have a longer pattern of their own.
      return TensorName(item.first).path == TensorName(pattern).path ||
             std::none_of(item.second.begin(), item.second.end(),
                          [&](const std::string& name) { return matches(suffix, name); });
    });
  }
};

std::string shortest_pattern(const Shortener& shortener, const std::string& pattern, bool is_parameter) {
  // A dot in the member, as in `model:batch.0`, is no place to cut.
  const std::string_view path = TensorName(pattern).path, member = std::string_view(pattern).substr(path.size());
  std::vector<std::string_view> suffixes = suffixes_of(path);
  std::reverse(suffixes.begin(), suffixes.end());
  for (std::size_t i = is_parameter && suffixes.size() > 1 ? 1 : 0; i < suffixes.size(); ++i) {
    const std::string suffix = fmt::format("{}{}", suffixes[i], member);
    if (!suffix.empty() && suffix[0] != '*' && shortener.is_unambiguous(suffix, pattern)) return suffix;
  }
  // No suffix is unambiguous. As a pattern with a wildcard, the name gives way to longer patterns for what else it
  // fits.
  return pattern.find('*') != pattern.npos ? pattern : fmt::format("[{}]{}", pattern.substr(0, 1), pattern.substr(1));
}

using Member = std::pair<std::string, std::optional<Kind>>;  // the module, and the kind

Member member_of(const DraftRule& rule) { return {std::string(TensorName(rule.pattern).path), rule.kind}; }

// Makes one rule of those about members of a module that say the same, unless other members are `whole`.
void merge_members(std::vector<DraftRule>& rules, const std::vector<DraftRule>& whole) {
  std::set<Member> apart;
  for (const DraftRule& rule : whole) apart.insert(member_of(rule));
  std::map<Member, const DraftRule*> first;
  std::set<const DraftRule*> merged;
  std::vector<DraftRule*> renamed;
  for (DraftRule& rule : rules) {
    if ((rule.kind && is_parameter_kind(*rule.kind)) || member_of(rule).first.empty()) continue;  // no module
    const auto [found, is_first] = first.try_emplace(member_of(rule), &rule);
    const bool may_speak_of_all = !apart.contains(member_of(rule)) || TensorName(found->second->pattern).member.empty();
    if (may_speak_of_all && is_first) renamed.push_back(&rule);
    if (may_speak_of_all && !is_first && says_the_same(*found->second, rule)) merged.insert(&rule);
  }
  for (DraftRule* rule : renamed) rule->pattern = std::string(TensorName(rule->pattern).path);
  std::vector<DraftRule> kept;
  for (DraftRule& rule : rules) {
    if (!merged.contains(&rule)) kept.push_back(std::move(rule));
  }
  rules = std::move(kept);
}

void shorten_patterns(const Shortener& shortener, std::vector<DraftRule>& rules) {
  for (DraftRule& rule : rules) {
    const bool is_parameter = !rule.kind || is_parameter_kind(*rule.kind);
    rule.pattern = shortest_pattern(shortener, rule.pattern, is_parameter);
  }
}

// A recorded name of the other rule that the one's pattern fits as well; empty where there is none.
std::string fitted_name(const DraftRule& rule, const DraftRule& other, const Shortener& shortener) {
  const auto names = shortener.names.find(other.pattern);
  if (names == shortener.names.end() || rule.kind != other.kind) return "";
  const auto fits = std::find_if(names->second.begin(), names->second.end(),
                                 [&](const std::string& name) { return matches(rule.pattern, name); });
  return fits == names->second.end() ? "" : *fits;
}

// Makes comments of the lines that would place what nothing tells how to place: `[1]`, the second layer, fits
// `2.experts.1`, one rank's own expert, too. No pattern fits the layer alone, which lies as its shape says without one.
void withdraw_what_fits_others(const std::vector<DraftRule>& undetermined, const Shortener& shortener,
                               std::vector<DraftRule>& rules) {
  for (DraftRule& rule : rules) {
    for (const DraftRule& other : undetermined) {
      const std::string name = fitted_name(rule, other, shortener);
      if (rule.lines.empty() || name.empty()) continue;
      for (DraftLine& line : rule.lines) {
        line.counts = false;
        line.why += fmt::format("; its pattern fits {}, too, which nothing places", name);
      }
      break;
    }
  }
}

// The annotations that the lines of the rules make, as far as it matters which rule speaks of a tensor.
Annotations annotations_of(const std::vector<DraftRule>& rules) {
  Annotations annotations;
  for (const DraftRule& rule : rules) {
    const bool counts = std::any_of(rule.lines.begin(), rule.lines.end(), [](const auto& line) { return line.counts; });
    if (counts || rule.whole) annotations.rules.push_back({rule.pattern, rule.kind, {}, {}});
  }
  return annotations;
}

// Returns where in `rules` to insert one about the tensors of `whole`: behind the one that counts and would speak of
// them. Nothing where none does.
std::optional<std::size_t> place_for(const DraftRule& whole, const Shortener& shortener,
                                     const std::vector<DraftRule>& rules) {
  const auto name = shortener.names.find(whole.pattern);
  if (name == shortener.names.end()) return std::nullopt;
  const Annotations annotations = annotations_of(rules);
  const AnnotationRule* rule = rule_for(annotations, whole.kind.value_or(Kind::kParam), *name->second.begin());
  if (rule == nullptr) return std::nullopt;
  const auto last = std::find_if(rules.rbegin(), rules.rend(),
                                 [&](const DraftRule& other) { return other.pattern == rule->pattern; });
  return static_cast<std::size_t>(rules.rend() - last);
}

void group_by_pattern(std::vector<DraftRule>& rules) {
  std::map<std::string, std::size_t> first;
  for (const DraftRule& rule : rules) first.try_emplace(rule.pattern, first.size());
  std::stable_sort(rules.begin(), rules.end(),
                   [&](const DraftRule& a, const DraftRule& b) { return first.at(a.pattern) < first.at(b.pattern); });
}

}  // namespace

void choose_patterns(std::span<const Trace* const> traces, const Annotations& given, Draft& draft) {
  Shortener shortener{names_by_pattern(traces), {"parallelism"}};
  for (const AnnotationRule& rule : given.rules) shortener.taken.insert(rule.pattern);
  std::vector<DraftRule> whole;
  for (const DraftRule& rule : draft.rules) {
    if (rule.whole) whole.push_back(rule);
  }
  std::erase_if(draft.rules, [](const DraftRule& rule) { return rule.whole; });
  merge_members(draft.rules, whole);
  std::vector<DraftRule>& rules = draft.rules;
  std::vector<DraftRule> undetermined;
  std::copy_if(rules.begin(), rules.end(), std::back_inserter(undetermined),
               [](const DraftRule& rule) { return rule.lines.empty(); });
  shorten_patterns(shortener, rules);
  withdraw_what_fits_others(undetermined, shortener, rules);
  for (DraftRule& rule : whole) {
    const auto place = place_for(rule, shortener, rules);
    rule.whole = place.has_value();
    if (!rule.whole) ++draft.without_rule;
    if (!rule.whole && rule.remarks.empty()) continue;
    std::vector<DraftRule> one = {rule};
    shorten_patterns(shortener, one);
    rules.insert(rules.begin() + static_cast<std::ptrdiff_t>(place.value_or(rules.size())), std::move(one[0]));
  }
  group_by_pattern(rules);
}

}  // namespace ttrace
