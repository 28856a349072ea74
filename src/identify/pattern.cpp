#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/annotation.h"
#include "base/tensor_name.h"

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

std::vector<std::string_view> split_at_dots(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size(); begin += parts.back().size() + 1) {
    parts.push_back(text.substr(begin, text.find('.', begin) - begin));
  }
  return parts;
}

// Matches a pattern of single elements, and of wildcards that stand for any number of them. Of the wildcards met, only
// the last one is ever given more: the time is at most the product of the two lengths, while trying all of them takes
// time that grows exponentially with their number.
template <class IsWildcard, class Fits>
bool matches_sequence(std::size_t pattern, std::size_t name, const IsWildcard& is_wildcard, const Fits& fits) {
  std::size_t p = 0, n = 0, after = pattern + 1, taken = 0;  // `after` the last wildcard, which has taken up to `taken`
  while (n < name) {
    if (p < pattern && is_wildcard(p)) {
      after = ++p;
      taken = n;
    } else if (p < pattern && fits(p, n)) {
      ++p;
      ++n;
    } else if (after <= pattern) {
      p = after;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern && is_wildcard(p)) ++p;
  return p == pattern;
}

// Where the bracket expression that begins at `at` ends; right behind its '[', which then stands for itself, where it
// does not.
std::size_t end_of_brackets(std::string_view pattern, std::size_t at) {
  const std::size_t first = at + 1 + (pattern.substr(at + 1, 1).find_first_of("!^") == 0 ? 1 : 0);
  for (std::size_t i = first; i < pattern.size(); ++i) {
    if (pattern[i] == ']' && i > first) return i + 1;  // one that comes first stands for itself
    if (pattern[i] == '\\') ++i;
    if (pattern.substr(i, 2) == "[:") i = std::min(pattern.find(":]", i + 2), pattern.size() - 2) + 1;
  }
  return at + 1;
}

// What fits one character of a name, `*` apart: a character, an escaped one, `?` or `[..]`.
std::vector<std::string> single_characters(std::string_view pattern) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < pattern.size(); i += parts.back().size()) {
    std::size_t length = pattern[i] == '\\' && i + 1 < pattern.size() ? 2 : 1;
    if (pattern[i] == '[') length = end_of_brackets(pattern, i) - i;
    parts.emplace_back(pattern.substr(i, length));
  }
  return parts;
}

// A component of a pattern and one of a name, as fnmatch has it.
bool matches_component(std::string_view pattern, std::string_view name) {
  if (!has_wildcard(pattern) && pattern.find('\\') == pattern.npos) return pattern == name;
  const std::vector<std::string> parts = single_characters(pattern);
  return matches_sequence(
      parts.size(), name.size(), [&](std::size_t p) { return parts[p] == "*"; },
      [&](std::size_t p, std::size_t n) {
        const char text[] = {name[n], '\0'};
        if (parts[p].size() == 1) return parts[p][0] == '?' || parts[p][0] == name[n];
        return fnmatch(parts[p].c_str(), text, 0) == 0;
      });
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
  // Each component of the pattern speaks of one of the name, `**` of any number, and so many may come before the first.
  std::vector<std::string_view> parts = split_at_dots(pattern);
  parts.insert(parts.begin(), "**");
  const std::vector<std::string_view> names = split_at_dots(text);
  return matches_sequence(
      parts.size(), names.size(), [&](std::size_t p) { return parts[p] == "**"; },
      [&](std::size_t p, std::size_t n) { return matches_component(parts[p], names[n]); });
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
