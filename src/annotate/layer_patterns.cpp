#include "annotate/layer_patterns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

constexpr std::string_view kLetters = "ijklm";

std::vector<NameNumber> numbers_in(std::string_view name) {
  std::vector<NameNumber> numbers;
  for (auto number = number_in(name); number; number = number_in(name, number->end)) numbers.push_back(*number);
  return numbers;
}

using Templates = std::pair<std::vector<std::string>, std::vector<std::string>>;

Templates templates_of(const Counterparts& one) {
  Templates templates;
  for (const std::string& name : one.names[0]) templates.first.push_back(without_numbers(name));
  for (const std::string& name : one.names[1]) templates.second.push_back(without_numbers(name));
  return templates;
}

// Numbers that differ from layer to layer become captures: those that are equal in each layer the same one. Nothing
// where the names of one side have a number that no number of the others is.
std::optional<std::array<std::vector<std::string>, 2>> names_with_captures(const std::vector<Counterparts>& layers) {
  std::map<std::vector<std::int64_t>, char> letters;  // by what the number is in each layer
  std::array<std::vector<std::string>, 2> names;
  std::set<std::set<char>> used;
  for (std::size_t side : {0, 1}) {
    for (std::size_t k = 0; k < layers.front().names[side].size(); ++k) {
      std::vector<std::vector<std::int64_t>> values(numbers_in(layers.front().names[side][k]).size());
      for (const Counterparts& layer : layers) {
        const std::vector<NameNumber> numbers = numbers_in(layer.names[side][k]);
        for (std::size_t n = 0; n < numbers.size(); ++n) values[n].push_back(numbers[n].value);
      }
      std::string name = layers.front().names[side][k];
      const std::vector<NameNumber> numbers = numbers_in(name);
      std::set<char> of_name;
      for (std::size_t n = numbers.size(); n-- > 0;) {
        const bool is_one = std::all_of(values[n].begin(), values[n].end(), [&](auto v) { return v == values[n][0]; });
        if (is_one) continue;
        const auto letter =
            letters.emplace(values[n], letters.size() < kLetters.size() ? kLetters[letters.size()] : '?');
        if (letter.first->second == '?' || !of_name.insert(letter.first->second).second) return std::nullopt;
        name.replace(numbers[n].begin, numbers[n].end - numbers[n].begin, fmt::format("{{{}}}", letter.first->second));
      }
      used.insert(of_name);
      names[side].push_back(name);
    }
  }
  if (used.size() != 1) return std::nullopt;
  return names;
}

void add(const Counterparts& layer, CounterpartRule& rule) {
  rule.equal += layer.equal.empty() ? 0 : 1;
  rule.near += layer.near.empty() ? 0 : 1;
  rule.far += layer.far.empty() ? 0 : 1;
  for (const auto& [key, near] : layer.near) {
    NearValues& into = rule.line.near[key];
    into.distance = std::max(into.distance, near.distance);
    if (near.otherwise && (rule.nearest_other == 0 || *near.otherwise < rule.nearest_other)) {
      rule.nearest_other = *near.otherwise;
    }
  }
  for (const auto& [key, far] : layer.far) {
    NearValues& into = rule.line.far[key];
    into.distance = std::max(into.distance, far.distance);
  }
  for (const std::string& remark : layer.remarks) {
    std::vector<std::string>& remarks = rule.line.remarks;
    if (std::find(remarks.begin(), remarks.end(), remark) == remarks.end()) remarks.push_back(remark);
  }
  rule.line.equal.insert(layer.equal.begin(), layer.equal.end());
  rule.line.sizes.insert(layer.sizes.begin(), layer.sizes.end());
  rule.line.order = std::min(rule.line.order, layer.order);
}

CounterpartRule rule_of(const std::vector<Counterparts>& layers, const std::map<std::string, std::string>& patterns) {
  CounterpartRule rule;
  rule.line = layers.front();
  rule.line.near.clear();
  rule.line.far.clear();
  rule.line.patterns = patterns;
  rule.instances = layers.size();
  for (const Counterparts& layer : layers) {
    add(layer, rule);
    if (layer.patterns == patterns) continue;
    for (const auto& [key, pattern] : layer.patterns) {
      const auto found = patterns.find(key);
      if (found != patterns.end() && found->second == pattern) continue;
      rule.line.remarks.push_back(fmt::format("{}: {} fits better: {}", layer.names[0].front(), key, pattern));
    }
  }
  return rule;
}

// The patterns of most layers.
std::map<std::string, std::string> usual_patterns(const std::vector<Counterparts>& layers) {
  std::map<std::map<std::string, std::string>, std::size_t> votes;
  for (const Counterparts& layer : layers) ++votes[layer.patterns];
  return std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

}  // namespace

std::vector<CounterpartRule> put_layers_together(std::vector<Counterparts> counterparts) {
  std::map<Templates, std::vector<Counterparts>> by_template;
  for (Counterparts& one : counterparts) by_template[templates_of(one)].push_back(std::move(one));
  std::vector<CounterpartRule> rules;
  for (const auto& [templates, layers] : by_template) {
    const auto names = names_with_captures(layers);
    if (!names) {
      for (const Counterparts& layer : layers) rules.push_back(rule_of({layer}, layer.patterns));
      continue;
    }
    rules.push_back(rule_of(layers, usual_patterns(layers)));
    rules.back().line.names[0] = (*names)[0];
    rules.back().line.names[1] = (*names)[1];
  }
  std::stable_sort(rules.begin(), rules.end(),
                   [](const CounterpartRule& a, const CounterpartRule& b) { return a.line.order < b.line.order; });
  return rules;
}

}  // namespace ttrace
