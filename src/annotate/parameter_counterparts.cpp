// Initial parameters are random numbers, so that two equal rows are no accident. Each row of the candidate's parameters
// is looked up among the reference's rows: that says of which parameters a fused one is made, and in which order;
// row_map.cpp tries to say that order as a pattern. The pattern counts only where all values are equal by it.
#include "annotate/parameter_counterparts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>

#include "annotate/row_map.h"
#include "ttrace/tensor_name.h"

namespace ttrace {
namespace {

using Tensors = std::vector<const LogicalTensor*>;

std::uint64_t hash_of(const Values& values) {
  return std::hash<std::string_view>()(
      std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)));
}

bool all_equal(const Values& values) {
  return std::all_of(values.begin(), values.end(), [&](double value) { return value == values.front(); });
}

PlacedTensors placed(const Tensors& tensors) {
  PlacedTensors result;
  for (std::size_t i = 0; i < tensors.size(); ++i) result.emplace_back(PatternTensor{i, {}}, tensors[i]);
  return result;
}

// What is known of one side's parameters.
struct Side {
  Tensors tensors;
  std::vector<bool> done;
  std::vector<std::vector<std::uint64_t>> rows, columns;  // hashes, of tensors with two dimensions or more
  RowIndex by_row;

  void add_rows(std::optional<Dtype> dtype) {
    rows.resize(tensors.size());
    columns.resize(tensors.size());
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      if (done[t] || tensors[t]->shape.size() < 2) continue;
      const Values values = rounded_values_of(*tensors[t], dtype);
      rows[t] = hash_rows(values, tensors[t]->shape, false);
      columns[t] = hash_rows(values, tensors[t]->shape, true);
      for (std::size_t r = 0; r < rows[t].size(); ++r) {
        if (rows[t][r] != 0) by_row[rows[t][r]].push_back({t, static_cast<std::int64_t>(r)});
      }
    }
  }
};

// Parameters of both sides that share rows.
struct Component {
  std::vector<std::size_t> members[2];
  bool transposed = false;
};

class Matcher {
 public:
  Matcher(Tensors reference, Tensors candidate, std::optional<Dtype> dtype) : dtype_(dtype) {
    sides_[0].tensors = std::move(reference);
    sides_[1].tensors = std::move(candidate);
    for (Side& side : sides_) side.done.resize(side.tensors.size());
  }

  ParameterMatches run() {
    match_equal();
    for (Side& side : sides_) side.add_rows(dtype_);
    for (const Component& component : components()) match(component);
    return std::move(result_);
  }

 private:
  // Whole tensors of equal values. Of several with the same values the first is the first.
  void match_equal() {
    std::map<std::pair<std::uint64_t, Shape>, std::vector<std::size_t>> equal[2];
    for (std::size_t side : {0, 1}) {
      for (std::size_t t = 0; t < sides_[side].tensors.size(); ++t) {
        const LogicalTensor& tensor = *sides_[side].tensors[t];
        const Values values = rounded_values_of(tensor, dtype_);
        if (values.empty() || all_equal(values)) {
          sides_[side].done[t] = true;  // tells nothing
          continue;
        }
        equal[side][{hash_of(values), tensor.shape}].push_back(t);
      }
    }
    for (const auto& [key, of_reference] : equal[0]) {
      const auto found = equal[1].find(key);
      if (found == equal[1].end()) continue;
      const auto& of_candidate = found->second;
      if (of_reference.size() != of_candidate.size()) {
        add_copies(of_reference, of_candidate);
        continue;
      }
      for (std::size_t i = 0; i < of_reference.size(); ++i) {
        const LogicalTensor& tensor = *sides_[0].tensors[of_reference[i]];
        ParameterMatch match = start({of_reference[i]}, {of_candidate[i]});
        match.pattern = "same";
        if (tensor.shape.size() == 2) match.rows[0] = match.rows[1] = {"..."};
        if (of_reference.size() > 1) {
          match.remark =
              fmt::format("{} parameters have these values; taken in order of execution", of_reference.size());
        }
        result_.matches.push_back(std::move(match));
      }
    }
  }

