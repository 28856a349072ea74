#include "annotate/odd_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

using Names = std::vector<std::string>;
using Numbers = std::vector<std::int64_t>;

Numbers layer_numbers(std::string_view name) {
  Numbers numbers;
  for (auto number = number_in(name); number; number = number_in(name, number->end)) numbers.push_back(number->value);
  return numbers;
}

// Returns the name with other numbers, of which there are as many.
std::string with_numbers(std::string name, const Numbers& numbers) {
  std::size_t from = 0;
  for (const std::int64_t value : numbers) {
    const auto number = number_in(name, from);
    const std::string text = std::to_string(value);
    name.replace(number->begin, number->end - number->begin, text);
    from = number->begin + text.size();
  }
  return name;
}

Names names_without_numbers(const Names& names) {
  Names templates;
  for (const std::string& name : names) templates.push_back(without_numbers(name));
  return templates;
}

Names in_alphabet(Names names) {
  std::sort(names.begin(), names.end());
  return names;
}

bool is_one_to_one(const ParameterMatch& match) { return match.names[0].size() == 1 && match.names[1].size() == 1; }

// How a number of the candidate's name follows from one of the reference's.
struct Relation {
  std::size_t place = 0;
  std::int64_t offset = 0;
  friend auto operator<=>(const Relation&, const Relation&) = default;
};

// The relations of all numbers of the candidate's name, and how many layers have them.
struct LayerNumbering {
  std::vector<Relation> relations;
  std::size_t layers = 0;
};

class OddLayers {
 public:
  OddLayers(const std::vector<const LogicalTensor*>& reference, const std::vector<const LogicalTensor*>& candidate,
            ParameterMatches& matches)
      : matches_(matches) {
    for (const LogicalTensor* tensor : reference) tensors_[0].emplace(tensor->id.name, tensor);
    for (const LogicalTensor* tensor : candidate) tensors_[1].emplace(tensor->id.name, tensor);
  }

  void run() {
    settle_orders();
    settle_names();
    settle_numbers();
    std::vector<ParameterMatch> kept;
    for (ParameterMatch& match : matches_.matches) {
      if (!match.names[0].empty()) kept.push_back(std::move(match));
    }
    matches_.matches = std::move(kept);
  }

