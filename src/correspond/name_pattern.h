// Patterns of tensors' names with captures, for two programs that name the same modules differently.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/trace.h"

namespace ttrace {

using Captures = std::map<std::string, std::string>;

// `decoder.layers.{i}.mlp`: `{i}` stands for characters without a dot, `{rest*}` for any, dots too. A module's name
// stands for its tensor; where it has several, for its first argument or result, and `module:member` for another. It
// stands for all calls of the module, and `module#1` for one. A parameter is named by its path, or by that of its
// module. `{name*}` alone stands for every tensor.
class NamePattern {
 public:
  // Throws PatternError.
  explicit NamePattern(std::string_view text);

  const std::string& text() const { return text_; }
  const std::string& member() const { return member_; }  // with its ':'; empty where there is none
  const std::string& call() const { return call_; }      // with its '#'; empty where there is none
  std::set<std::string> captures() const;
  bool is_every_name() const { return tokens_.size() == 1 && tokens_[0].takes_dots && member_.empty(); }

  // The path of a module or parameter that fits.
  std::optional<Captures> match(std::string_view path) const;
  // The path with these captures, of which all must be there.
  std::string path_with(const Captures& captures) const;

 private:
  struct Token {
    std::string text;  // literal, or a capture's name
    bool is_capture = false, takes_dots = false;
  };
  bool match(std::size_t token, std::string_view rest, Captures& captures) const;

  std::string text_, member_, call_;
  std::vector<Token> tokens_;
};

// Replaces `a.{b,c}.d` by `a.b.d` and `a.c.d`, as a shell does. Throws PatternError.
std::vector<std::string> expand_braces(std::string_view text);

// Says which tensor a module's name stands for, by what was recorded of it.
class FirstMembers {
 public:
  explicit FirstMembers(const Trace& trace);

  // The member, with its ':', of the tensor that the module stands for. Gradients are those of inputs and outputs.
  std::string of(std::string_view module, Kind kind) const;

 private:
  std::map<std::pair<std::string, Kind>, std::string> members_;  // by the module's name without numbers
};

}  // namespace ttrace