  // One tensor of one side, and several of the other with its values: tied weights.
  void add_copies(const std::vector<std::size_t>& of_reference, const std::vector<std::size_t>& of_candidate) {
    ParameterMatch match = start(of_reference, of_candidate);
    if (of_reference.size() > 1 && of_candidate.size() > 1) {
      result_.remarks.push_back(fmt::format("{} and {}: equal values, not as many on either side",
                                            fmt::join(match.names[0], ", "), fmt::join(match.names[1], ", ")));
      return;
    }
    const std::size_t dims = match.tensors.reference.front().second->shape.size();
    std::string axes = "a";
    for (std::size_t d = 1; d < dims; ++d) axes += fmt::format(" {}", static_cast<char>('a' + d));
    match.pattern = fmt::format("{} -> {}", axes, axes);
    match.remark = "one parameter on one side, copies on the other: tied weights";
    result_.matches.push_back(std::move(match));
  }

  ParameterMatch start(const std::vector<std::size_t>& reference, const std::vector<std::size_t>& candidate) {
    ParameterMatch match;
    Tensors tensors[2];
    for (std::size_t side : {0, 1}) {
      for (const std::size_t t : side == 0 ? reference : candidate) {
        sides_[side].done[t] = true;
        tensors[side].push_back(sides_[side].tensors[t]);
        match.names[side].push_back(tensors[side].back()->id.name);
      }
    }
    match.tensors = {placed(tensors[0]), placed(tensors[1])};
    return match;
  }

  // Where one's rows are the other's rows or, transposed, its columns, for more than half of the smaller one.
  std::vector<Component> components() {
    std::map<std::pair<std::size_t, std::size_t>, std::int64_t> hits[2];  // by transposed, of reference and candidate
    for (std::size_t c = 0; c < sides_[1].tensors.size(); ++c) {
      for (const bool transposed : {false, true}) {
        for (const std::uint64_t hash : transposed ? sides_[1].columns[c] : sides_[1].rows[c]) {
          const auto found = sides_[0].by_row.find(hash);
          if (hash == 0 || found == sides_[0].by_row.end()) continue;
          std::set<std::size_t> of;
          for (const RowPlace& place : found->second) of.insert(place.tensor);
          for (const std::size_t r : of) ++hits[transposed ? 1 : 0][{r, c}];
        }
      }
    }
    std::vector<Component> found;
    std::map<std::size_t, std::size_t> of_reference, of_candidate;
    for (const bool transposed : {false, true}) {
      for (const auto& [pair, count] : hits[transposed ? 1 : 0]) {
        const auto [r, c] = pair;
        const auto& other = transposed ? sides_[1].columns[c] : sides_[1].rows[c];
        const auto smaller = static_cast<std::int64_t>(std::min(sides_[0].rows[r].size(), other.size()));
        if (2 * count <= smaller) continue;
        join(found, of_reference, of_candidate, r, c, transposed);
      }
    }
    std::erase_if(found, [](const Component& component) { return component.members[0].empty(); });
    return found;
  }

  static void join(std::vector<Component>& found, std::map<std::size_t, std::size_t>& of_reference,
                   std::map<std::size_t, std::size_t>& of_candidate, std::size_t r, std::size_t c, bool transposed) {
    const auto a = of_reference.find(r);
    const auto b = of_candidate.find(c);
    std::size_t into = found.size();
    if (a != of_reference.end()) into = a->second;
    if (a == of_reference.end() && b != of_candidate.end()) into = b->second;
    if (into == found.size()) found.emplace_back().transposed = transposed;
    if (a == of_reference.end()) {
      found[into].members[0].push_back(r);
      of_reference[r] = into;
    }
    if (b == of_candidate.end()) {
      found[into].members[1].push_back(c);
      of_candidate[c] = into;
    } else if (b->second != into) {
      Component& other = found[b->second];
      for (const std::size_t t : other.members[0]) of_reference[t] = into;
      const std::vector<std::size_t> moved = other.members[1];
      for (const std::size_t t : moved) of_candidate[t] = into;
      found[into].members[0].insert(found[into].members[0].end(), other.members[0].begin(), other.members[0].end());
      found[into].members[1].insert(found[into].members[1].end(), moved.begin(), moved.end());
      other = {};
    }
  }

  void match(Component component) {
    for (auto& members : component.members) std::sort(members.begin(), members.end());
    if (!match_whole(component)) {
      const ParameterMatch named = start(component.members[0], component.members[1]);
      result_.remarks.push_back(fmt::format("{} and {} share values, in an order that no pattern was found for",
                                            fmt::join(named.names[0], ", "), fmt::join(named.names[1], ", ")));
    }
  }

