// A module that holds parameters corresponds to the one that holds the same ones. Between several that do, such as a
// wrapper and what it wraps, and for modules without parameters, results decide: they must be near each other, by a
// pattern of dimensions, and nothing else may be. An error downstream of a bug is no reason to let a module go: what
// holds the same parameters stays, and the draft says how far its values are.
#include "annotate/module_counterparts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "annotate/activation_layouts.h"
#include "annotate/first_activations.h"
#include "annotate/parameter_rules.h"
#include "annotate/scalar_counterparts.h"
#include "base/tensor_name.h"

namespace ttrace {
namespace {

// Programs that compute the same differ by rounding: some 1e-6 in fp32, some 1e-2 in bfloat16. Tensors that have
// nothing to do with each other are 1.4 apart.
constexpr double kNearRounding = 0.1;
// A module without parameters has nothing but its values.
constexpr double kVeryNear = 0.01;

constexpr std::array kDirections = {Kind::kInput, Kind::kOutput};

Kind gradient_of(Kind kind) { return kind == Kind::kInput ? Kind::kGradInput : Kind::kGradOutput; }

bool is_integer(const LogicalTensor& tensor) { return !is_floating(tensor.dtype); }

bool same_numbers(const LogicalTensor& a, const LogicalTensor& b) {
  return element_count(a.shape) == element_count(b.shape) && is_integer(a) == is_integer(b);
}

class ModuleMatcher {
 public:
  ModuleMatcher(const AlignedTrace& reference, const AlignedTrace& candidate, const ParameterMatches& parameters,
                std::optional<Dtype> dtype)
      : of_parameters_(rules_of_parameters(reference, candidate, parameters, dtype)),
        scalars_(match_scalars(reference.alignment, candidate.alignment)),
        activations_{FirstActivations(reference), FirstActivations(candidate)} {
    result_.counterparts = of_parameters_.rules;
  }

  ModuleMatches run() {
    choose_activations();
    for (std::size_t i = 0; i < result_.counterparts.size(); ++i) add_activations(i);
    match_containers();
    match_by_values();
    for (Counterparts& one : scalars_.renamed) result_.counterparts.push_back(std::move(one));
    result_.scalars = std::move(scalars_.far);
    for (Counterparts& one : result_.counterparts) forbid_lone_kinds(one);
    list_lone();
    std::stable_sort(result_.counterparts.begin(), result_.counterparts.end(),
                     [](const Counterparts& a, const Counterparts& b) { return a.order < b.order; });
    return std::move(result_);
  }

 private:
  PatternSides tensors_of(const Counterparts& rule, Kind kind) const {
    PatternSides sides;
    for (std::size_t side : {0, 1}) {
      PlacedTensors& tensors = side == 0 ? sides.reference : sides.candidate;
      for (std::size_t k = 0; k < rule.names[side].size(); ++k) {
        const LogicalTensor* tensor = activations_[side].find(rule.names[side][k], kind);
        if (tensor != nullptr) tensors.emplace_back(PatternTensor{k, {}}, tensor);
      }
      if (tensors.size() != rule.names[side].size()) tensors.clear();
    }
    return sides;
  }

  // Returns what may lie between the inputs or outputs of a rule that its parameters gave.
  std::vector<std::string> hypotheses(const Counterparts& rule, Kind kind) const {
    const auto weight = of_parameters_.rows.find(rule.names[0]);
    const bool one_to_one = rule.names[0].size() == 1 && rule.names[1].size() == 1;
    const bool is_plain =
        weight == of_parameters_.rows.end() || weight->second->rows[0] == std::vector<std::string>{"..."};
    if (one_to_one && (is_plain || kind == Kind::kInput)) return activation_layouts();
    std::vector<std::string> last[2] = {{"c"}, {"c"}};
    if (kind == Kind::kOutput && !is_plain) {
      for (std::size_t side : {0, 1}) last[side] = weight->second->rows[side];
    }
    return layouts_ending_in(last[0], last[1]);
  }

