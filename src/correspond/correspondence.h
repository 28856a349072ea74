// Says what corresponds to what in two implementations of one model. annotations/correspondences/README.md has the
// schema for users; reading the file is src/files/correspondence_file.cpp.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/annotation.h"
#include "correspond/index_pattern.h"
#include "correspond/name_pattern.h"
#include "correspond/sizes.h"

namespace ttrace {

// Tensors of some names on one side are those of some names on the other.
struct CorrespondenceRule {
  std::array<std::vector<NamePattern>, 2> names;
  // Says what lies between the tensors, by what they are: `input` and `output` of a module (their gradients follow,
  // unless named themselves), its parameters by their own names, `param` of a parameter that the rule itself names.
  // Nothing: they do not correspond.
  std::map<std::string, std::optional<IndexPattern>> patterns;
  bool optional = false;  // where one side has none of them, the other's are tensors without a counterpart
  SourceLine source;

  // The axes that the names of one side number, and those of the other do not.
  std::set<std::string> own_axes(std::size_t side) const;
};

// Tells sizes of axes by a tensor's shape, as a number, or by the model's configuration.
struct SizeRule {
  std::string name;    // of an axis, with a `number` or a `config`; or a pattern of names, with a `shape`
  std::string config;  // the key of a model's config.json that says the number; empty: none
  std::int64_t number = 0;
  std::optional<NamePattern> tensor;
  TensorPattern shape;
  SourceLine source;
};

struct Correspondence {
  std::string path;
  std::array<std::string, 2> sides;  // what they are called, in messages
  std::vector<SizeRule> sizes;
  std::optional<IndexPattern> activations;  // where a rule says nothing of inputs and outputs
  std::vector<CorrespondenceRule> rules;
  std::vector<NamePattern> none;  // of modules and parameters that have no counterpart, whatever the rules say
};

}  // namespace ttrace
