// Writes a draft as an annotation file.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ttrace/annotate/propose.h"

namespace ttrace {
namespace {

std::string yaml_key(const std::string& pattern) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_.*():-").find(c) != std::string_view::npos;
  };
  const bool begins_plainly = pattern[0] != '*' && pattern[0] != ':' && pattern[0] != '-';
  if (begins_plainly && pattern.back() != ':' && std::all_of(pattern.begin(), pattern.end(), plain)) return pattern;
  std::string text = "'";
  for (const char c : pattern) text += c == '\'' ? std::string("''") : std::string(1, c);
  return text + "'";
}

std::string confidence_comment(const DraftLine& line) {
  return fmt::format("  # {}: {}", line.certain ? "certain" : "guess", printable(line.why));
}

std::string rule_yaml(const DraftRule& rule) {
  const std::string head = rule.kind ? fmt::format("  {}:", name_of(*rule.kind)) : "";
  if (rule.lines.empty()) {
    return fmt::format("  # {}: {}\n", rule.kind ? name_of(*rule.kind) : "the parameter", printable(rule.remark));
  }
  if (rule.kind && rule.lines.size() == 1 && rule.lines[0].text.starts_with('{')) {
    return fmt::format("{} {}{}\n", head, rule.lines[0].text, confidence_comment(rule.lines[0]));
  }
  std::string text = rule.kind ? head + "\n" : "";
  for (const DraftLine& line : rule.lines) {
    text += fmt::format("  {}{}{}\n", rule.kind ? "  " : "", line.text, confidence_comment(line));
  }
  return text;
}

// Writes the block `parallelism:`, or comments where `given` has one: YAML takes it only once, so that a person must
// add to it.
std::string parallelism_yaml(const Draft& draft, const std::string& given) {
  if (draft.parallelism.empty()) return "";
  const bool has_one = given.starts_with("parallelism:") || given.find("\nparallelism:") != given.npos;
  std::string text = has_one ? "# Lacking in parallelism, above:\n" : "parallelism:\n";
  for (const DraftLine& line : draft.parallelism) {
    text += fmt::format("{}  {}{}\n", has_one ? "#" : "", line.text, confidence_comment(line));
  }
  return text;
}

}  // namespace

std::string to_yaml(const Draft& draft, const std::string& given) {
  std::string text = given;
  if (!given.empty()) text += given.back() == '\n' ? "\n" : "\n\n";
  text += "# Drafted by `ttrace annotate` (" + summary_of(draft) + ").\n";
  text += "# Read what is called a guess: what was measured is what a program does, not what it should do.\n";
  text += parallelism_yaml(draft, given);
  for (std::size_t i = 0; i < draft.rules.size();) {
    std::string body;
    bool says_something = false;
    const std::string& pattern = draft.rules[i].pattern;
    for (; i < draft.rules.size() && draft.rules[i].pattern == pattern; ++i) {
      body += rule_yaml(draft.rules[i]);
      says_something = says_something || !draft.rules[i].lines.empty();
    }
    text += fmt::format("{}{}:\n{}", says_something ? "" : "# ", yaml_key(pattern), body);
  }
  return text;
}

std::string summary_of(const Draft& draft) {
  std::size_t certain = 0, guessed = 0, remarks = 0;
  for (const DraftRule& rule : draft.rules) {
    const bool sure = std::all_of(rule.lines.begin(), rule.lines.end(), [](const auto& line) { return line.certain; });
    ++(rule.lines.empty() ? remarks : sure ? certain : guessed);
  }
  return fmt::format("{} placement{}: {} certain, {} guessed; {} remark{}", certain + guessed,
                     certain + guessed == 1 ? "" : "s", certain, guessed, remarks, remarks == 1 ? "" : "s");
}

}  // namespace ttrace
