// Writes a draft as an annotation file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "annotate/propose.h"
#include "text/yaml.h"

namespace ttrace {
namespace {

std::string key_of(const std::string& pattern) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_.*():-").find(c) != std::string_view::npos;
  };
  const bool begins_plainly = pattern[0] != '*' && pattern[0] != ':' && pattern[0] != '-';
  if (begins_plainly && pattern.back() != ':' && std::all_of(pattern.begin(), pattern.end(), plain)) return pattern;
  const auto printed = [](char c) { return c >= ' ' && c <= '~'; };
  if (!std::all_of(pattern.begin(), pattern.end(), printed)) return yaml_word(pattern);
  std::string text = "'";
  for (const char c : pattern) text += c == '\'' ? std::string("''") : std::string(1, c);
  return text + "'";
}

// A line of the file: of a guess that does not count, a comment that `check` can read.
std::string yaml_line(std::size_t indent, bool counts, const std::string& text) {
  return fmt::format("{:{}}{}{}\n", "", indent, counts ? "" : "#? ", text);
}

std::string with_reason(const DraftLine& line) {
  return fmt::format("{}  # {} {}", line.text, line.certain ? "certain" : "guess", printable(line.why));
}

bool any_counts(const std::vector<DraftLine>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const DraftLine& line) { return line.counts; });
}

std::string rule_yaml(const Draft& draft, const DraftRule& rule) {
  const std::string kind = rule.kind ? std::string(name_of(*rule.kind)) : "";
  std::string text;
  for (const std::string& remark : rule.remarks) {
    text += fmt::format("  # {}: {}\n", kind.empty() ? "the parameter" : kind, printable(remark));
  }
  if (rule.whole) {
    return text + (kind.empty() ? fmt::format("  {}: replicate\n", draft.known_axes[0])
                                : fmt::format("  {}: {{}}  # whole on every rank\n", kind));
  }
  if (rule.lines.empty()) return text;
  if (!kind.empty()) text += yaml_line(2, any_counts(rule.lines), kind + ":");
  for (const DraftLine& line : rule.lines) text += yaml_line(kind.empty() ? 2 : 4, line.counts, with_reason(line));
  return text;
}

// Writes the block `parallelism:`, or comments where `given` has one: YAML takes it only once, so that a person must
// add to it.
std::string parallelism_yaml(const Draft& draft, const std::string& given) {
  std::vector<DraftLine> lines = draft.parallelism;
  const bool has_rules = std::any_of(draft.rules.begin(), draft.rules.end(),
                                     [](const DraftRule& rule) { return rule.whole || any_counts(rule.lines); });
  std::string text;
  for (const std::string& remark : draft.remarks) text += fmt::format("# {}\n", printable(remark));
  if (lines.empty() && !has_rules) return text;
  const bool has_one = given.starts_with("parallelism:") || given.find("\nparallelism:") != given.npos;
  const std::string known = fmt::format("known_axes: [{}]  # along others, tensors lie as their shapes say",
                                        fmt::join(draft.known_axes, ", "));
  text += has_one ? "# Lacking in parallelism, above:\n" : yaml_line(0, has_rules || any_counts(lines), "parallelism:");
  const std::string comment = has_one ? "#" : "";
  if (has_rules) text += comment + yaml_line(2, true, known);
  for (const DraftLine& line : lines) text += comment + yaml_line(2, line.counts || has_one, with_reason(line));
  return text;
}

}  // namespace

std::string to_yaml(const Draft& draft, const std::string& given) {
  std::string text = given;
  if (!given.empty()) text += given.back() == '\n' ? "\n" : "\n\n";
  text += "# Drafted by `ttrace annotate` (" + summary_of(draft) + ").\n";
  for (const std::string& candidate : draft.candidates) text += fmt::format("# Seen on {}.\n", printable(candidate));
  text +=
      "# Read what is called a guess: what was measured is what a program does, not what it should do. Lines that "
      "begin\n";
  text +=
      "# with #? do not count: they would excuse a sum that was forgotten or made twice, "
      "or nothing that was seen\n";
  text += "# fits them. Where the program means it so, take the #? away.\n";
  text += parallelism_yaml(draft, given);
  for (std::size_t i = 0; i < draft.rules.size();) {
    std::string body;
    bool counts = false, says_something = false;
    const std::string& pattern = draft.rules[i].pattern;
    for (; i < draft.rules.size() && draft.rules[i].pattern == pattern; ++i) {
      const DraftRule& rule = draft.rules[i];
      body += rule_yaml(draft, rule);
      counts = counts || rule.whole || any_counts(rule.lines);
      says_something = says_something || !rule.lines.empty();
    }
    const std::string key = key_of(pattern) + ":";
    text += (counts || says_something ? yaml_line(0, counts, key) : fmt::format("# {}\n", key)) + body;
  }
  return text;
}

std::string summary_of(const Draft& draft) {
  std::size_t certain = 0, guessed = 0, remarks = draft.remarks.size();
  for (const DraftRule& rule : draft.rules) {
    const bool sure = std::all_of(rule.lines.begin(), rule.lines.end(), [](const auto& line) { return line.certain; });
    if (!rule.lines.empty() || rule.whole) ++(sure ? certain : guessed);
    remarks += rule.remarks.size();
  }
  return fmt::format("{} placement{}: {} certain, {} guessed; {} need{} no rule; {} remark{}", certain + guessed,
                     certain + guessed == 1 ? "" : "s", certain, guessed, draft.without_rule,
                     draft.without_rule == 1 ? "s" : "", remarks, remarks == 1 ? "" : "s");
}

}  // namespace ttrace
