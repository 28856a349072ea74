#include "correspond/name_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/tensor_name.h"
#include "correspond/index_pattern.h"

namespace ttrace {
namespace {

constexpr std::size_t kMostNames = 64;  // of one pattern; a file is not trusted

bool is_capture_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
}

// Gradients have the members of what they are gradients of.
Kind forward_kind(Kind kind) {
  if (kind == Kind::kGradOutput) return Kind::kOutput;
  return kind == Kind::kGradInput ? Kind::kInput : kind;
}

}  // namespace

NamePattern::NamePattern(std::string_view text) : text_(text) {
  const TensorName name(text_);
  member_ = name.member;
  call_ = name.call;
  std::set<std::string> seen;
  for (std::string_view rest = name.path; !rest.empty();) {
    const std::size_t open = rest.find('{');
    if (open > 0) {
      tokens_.push_back({std::string(rest.substr(0, open)), false, false});
      rest.remove_prefix(std::min(open, rest.size()));
      continue;
    }
    const std::size_t close = rest.find('}');
    std::string_view capture = rest.substr(1, close == rest.npos ? rest.npos : close - 1);
    const bool takes_dots = capture.ends_with('*');
    if (takes_dots) capture.remove_suffix(1);
    if (close == rest.npos || !is_capture_name(capture) || !seen.emplace(capture).second) {
      throw PatternError(fmt::format("'{}': expected captures as in layers.{{i}}, each once", text));
    }
    tokens_.push_back({std::string(capture), true, takes_dots});
    rest.remove_prefix(close + 1);
  }
  if (tokens_.empty()) throw PatternError(fmt::format("'{}': expected the name of a module or a parameter", text));
}

std::set<std::string> NamePattern::captures() const {
  std::set<std::string> names;
  for (const Token& token : tokens_) {
    if (token.is_capture) names.insert(token.text);
  }
  return names;
}

bool NamePattern::match(std::size_t token, std::string_view rest, Captures& captures) const {
  if (token == tokens_.size()) return rest.empty();
  const Token& next = tokens_[token];
  if (!next.is_capture) {
    return rest.starts_with(next.text) && match(token + 1, rest.substr(next.text.size()), captures);
  }
  for (std::size_t size = 1; size <= rest.size(); ++size) {
    if (!next.takes_dots && rest[size - 1] == '.') return false;
    if (!match(token + 1, rest.substr(size), captures)) continue;
    captures[next.text] = rest.substr(0, size);
    return true;
  }
  return false;
}

std::optional<Captures> NamePattern::match(std::string_view path) const {
  Captures captures;
  return match(0, path, captures) ? std::optional(captures) : std::nullopt;
}

std::string NamePattern::path_with(const Captures& captures) const {
  std::string path;
  for (const Token& token : tokens_) path += token.is_capture ? captures.at(token.text) : token.text;
  return path;
}

std::vector<std::string> expand_braces(std::string_view text) {
  std::vector<std::string> done, open = {std::string(text)};
  while (!open.empty()) {
    const std::string next = std::move(open.back());
    open.pop_back();
    std::size_t begin = next.find('{'), end = begin;
    for (; begin != next.npos; begin = next.find('{', begin + 1)) {
      end = next.find('}', begin);
      if (end != next.npos && next.find(',', begin) < end) break;
    }
    if (begin == next.npos) {
      done.push_back(next);
      continue;
    }
    std::vector<std::string> choices;
    for (std::size_t at = begin + 1; at <= end;) {
      const std::size_t stop = std::min(next.find(',', at), end);
      choices.push_back(next.substr(0, begin) + next.substr(at, stop - at) + next.substr(end + 1));
      at = stop + 1;
    }
    open.insert(open.end(), choices.rbegin(), choices.rend());
    if (open.size() + done.size() > kMostNames) {
      throw PatternError(fmt::format("'{}': stands for more than {} names", text, kMostNames));
    }
  }
  return done;
}

FirstMembers::FirstMembers(const Trace& trace) {
  for (const RankTrace& rank : trace.ranks) {
    for (const Entry& entry : rank.entries) {
      if (entry.id.kind != Kind::kInput && entry.id.kind != Kind::kOutput) continue;
      const TensorName name(entry.id.name);
      const auto [first, is_new] =
          members_.try_emplace({without_numbers(name.path), entry.id.kind}, std::string(name.member));
      if (name.member.empty()) first->second.clear();
    }
  }
}

std::string FirstMembers::of(std::string_view module, Kind kind) const {
  const auto found = members_.find({without_numbers(module), forward_kind(kind)});
  return found == members_.end() ? "" : found->second;
}

}  // namespace ttrace