  void choose_activations() {
    std::map<std::string, std::size_t> votes;
    for (const Counterparts& rule : result_.counterparts) {
      if (rule.names[0].size() != 1 || rule.names[1].size() != 1) continue;
      const PatternSides sides = tensors_of(rule, Kind::kOutput);
      if (sides.reference.empty() || is_integer(*sides.reference.front().second)) continue;
      const BestLayout best = best_of({"same", "b s ... -> s b ..."}, rule.sizes, sides);
      if (best.fits) ++votes[best.pattern];
    }
    result_.activations = votes["b s ... -> s b ..."] > votes["same"] ? "b s ... -> s b ..." : "same";
  }

  void add_activations(std::size_t index) {
    Counterparts& rule = result_.counterparts[index];
    const bool is_module = std::any_of(rule.names[0].begin(), rule.names[0].end(), [&](const std::string& name) {
      return of_parameters_.owners[0].contains(name);
    });
    if (!is_module) return;
    const bool one_to_one = rule.names[0].size() == 1 && rule.names[1].size() == 1;
    for (const Kind kind : kDirections) {
      const PatternSides sides = tensors_of(rule, kind);
      if (sides.reference.empty() || sides.candidate.empty()) continue;
      const BestLayout best = best_of(hypotheses(rule, kind), rule.sizes, sides);
      settle(rule, kind, sides, best, one_to_one);
    }
  }

  // Writes down what was found between inputs or outputs of a rule that holds anyway.
  void settle(Counterparts& rule, Kind kind, const PatternSides& sides, const BestLayout& best, bool one_to_one) {
    const std::string key(name_of(kind));
    if (!best.fits || (is_integer(*sides.reference.front().second) && best.distance != 0)) {
      rule.patterns[key] = "none";
      rule.remarks.push_back(fmt::format("{}: {}", key, best.fits ? "other integers" : "the shapes fit no pattern"));
      return;
    }
    const bool near = best.distance < kNearRounding;
    std::string pattern = best.pattern;
    if (!near && one_to_one && distance_by(result_.activations, rule.sizes, sides)) pattern = result_.activations;
    if (!one_to_one || pattern != result_.activations) rule.patterns[key] = pattern;
    (near ? rule.near : rule.far)[key] = {best.distance, best.otherwise};
    for (const auto& [place, tensor] : sides.reference) {
      rule.order = std::min(rule.order, tensor->order);
      used_[0].emplace(kind, tensor->id.name);
    }
    for (const auto& [place, tensor] : sides.candidate) used_[1].emplace(kind, tensor->id.name);
  }

  // Returns the modules of a side by what parameters are inside, with all of their parts.
  std::map<std::set<std::size_t>, std::vector<std::string>> containers(std::size_t side) const {
    std::map<std::size_t, std::set<std::string>> parts;
    for (const auto& [name, match] : of_parameters_.match_of[side]) parts[match].insert(name);
    std::map<std::string, std::map<std::size_t, std::size_t>> inside;
    for (const auto& [name, match] : of_parameters_.match_of[side]) {
      ++inside[std::string(kRootModule)][match];
      for (std::string_view module = owner_of(name); module != kRootModule; module = owner_of(module)) {
        ++inside[std::string(module)][match];
      }
    }
    std::map<std::set<std::size_t>, std::vector<std::string>> found;
    for (const auto& [module, matches] : inside) {
      if (!activations_[side].modules().contains(module) || of_parameters_.owners[side].contains(module)) continue;
      std::set<std::size_t> whole;
      for (const auto& [match, count] : matches) {
        if (parts.at(match).size() == count) whole.insert(match);
      }
      if (whole.size() == matches.size()) found[whole].push_back(module);
    }
    return found;
  }

  void match_containers() {
    const auto of_reference = containers(0), of_candidate = containers(1);
    for (const auto& [inside, modules] : of_reference) {
      const auto found = of_candidate.find(inside);
      if (found == of_candidate.end()) continue;
      std::set<std::string> taken;
      const bool is_only = modules.size() == 1 && found->second.size() == 1;
      for (const std::string& module : modules) {
        std::string best;
        double distance = is_only ? std::numeric_limits<double>::infinity() : kNearRounding;
        for (const std::string& other : found->second) {
          if (taken.contains(other)) continue;
          const double apart = distance_between(module, other);
          if (best.empty() && is_only) best = other;
          if (apart < distance) {
            best = other;
            distance = apart;
          }
        }
        if (best.empty()) continue;
        taken.insert(best);
        add_module(module, best);
      }
    }
  }