  bool match_whole(const Component& component) {
    const auto& members = component.members;
    if (members[0].size() > 1 && members[1].size() > 1) return false;
    // The whole is the one tensor of its side; of one on each side the larger.
    std::size_t whole = members[1].size() == 1 ? 1 : 0;
    if (members[0].size() == 1 && members[1].size() == 1) {
      const auto count = [&](std::size_t side) { return element_count(sides_[side].tensors[members[side][0]]->shape); };
      whole = count(0) > count(1) ? 0 : 1;
    }
    return match_rows(component, whole) || match_numbered(component, whole);
  }

  const LogicalTensor& tensor(std::size_t side, std::size_t t) const { return *sides_[side].tensors[t]; }

  RowMap map_of(const Component& component, std::size_t whole) const {
    const std::size_t parts = 1 - whole;
    std::unordered_map<std::uint64_t, RowPlace> rows;
    const bool by_columns = component.transposed && parts == 1;
    for (std::size_t k = 0; k < component.members[parts].size(); ++k) {
      const std::size_t t = component.members[parts][k];
      const auto& hashes = by_columns ? sides_[parts].columns[t] : sides_[parts].rows[t];
      for (std::size_t r = 0; r < hashes.size(); ++r) {
        if (hashes[r] != 0) rows.emplace(hashes[r], RowPlace{k, static_cast<std::int64_t>(r)});
      }
    }
    RowMap map;
    const std::size_t t = component.members[whole][0];
    const bool whole_by_columns = component.transposed && whole == 1;
    for (const std::uint64_t hash : whole_by_columns ? sides_[whole].columns[t] : sides_[whole].rows[t]) {
      const auto found = rows.find(hash);
      map.part.push_back(found == rows.end() ? -1 : static_cast<std::int64_t>(found->second.tensor));
      map.row.push_back(found == rows.end() ? -1 : found->second.row);
    }
    return map;
  }

  // Two dimensions on both sides: rows of the whole are rows of the parts.
  bool match_rows(const Component& component, std::size_t whole) {
    const std::size_t parts = 1 - whole;
    std::vector<std::int64_t> rows;
    for (const std::size_t t : component.members[parts]) {
      const Shape& shape = tensor(parts, t).shape;
      if (shape.size() != 2) return false;
      rows.push_back(component.transposed && parts == 1 ? shape[1] : shape[0]);
    }
    if (tensor(whole, component.members[whole][0]).shape.size() != 2) return false;
    const auto pattern = row_pattern(map_of(component, whole), rows);
    if (!pattern) return false;
    // The reference's tensors are always looked at by rows, and the candidate's by columns where it is transposed.
    const auto text = [&](const std::string& axes, std::size_t side) {
      return component.transposed && side == 1 ? fmt::format("c {}", axes) : fmt::format("{} c", axes);
    };
    std::vector<std::string> part_texts;
    std::vector<std::size_t> members;
    for (std::size_t i = 0; i < pattern->order.size(); ++i) {
      part_texts.push_back(text(pattern->parts[i], parts));
      members.push_back(component.members[parts][pattern->order[i]]);
    }
    std::string texts[2];
    texts[parts] = fmt::format("{}", fmt::join(part_texts, ", "));
    texts[whole] = text(pattern->whole, whole);
    Component ordered = component;
    ordered.members[parts] = std::move(members);
    std::vector<std::string> row_texts[2];
    if (!component.transposed) {
      row_texts[parts] = pattern->parts;
      row_texts[whole] = {pattern->whole};
    }
    const std::string both = fmt::format("{} -> {}", texts[0], texts[1]);
    return accept(ordered, texts[0] == texts[1] ? "same" : both, pattern->sizes, pattern->remark, row_texts);
  }

  bool accept(const Component& component, const std::string& pattern, const AxisSizes& sizes, const std::string& remark,
              const std::vector<std::string> (&rows)[2]) {
    Tensors tensors[2];
    for (std::size_t side : {0, 1}) {
      for (const std::size_t t : component.members[side]) tensors[side].push_back(sides_[side].tensors[t]);
    }
    if (distance_by(pattern, sizes, {placed(tensors[0]), placed(tensors[1])}, dtype_) != 0.0) return false;
    ParameterMatch match = start(component.members[0], component.members[1]);
    match.pattern = pattern;
    match.sizes = sizes;
    match.remark = remark;
    match.rows[0] = rows[0];
    match.rows[1] = rows[1];
    result_.matches.push_back(std::move(match));
    return true;
  }

