#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "ttrace/annotation.h"
#include "ttrace/tensor_name.h"

namespace ttrace {
namespace {

bool has_wildcard(std::string_view pattern) { return pattern.find_first_of("*?[") != pattern.npos; }

// The name without the parts that the pattern does not speak of: `attn:1#2` is `attn` to a pattern
// without ':' and '#'.
std::string visible(std::string_view pattern, std::string_view name) {
  const TensorName parts(name);
  std::string text(parts.path);
  if (pattern.find(':') != pattern.npos) text += parts.member;
  if (pattern.find('#') != pattern.npos) text += parts.call;
  return text;
}

// Characters outside `*`, `?` and `[..]`.
std::size_t literal_characters(std::string_view pattern) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '[') {
      // A ']' that comes first stands for itself.
      const std::size_t end = pattern.find(']', i + 2);
      if (end != pattern.npos) i = end;
    } else if (pattern[i] != '*' && pattern[i] != '?') {
      ++count;
    }
  }
  return count;
}

// Each component of the pattern speaks of one of the name, `**` of any number.
bool matches_all(std::span<const std::string> pattern, std::span<const std::string> name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == "**") {
    return matches_all(pattern.subspan(1), name) || (!name.empty() && matches_all(pattern, name.subspan(1)));
  }
  return !name.empty() && fnmatch(pattern[0].c_str(), name[0].c_str(), 0) == 0 &&
         matches_all(pattern.subspan(1), name.subspan(1));
}

std::pair<bool, std::size_t> specificity(const AnnotationRule& rule) {
  return {!has_wildcard(rule.pattern), literal_characters(rule.pattern)};
}

// 2 when the rule names the kind, 1 when the kind follows what it names, 0 when it says nothing of it.
int says(const AnnotationRule& rule, Kind kind) {
  if (!rule.kind) return is_parameter_kind(kind) ? 1 : 0;
  if (*rule.kind == kind) return 2;
  const bool follows = (kind == Kind::kGradOutput && *rule.kind == Kind::kOutput) ||
                       (kind == Kind::kGradInput && *rule.kind == Kind::kInput);
  return follows ? 1 : 0;
}

// Of two rules that fit a name and speak of the kind, `later` being the later one.
bool goes_before(const AnnotationRule& later, const AnnotationRule& earlier, Kind kind) {
  if (later.pattern == earlier.pattern) return says(later, kind) >= says(earlier, kind);
  return specificity(later) >= specificity(earlier);
}

}  // namespace

std::string to_string(const SourceLine& source) {
  return fmt::format("{}:{}", source.file.empty() ? "annotations" : source.file, source.line);
}

bool is_all_wildcards(std::string_view pattern) {
  std::string rest(pattern);
  std::erase(rest, '.');
  return has_wildcard(rest) && literal_characters(rest) == 0;
}

bool matches(std::string_view pattern, std::string_view name) {
  const std::string text = visible(pattern, name);
  if (!has_wildcard(pattern)) {
    if (!text.ends_with(pattern)) return false;
    return text.size() == pattern.size() || text[text.size() - pattern.size() - 1] == '.';
  }
  const std::vector<std::string> pattern_parts = components_of(pattern), name_parts = components_of(text);
  for (std::size_t begin = 0; begin < name_parts.size(); ++begin) {
    if (matches_all(pattern_parts, std::span(name_parts).subspan(begin))) return true;
  }
  return false;
}

const AnnotationRule* rule_for(const Annotations& annotations, Kind kind, std::string_view name) {
  const AnnotationRule* best = nullptr;
  for (const AnnotationRule& rule : annotations.rules) {
    if (says(rule, kind) == 0 || !matches(rule.pattern, name)) continue;
    if (best == nullptr || goes_before(rule, *best, kind)) best = &rule;
  }
  return best;
}

std::vector<const AnnotationRule*> contenders(const Annotations& annotations, Kind kind, std::string_view name) {
  std::vector<const AnnotationRule*> found;
  const AnnotationRule* best = rule_for(annotations, kind, name);
  for (const AnnotationRule& rule : annotations.rules) {
    if (says(rule, kind) == 0 || !matches(rule.pattern, name) || rule.pattern == best->pattern) continue;
    if (specificity(rule) == specificity(*best)) found.push_back(&rule);
  }
  return found;
}

std::string where(const AnnotationRule& rule, int line) {
  const std::string kind = rule.kind ? fmt::format(": {}", name_of(*rule.kind)) : "";
  return fmt::format("{}: '{}'{}", to_string({rule.source.file, line}), rule.pattern, kind);
}

}  // namespace ttrace
