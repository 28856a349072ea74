// Parameters of one name in modules of their own are said of the modules, whose inputs and outputs follow.
#include "annotate/parameter_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

class RuleMaker {
 public:
  RuleMaker(const AlignedTrace& reference, const AlignedTrace& candidate, const ParameterMatches& matches,
            std::optional<Dtype> dtype)
      : matches_(matches), dtype_(dtype) {
    for (std::size_t side : {0, 1}) {
      const Alignment& alignment = (side == 0 ? reference : candidate).alignment;
      for (const LogicalTensor* tensor : initial_parameters_of(alignment)) {
        found_.parameters[side][tensor->id.name] = tensor;
      }
    }
  }

  ParameterRules run() {
    for (std::size_t m = 0; m < matches_.matches.size(); ++m) add_parameters(m);
    for (Counterparts& one : found_.rules) add_other_parameters(one);
    return std::move(found_);
  }

 private:
  void add_parameters(std::size_t index) {
    const ParameterMatch& match = matches_.matches[index];
    std::set<std::string> last, owners[2];
    bool is_numbered = false;
    for (std::size_t side : {0, 1}) {
      for (const std::string& name : match.names[side]) {
        last.emplace(last_component(name));
        owners[side].emplace(owner_of(name));
        is_numbered = is_numbered || name.find("{e}") != name.npos;
      }
      const PlacedTensors& tensors = side == 0 ? match.tensors.reference : match.tensors.candidate;
      for (const auto& [place, tensor] : tensors) found_.match_of[side][tensor->id.name] = index;
    }
    const bool by_module = last.size() == 1 && !is_numbered && !owners[0].contains(std::string(kRootModule)) &&
                           !owners[1].contains(std::string(kRootModule)) && owners[0].size() == match.names[0].size() &&
                           owners[1].size() == match.names[1].size();
    const bool one_to_one = match.names[0].size() == 1 && match.names[1].size() == 1;
    Counterparts* rule = nullptr;
    if (by_module) {
      std::vector<std::string> names[2];
      for (std::size_t side : {0, 1}) {
        for (const std::string& name : match.names[side]) names[side].emplace_back(owner_of(name));
      }
      for (Counterparts& other : found_.rules) {
        if (other.names[0] == names[0] && other.names[1] == names[1]) rule = &other;
      }
      if (rule == nullptr) rule = &add_rule(names[0], names[1]);
      if (!match.rows[0].empty()) found_.rows.emplace(names[0], &match);
      for (std::size_t side : {0, 1}) found_.owners[side].insert(names[side].begin(), names[side].end());
    } else {
      rule = &add_rule(match.names[0], match.names[1]);
    }
    const std::string key = by_module ? *last.begin() : "param";
    if (match.pattern != "same" || !one_to_one || is_numbered) rule->patterns[key] = match.pattern;
    if (!match.is_predicted) rule->equal.insert(by_module ? key : "values");
    rule->sizes.insert(match.sizes.begin(), match.sizes.end());
    rule->order = std::min(rule->order, match.tensors.reference.front().second->order);
    if (!match.remark.empty()) rule->remarks.push_back(match.remark);
  }

  Counterparts& add_rule(std::vector<std::string> reference, std::vector<std::string> candidate) {
    Counterparts& rule = found_.rules.emplace_back();
    rule.names[0] = std::move(reference);
    rule.names[1] = std::move(candidate);
    return rule;
  }

  // Adds those that values alone did not tell: biases of zeros, parts of fused biases. They follow the weight's rows.
  void add_other_parameters(Counterparts& rule) {
    const auto weight = found_.rows.find(rule.names[0]);
    if (weight == found_.rows.end()) return;
    std::set<std::string> others;
    for (const auto& [name, tensor] : found_.parameters[0]) {
      if (owner_of(name) == rule.names[0].front() && !found_.match_of[0].contains(name))
        others.emplace(last_component(name));
    }
    for (const std::string& other : others) {
      PatternSides sides;
      bool all = true;
      for (std::size_t side : {0, 1}) {
        PlacedTensors& tensors = side == 0 ? sides.reference : sides.candidate;
        for (std::size_t k = 0; k < rule.names[side].size(); ++k) {
          const auto found = found_.parameters[side].find(parameter_of(rule.names[side][k], other));
          all = all && found != found_.parameters[side].end() && found->second->shape.size() == 1;
          if (all) tensors.emplace_back(PatternTensor{k, {}}, found->second);
        }
      }
      if (!all) continue;
      const auto& rows = weight->second->rows;
      const std::string pattern = fmt::format("{} -> {}", fmt::join(rows[0], ", "), fmt::join(rows[1], ", "));
      const bool is_equal = distance_by(pattern, rule.sizes, sides, dtype_) == 0.0;
      const bool tells_nothing = std::all_of(sides.reference.begin(), sides.reference.end(),
                                             [](const auto& item) { return is_constant(*item.second); });
      if (!is_equal && !tells_nothing) continue;
      if (rows[0] != std::vector<std::string>{"..."}) rule.patterns[other] = pattern;
      if (is_equal) rule.equal.insert(other);
      if (!is_equal) rule.remarks.push_back(fmt::format("{}: as its weight, values tell nothing", other));
      for (std::size_t side : {0, 1}) {
        for (const auto& [place, tensor] : side == 0 ? sides.reference : sides.candidate) {
          found_.named[side].insert(tensor->id.name);
        }
      }
    }
  }

  const ParameterMatches& matches_;
  std::optional<Dtype> dtype_;
  ParameterRules found_;
};

}  // namespace

ParameterRules rules_of_parameters(const AlignedTrace& reference, const AlignedTrace& candidate,
                                   const ParameterMatches& matches, std::optional<Dtype> dtype) {
  return RuleMaker(reference, candidate, matches, dtype).run();
}

std::set<std::string> lone_parameters(const ParameterRules& of, const std::vector<Counterparts>& rules,
                                      std::size_t side) {
  std::set<std::string> lone;
  for (const auto& [name, tensor] : of.parameters[side]) {
    if (of.match_of[side].contains(name) || of.named[side].contains(name)) continue;
    const std::string owner(owner_of(name)), last(last_component(name));
    const bool follows = std::any_of(rules.begin(), rules.end(), [&](const Counterparts& rule) {
      if (rule.names[0].size() != 1 || rule.names[1].size() != 1 || rule.names[side][0] != owner) return false;
      return of.parameters[1 - side].contains(parameter_of(rule.names[1 - side][0], last));
    });
    if (!follows) lone.insert(name);
  }
  return lone;
}

}  // namespace ttrace