  // One tensor for all of what modules with a number have one each, such as experts; of several names, one after the
  // other in the first dimension.
  bool match_numbered(const Component& component, std::size_t whole) {
    const std::size_t parts = 1 - whole;
    std::map<std::string, std::vector<std::size_t>> by_template;  // as in `experts.#.w1`, of what numbers name
    for (const std::size_t t : component.members[parts]) {
      by_template[numbered_name(parts, t, component.members[parts]).first].push_back(t);
    }
    std::vector<std::string> names;
    for (const auto& [name, members] : by_template) names.push_back(name);
    // In the order of the whole; there are few names.
    do {
      if (try_numbered(component, whole, names, by_template)) return true;
    } while (names.size() <= 4 && std::next_permutation(names.begin(), names.end()));
    return false;
  }

  // The name with `{e}` for the last number in which it differs from another of `members`, and that number.
  std::pair<std::string, std::int64_t> numbered_name(std::size_t side, std::size_t t,
                                                     const std::vector<std::size_t>& members) const {
    const std::string& name = tensor(side, t).id.name;
    for (auto number = number_in(name); number; number = number_in(name, number->end)) {
      for (const std::size_t other : members) {
        const auto same = number_in(tensor(side, other).id.name, number->begin - 1);  // from its dot
        if (!same || same->value == number->value || same->begin != number->begin) continue;
        return {name.substr(0, number->begin) + "{e}" + name.substr(number->end), number->value};
      }
    }
    return {name, -1};
  }

  bool try_numbered(const Component& component, std::size_t whole, const std::vector<std::string>& names,
                    const std::map<std::string, std::vector<std::size_t>>& by_template) {
    const std::size_t parts = 1 - whole;
    ParameterMatch match;
    match.names[parts] = names;
    const LogicalTensor& one = tensor(whole, component.members[whole][0]);
    match.names[whole] = {one.id.name};
    PlacedTensors placed_parts;
    for (std::size_t k = 0; k < names.size(); ++k) {
      for (const std::size_t t : by_template.at(names[k])) {
        const std::int64_t number = numbered_name(parts, t, component.members[parts]).second;
        if (number < 0) return false;
        placed_parts.emplace_back(PatternTensor{k, {{"e", number}}}, sides_[parts].tensors[t]);
      }
    }
    match.tensors =
        parts == 0 ? PatternSides{placed_parts, placed({&one})} : PatternSides{placed({&one}), placed_parts};
    const std::string rows =
        names.size() == 1 ? "a" : fmt::format("({})", fmt::join(std::vector(names.size(), std::string("a")), " + "));
    const std::string part = fmt::format("{}", fmt::join(std::vector(names.size(), std::string("a b")), ", "));
    for (const std::string& all :
         {fmt::format("e {} b", rows), fmt::format("e b {}", rows), fmt::format("(e {}) b", rows)}) {
      const std::string text = parts == 0 ? fmt::format("{} -> {}", part, all) : fmt::format("{} -> {}", all, part);
      if (distance_by(text, {}, match.tensors, dtype_) != 0.0) continue;
      match.pattern = text;
      for (std::size_t side : {0, 1}) {
        for (const std::size_t t : component.members[side]) sides_[side].done[t] = true;
      }
      result_.matches.push_back(std::move(match));
      return true;
    }
    return false;
  }

  std::optional<Dtype> dtype_;
  Side sides_[2];
  ParameterMatches result_;
};

}  // namespace

std::vector<const LogicalTensor*> initial_parameters_of(const Alignment& alignment) {
  std::map<std::string, const LogicalTensor*> first;
  for (const auto& [id, tensor] : alignment.tensors) {  // by iteration
    if (id.kind == Kind::kParam && is_floating(tensor.dtype) && !tensor.rows) first.emplace(id.name, &tensor);
  }
  Tensors tensors;
  for (const auto& [name, tensor] : first) tensors.push_back(tensor);
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) { return a->order < b->order; });
  return tensors;
}

std::optional<Dtype> common_dtype(const Tensors& reference, const Tensors& candidate) {
  std::set<Dtype> dtypes;
  for (const Tensors* tensors : {&reference, &candidate}) {
    for (const LogicalTensor* tensor : *tensors) dtypes.insert(tensor->dtype);
  }
  if (dtypes.size() < 2) return std::nullopt;
  return *std::max_element(dtypes.begin(), dtypes.end(),
                           [](Dtype a, Dtype b) { return epsilon_of(a) < epsilon_of(b); });
}

bool is_constant(const LogicalTensor& tensor) {
  const Values values = values_of(tensor);
  return values.empty() || all_equal(values);
}

ParameterMatches match_parameters(const Tensors& reference, const Tensors& candidate, std::optional<Dtype> dtype) {
  return Matcher(reference, candidate, dtype).run();
}

}  // namespace ttrace
