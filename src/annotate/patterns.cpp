#include "annotate/patterns.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "ttrace/tensor_name.h"

namespace ttrace {
namespace {

bool says_the_same(const DraftRule& a, const DraftRule& b) {
  return a.remark.empty() && b.remark.empty() &&
         std::equal(
             a.lines.begin(), a.lines.end(), b.lines.begin(), b.lines.end(),
             [](const DraftLine& x, const DraftLine& y) { return x.text == y.text && (x.certain || !y.certain); });
}

// Picks one recorded name for each pattern: a shorter pattern is tried on it.
std::map<std::string, std::string> example_names(const Trace& trace) {
  std::map<std::string, std::string> names;
  for (const RankTrace& rank : trace.ranks) {
    for (const Entry& entry : rank.entries) names.try_emplace(pattern_of(entry.id.name), entry.id.name);
  }
  return names;
}

struct Shortener {
  std::map<std::string, std::string> names;  // by pattern
  std::set<std::string> taken;

  bool is_unambiguous(const std::string& suffix, const std::string& pattern) const {
    if (taken.contains(suffix)) return false;
    return std::all_of(names.begin(), names.end(), [&](const auto& item) {
      const auto& [other, name] = item;
      // A module's pattern may fit its members too: those that are placed otherwise have a longer pattern of their own.
      return !matches(suffix, name) || TensorName(other).path == TensorName(pattern).path;
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
    if (suffix[0] != '*' && shortener.is_unambiguous(suffix, pattern)) return suffix;
  }
  // No suffix is unambiguous. As a pattern with a wildcard, the name gives way to longer patterns for what else it
  // fits.
  return pattern.find('*') != pattern.npos ? pattern : fmt::format("[{}]{}", pattern.substr(0, 1), pattern.substr(1));
}

}  // namespace

void merge_members(std::vector<DraftRule>& rules) {
  std::map<std::pair<std::string, std::optional<Kind>>, const DraftRule*> first;
  std::set<const DraftRule*> merged;
  std::vector<DraftRule*> renamed;
  for (DraftRule& rule : rules) {
    if (rule.kind && is_parameter_kind(*rule.kind)) continue;
    const auto [found, is_first] = first.try_emplace({std::string(TensorName(rule.pattern).path), rule.kind}, &rule);
    if (is_first) {
      renamed.push_back(&rule);
    } else if (says_the_same(*found->second, rule)) {
      merged.insert(&rule);
    }
  }
  for (DraftRule* rule : renamed) rule->pattern = std::string(TensorName(rule->pattern).path);
  std::vector<DraftRule> kept;
  for (DraftRule& rule : rules) {
    if (!merged.contains(&rule)) kept.push_back(std::move(rule));
  }
  rules = std::move(kept);
}

void shorten_patterns(const Trace& trace, const Annotations& given, std::vector<DraftRule>& rules) {
  Shortener shortener{example_names(trace), {"parallelism"}};
  for (const AnnotationRule& rule : given.rules) shortener.taken.insert(rule.pattern);
  for (DraftRule& rule : rules) {
    const bool is_parameter = !rule.kind || is_parameter_kind(*rule.kind);
    rule.pattern = shortest_pattern(shortener, rule.pattern, is_parameter);
  }
}

}  // namespace ttrace