  // Returns the distance between their first results.
  double distance_between(const std::string& reference, const std::string& candidate) const {
    const LogicalTensor* a = activations_[0].find(reference, Kind::kOutput);
    const LogicalTensor* b = activations_[1].find(candidate, Kind::kOutput);
    if (a == nullptr || b == nullptr || !same_numbers(*a, *b)) return std::numeric_limits<double>::infinity();
    return best_between(*a, *b).distance;
  }

  BestLayout best_between(const LogicalTensor& reference, const LogicalTensor& candidate) const {
    std::vector<std::string> layouts = {result_.activations};
    for (const std::string& layout : activation_layouts()) {
      if (layout != result_.activations) layouts.emplace_back(layout);
    }
    return best_of(layouts, {}, {{{PatternTensor{}, &reference}}, {{PatternTensor{}, &candidate}}});
  }

  // Adds, for two modules with the same parameters inside, each of their arguments and results that has a counterpart.
  void add_module(const std::string& reference, const std::string& candidate) {
    bool any_first = false;
    for (const Kind kind : kDirections) {
      std::set<std::string> taken;
      bool any = false;
      for (const std::string& member : activations_[0].members(reference, kind)) {
        const LogicalTensor& tensor = *activations_[0].find(reference + member, kind);
        for (const std::string& other : activations_[1].members(candidate, kind)) {
          const LogicalTensor& counterpart = *activations_[1].find(candidate + other, kind);
          if (taken.contains(other) || !same_numbers(tensor, counterpart)) continue;
          const BestLayout best = best_between(tensor, counterpart);
          const double limit = is_integer(tensor) ? 0 : kNearRounding;
          if (!best.fits || is_constant(tensor) || best.distance * likeness_of(tensor) > limit) continue;
          add_pair(kind, tensor, counterpart, best);
          taken.insert(other);
          any = true;
          break;
        }
      }
      any_first = any_first || any;
      if (any || kind == Kind::kInput) continue;
      const LogicalTensor* tensor = activations_[0].find(reference, kind);
      const LogicalTensor* counterpart = activations_[1].find(candidate, kind);
      if (tensor == nullptr || counterpart == nullptr || is_integer(*tensor) || tensor->shape.empty()) continue;
      if (!same_numbers(*tensor, *counterpart)) continue;
      const BestLayout best = best_between(*tensor, *counterpart);
      if (best.fits) add_pair(kind, *tensor, *counterpart, best);
    }
  }

  Counterparts& add_pair(Kind kind, const LogicalTensor& reference, const LogicalTensor& candidate,
                         const BestLayout& best) {
    const std::string a = activations_[0].short_name(reference.id.name, kind);
    const std::string b = activations_[1].short_name(candidate.id.name, kind);
    Counterparts* rule = nullptr;
    for (Counterparts& other : result_.counterparts) {
      if (other.names[0] == std::vector{a} && other.names[1] == std::vector{b}) rule = &other;
    }
    if (rule == nullptr) {
      rule = &result_.counterparts.emplace_back();
      rule->names[0] = {a};
      rule->names[1] = {b};
    }
    settle(*rule, kind, {{{PatternTensor{}, &reference}}, {{PatternTensor{}, &candidate}}}, best, true);
    return *rule;
  }

  // Returns the results of which nothing is known yet, by order of execution.
  std::vector<std::pair<const LogicalTensor*, double>> open(std::size_t side) const {
    std::vector<std::pair<const LogicalTensor*, double>> tensors;
    for (const LogicalTensor* tensor : activations_[side].of(Kind::kOutput)) {
      if (used_[side].contains({Kind::kOutput, tensor->id.name}) || is_integer(*tensor) || tensor->rows) continue;
      if (tensor->shape.size() < 2 || is_constant(*tensor)) continue;
      tensors.emplace_back(tensor, norm_of(values_of(*tensor)));  // no pattern changes it
    }
    return tensors;
  }