 private:
  // Calls `body` with the indices of matches that have the same key. What a name numbers itself has none.
  template <class KeyOf, class Body>
  void for_each_group(KeyOf key_of, Body body) {
    std::map<std::pair<Names, Names>, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < matches_.matches.size(); ++i) {
      const ParameterMatch& match = matches_.matches[i];
      const bool is_numbered = std::any_of(match.names, match.names + 2, [](const Names& names) {
        return std::any_of(names.begin(), names.end(), [](const std::string& n) { return n.find('{') != n.npos; });
      });
      if (!match.names[0].empty() && !is_numbered) {
        groups[{key_of(match.names[0]), key_of(match.names[1])}].push_back(i);
      }
    }
    for (const auto& [key, members] : groups) body(members);
  }

  // Counts the pairs of parts that the reference has the other way around.
  std::ptrdiff_t turned_around(const ParameterMatch& match) const {
    const Names& names = match.names[0];
    std::ptrdiff_t count = 0;
    for (auto a = names.begin(); a != names.end(); ++a) {
      count += std::count_if(
          a, names.end(), [&](const std::string& b) { return tensors_[0].at(b)->order < tensors_[0].at(*a)->order; });
    }
    return count;
  }

  // Settles fused parameters whose parts come in several orders.
  void settle_orders() {
    for_each_group(
        [](const Names& names) { return in_alphabet(names_without_numbers(names)); },
        [&](const std::vector<std::size_t>& members) {
          std::map<std::pair<Names, Names>, std::vector<std::size_t>> orders;
          for (const std::size_t i : members) {
            const ParameterMatch& match = matches_.matches[i];
            orders[{names_without_numbers(match.names[0]), names_without_numbers(match.names[1])}].push_back(i);
          }
          if (orders.size() > 1) settle_order(orders, members.size());
        });
  }

  void settle_order(const std::map<std::pair<Names, Names>, std::vector<std::size_t>>& orders, std::size_t all) {
    const auto weight = [&](const std::vector<std::size_t>& layers) {
      return std::pair(layers.size(), -turned_around(matches_.matches[layers.front()]));
    };
    const auto most = std::max_element(orders.begin(), orders.end(), [&](const auto& a, const auto& b) {
      return weight(a.second) < weight(b.second);
    });
    const auto ties = std::count_if(orders.begin(), orders.end(),
                                    [&](const auto& order) { return weight(order.second) == weight(most->second); });
    if (ties > 1) {
      for (const auto& [order, layers] : orders) {
        for (const std::size_t i : layers) drop(i, all);
      }
      return;
    }
    const ParameterMatch usual = matches_.matches[most->second.front()];
    for (const auto& [order, layers] : orders) {
      if (order == most->first) continue;
      for (const std::size_t i : layers) {
        ParameterMatch predicted = usual;
        predicted.names[0] = in_order(matches_.matches[i].names[0], most->first.first);
        predicted.names[1] = in_order(matches_.matches[i].names[1], most->first.second);
        replace(i, std::move(predicted), layers.size(), all);
      }
    }
  }

  static Names in_order(const Names& names, const Names& templates) {
    Names ordered;
    for (const std::string& wanted : templates) {
      ordered.push_back(*std::find_if(names.begin(), names.end(),
                                      [&](const std::string& name) { return without_numbers(name) == wanted; }));
    }
    return ordered;
  }

  // Settles tensors that most layers have under other names.
  void settle_names() {
    std::map<std::string, std::map<std::string, std::vector<std::size_t>>> partners;  // one to one, by templates
    for (std::size_t i = 0; i < matches_.matches.size(); ++i) {
      const ParameterMatch& match = matches_.matches[i];
      if (!is_one_to_one(match)) continue;
      partners[without_numbers(match.names[0][0])][without_numbers(match.names[1][0])].push_back(i);
    }
    std::map<std::string, std::vector<std::size_t>> usual;  // by the reference's template
    for (const auto& [name, others] : partners) {
      usual[name] = std::max_element(others.begin(), others.end(), [](const auto& a, const auto& b) {
                      return a.second.size() < b.second.size();
                    })->second;
    }
    const std::size_t before = matches_.matches.size();
    for (std::size_t i = 0; i < before; ++i) settle_name(i, usual);
  }

  void settle_name(std::size_t i, const std::map<std::string, std::vector<std::size_t>>& usual) {
    const ParameterMatch match = matches_.matches[i];
    std::vector<ParameterMatch> predicted;
    std::size_t layers = 0;
    for (const std::string& name : match.names[0]) {
      const auto found = usual.find(without_numbers(name));
      if (found == usual.end() || found->second.size() < 2) return;
      const std::vector<std::size_t>& sisters = found->second;
      if (std::find(sisters.begin(), sisters.end(), i) != sisters.end()) return;
      const LayerNumbering numbering = numbering_of(sisters);
      ParameterMatch one = matches_.matches[sisters.front()];
      const std::optional<std::string> other = predict(name, one.names[1][0], numbering);
      if (!other) return;
      layers = std::max(layers, sisters.size());
      one.names[0] = {name};
      one.names[1] = {*other};
      predicted.push_back(std::move(one));
    }
    if (predicted.size() == 1 && predicted.front().names[1] == match.names[1]) return;
    for (std::size_t k = 1; k < predicted.size(); ++k) add(std::move(predicted[k]));
    replace(i, std::move(predicted.front()), 1, layers + 1);
  }

  // Settles tensors that most layers have under their own number.
  void settle_numbers() {
    for_each_group(names_without_numbers, [&](const std::vector<std::size_t>& members) {
      if (members.size() < 2) return;
      const LayerNumbering numbering = numbering_of(members);
      const bool are_traded = have_same_numbers(members);
      const bool is_usual = 2 * numbering.layers > members.size() ||
                            (are_traded && numbering.layers > 1 && keeps_numbers(numbering.relations));
      if (!is_usual && !are_traded) return;
      for (const std::size_t i : members) {
        const ParameterMatch& match = matches_.matches[i];
        if (!is_usual) {
          if (layer_numbers(match.names[0][0]) != layer_numbers(match.names[1][0])) drop(i, members.size());
          continue;
        }
        ParameterMatch predicted = match;
        bool is_there = true;
        for (std::string& name : predicted.names[1]) {
          const auto other = predict(match.names[0][0], name, numbering);
          is_there = is_there && other;
          if (other) name = *other;
        }
        if (!is_there || predicted.names[1] == match.names[1]) continue;
        replace(i, std::move(predicted), members.size() - numbering.layers, members.size());
      }
    });
  }

  static bool keeps_numbers(const std::vector<Relation>& relations) {
    for (std::size_t n = 0; n < relations.size(); ++n) {
      if (relations[n] != Relation{n, 0}) return false;
    }
    return true;
  }

  // True where the layers of both sides have the same numbers, be they each other's.
  bool have_same_numbers(const std::vector<std::size_t>& members) const {
    std::set<Numbers> numbers[2];
    for (const std::size_t i : members) {
      for (const std::size_t side : {0, 1}) {
        numbers[side].insert(layer_numbers(matches_.matches[i].names[side][0]));
      }
    }
    return numbers[0] == numbers[1];
  }

  // Returns what most of the layers say of each number of the candidate's names.
  LayerNumbering numbering_of(const std::vector<std::size_t>& members) const {
    const auto numbers = [&](std::size_t i, std::size_t side) {
      return layer_numbers(matches_.matches[i].names[side][0]);
    };
    LayerNumbering numbering;
    const std::size_t places = numbers(members.front(), 0).size();
    for (std::size_t n = 0; n < numbers(members.front(), 1).size(); ++n) {
      std::map<Relation, std::size_t> votes;
      for (const std::size_t i : members) {
        const Numbers of_reference = numbers(i, 0), of_candidate = numbers(i, 1);
        for (std::size_t p = 0; p < places; ++p) ++votes[{p, of_candidate[n] - of_reference[p]}];
      }
      if (votes.empty()) return {};
      const auto rank = [&](const auto& vote) {  // of equal ones the number in its place, and the same
        return std::tuple(vote.second, vote.first.place == n, vote.first.offset == 0);
      };
      numbering.relations.push_back(std::max_element(votes.begin(), votes.end(), [&](const auto& a, const auto& b) {
                                      return rank(a) < rank(b);
                                    })->first);
    }
    numbering.layers = static_cast<std::size_t>(std::count_if(members.begin(), members.end(), [&](std::size_t i) {
      const ParameterMatch& match = matches_.matches[i];
      return predict(match.names[0][0], match.names[1][0], numbering) == match.names[1][0];
    }));
    return numbering;
  }

  // Returns the candidate's name for one of the reference's, in the form of `other`; nothing where there is none of it.
  std::optional<std::string> predict(const std::string& name, const std::string& other,
                                     const LayerNumbering& numbering) const {
    const Numbers of_reference = layer_numbers(name);
    Numbers numbers;
    for (const Relation& relation : numbering.relations) {
      numbers.push_back(of_reference[relation.place] + relation.offset);
      if (numbers.back() < 0) return std::nullopt;
    }
    if (numbers.size() != layer_numbers(other).size()) return std::nullopt;
    std::string predicted = with_numbers(other, numbers);
    return tensors_[1].contains(predicted) ? std::optional(std::move(predicted)) : std::nullopt;
  }

  // Gives the match the tensors of its names; false where one is not there, or has another shape than `like`.
  bool place(ParameterMatch& match, const ParameterMatch& like) const {
    PlacedTensors placed[2];
    for (const std::size_t side : {0, 1}) {
      const PlacedTensors& usual = side == 0 ? like.tensors.reference : like.tensors.candidate;
      for (std::size_t k = 0; k < match.names[side].size(); ++k) {
        const auto found = tensors_[side].find(match.names[side][k]);
        if (found == tensors_[side].end() || found->second->shape != usual[k].second->shape) return false;
        placed[side].emplace_back(PatternTensor{k, {}}, found->second);
      }
    }
    match.tensors = {placed[0], placed[1]};
    match.is_predicted = true;
    match.remark.clear();
    return true;
  }

  void add(ParameterMatch predicted) {
    const ParameterMatch like = predicted;
    if (place(predicted, like)) matches_.matches.push_back(std::move(predicted));
  }

  // `layers` of `all` do as the match at `i` does.
  void replace(std::size_t i, ParameterMatch predicted, std::size_t layers, std::size_t all) {
    const ParameterMatch like = predicted;
    if (!place(predicted, like)) return;
    matches_.odd.push_back({matches_.matches[i], layers, all});
    matches_.matches[i] = std::move(predicted);
  }

  void drop(std::size_t i, std::size_t all) {
    matches_.odd.push_back({matches_.matches[i], 1, all});
    for (Names& names : matches_.matches[i].names) names.clear();
  }

  std::map<std::string, const LogicalTensor*> tensors_[2];
  ParameterMatches& matches_;
};

}  // namespace

void settle_odd_layers(const std::vector<const LogicalTensor*>& reference,
                       const std::vector<const LogicalTensor*>& candidate, ParameterMatches& matches) {
  OddLayers(reference, candidate, matches).run();
}

}  // namespace ttrace