  // Matches modules without parameters, or with other ones: results that are near each other, and near no other.
  void match_by_values() {
    const auto of_reference = open(0), of_candidate = open(1);
    std::map<const LogicalTensor*, std::vector<std::pair<const LogicalTensor*, BestLayout>>> near[2];
    for (const auto& [tensor, norm] : of_reference) {
      for (const auto& [other, other_norm] : of_candidate) {
        if (!same_numbers(*tensor, *other) || std::abs(norm - other_norm) > kVeryNear * norm) continue;
        const BestLayout best = best_between(*tensor, *other);
        if (!best.fits || best.distance * likeness_of(*tensor) > kVeryNear) continue;
        near[0][tensor].emplace_back(other, best);
        near[1][other].emplace_back(tensor, best);
      }
    }
    for (const auto& [tensor, norm] : of_reference) {
      const auto& found = near[0][tensor];
      if (found.size() != 1 || near[1][found[0].first].size() != 1) continue;
      const LogicalTensor& other = *found[0].first;
      Counterparts& rule = add_pair(Kind::kOutput, *tensor, other, found[0].second);
      rule.remarks.emplace_back("by its values alone");
      const LogicalTensor* input = activations_[0].find(rule.names[0][0], Kind::kInput);
      const LogicalTensor* counterpart = activations_[1].find(rule.names[1][0], Kind::kInput);
      if (input == nullptr || counterpart == nullptr) continue;
      const BestLayout best = same_numbers(*input, *counterpart) ? best_between(*input, *counterpart) : BestLayout{};
      if (best.fits && best.distance < kVeryNear) {
        settle(rule, Kind::kInput, {{{PatternTensor{}, input}}, {{PatternTensor{}, counterpart}}}, best, true);
      } else {
        rule.patterns["input"] = "none";
      }
    }
  }

  // Forbids what one side alone records, of the names of a rule: it would be missing on the other.
  void forbid_lone_kinds(Counterparts& rule) {
    for (const Kind direction : kDirections) {
      for (const Kind kind : {direction, gradient_of(direction)}) {
        std::size_t calls[2] = {0, 0};
        for (std::size_t side : {0, 1}) {
          for (const std::string& name : rule.names[side]) {
            calls[side] = std::max(calls[side], activations_[side].calls(name, kind));
          }
        }
        const std::string key(name_of(kind));
        const std::string forward(name_of(direction));
        const auto given = rule.patterns.find(forward);
        if (given != rule.patterns.end() && given->second == "none") continue;
        const bool is_measured = rule.near.contains(forward) || rule.far.contains(forward);
        if (calls[0] == calls[1] && (is_measured || calls[0] == 0)) continue;
        rule.patterns[key] = "none";
        if (kind != direction || calls[0] == 0 || calls[1] == 0) continue;
        rule.remarks.push_back(calls[0] == calls[1]
                                   ? fmt::format("{}: none is near the other's", key)
                                   : fmt::format("{}: called {} times, in the candidate {}", key, calls[0], calls[1]));
      }
    }
  }

  void list_lone() {
    for (std::size_t side : {0, 1}) {
      result_.lone_parameters[side] = lone_parameters(of_parameters_, result_.counterparts, side);
      for (const LogicalTensor* tensor : activations_[side].of(Kind::kOutput)) {
        if (used_[side].contains({Kind::kOutput, tensor->id.name}) || is_integer(*tensor)) continue;
        result_.lone_modules[side].insert(activations_[side].short_name(tensor->id.name, Kind::kOutput));
      }
    }
  }

  ParameterRules of_parameters_;
  ScalarMatches scalars_;
  FirstActivations activations_[2];
  std::set<std::pair<Kind, std::string>> used_[2];
  ModuleMatches result_;
};

}  // namespace

ModuleMatches match_modules(const AlignedTrace& reference, const AlignedTrace& candidate,
                            const ParameterMatches& parameters, std::optional<Dtype> dtype) {
  return ModuleMatcher(reference, candidate, parameters, dtype).run();
}

}  // namespace ttrace
