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
#include <unordered_map>

#include "annotate/numbered_parameters.h"
#include "annotate/row_map.h"
#include "annotate/shared_rows.h"
#include "base/tensor_name.h"

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

// Holds what is known of one side's parameters.
struct Side {
  Tensors tensors;
  std::vector<bool> done;
  RowHashes hashes;  // of tensors with two dimensions or more

  void add_rows(std::optional<Dtype> dtype) {
    hashes.rows.resize(tensors.size());
    hashes.columns.resize(tensors.size());
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      if (done[t] || tensors[t]->shape.size() < 2) continue;
      const Values values = rounded_values_of(*tensors[t], dtype);
      hashes.rows[t] = hash_rows(values, tensors[t]->shape, false);
      hashes.columns[t] = hash_rows(values, tensors[t]->shape, true);
    }
  }
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
    for (const RowSharers& sharers : find_sharers(sides_[0].hashes, sides_[1].hashes)) match(sharers);
    return std::move(result_);
  }

 private:
  // Matches whole tensors of equal values. Of several with the same values the first is the first.
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

  // Adds one tensor of one side, and several of the other with its values: tied weights.
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

  void match(RowSharers sharers) {
    for (auto& members : sharers.members) std::sort(members.begin(), members.end());
    if (!match_whole(sharers)) {
      const ParameterMatch named = start(sharers.members[0], sharers.members[1]);
      result_.remarks.push_back(fmt::format("{} and {} share values, in an order that no pattern was found for",
                                            fmt::join(named.names[0], ", "), fmt::join(named.names[1], ", ")));
    }
  }

  bool match_whole(const RowSharers& sharers) {
    const auto& members = sharers.members;
    if (members[0].size() > 1 && members[1].size() > 1) return false;
    // The whole is the one tensor of its side; of one on each side the larger.
    std::size_t whole = members[1].size() == 1 ? 1 : 0;
    if (members[0].size() == 1 && members[1].size() == 1) {
      const auto count = [&](std::size_t side) { return element_count(sides_[side].tensors[members[side][0]]->shape); };
      whole = count(0) > count(1) ? 0 : 1;
    }
    return match_rows(sharers, whole) || add_numbered(sharers, whole);
  }

  const LogicalTensor& tensor(std::size_t side, std::size_t t) const { return *sides_[side].tensors[t]; }

  RowMap map_of(const RowSharers& sharers, std::size_t whole) const {
    const std::size_t parts = 1 - whole;
    std::unordered_map<std::uint64_t, RowPlace> rows;
    const bool by_columns = sharers.transposed && parts == 1;
    for (std::size_t k = 0; k < sharers.members[parts].size(); ++k) {
      const std::size_t t = sharers.members[parts][k];
      const auto& hashes = by_columns ? sides_[parts].hashes.columns[t] : sides_[parts].hashes.rows[t];
      for (std::size_t r = 0; r < hashes.size(); ++r) {
        if (hashes[r] != 0) rows.emplace(hashes[r], RowPlace{k, static_cast<std::int64_t>(r)});
      }
    }
    RowMap map;
    const std::size_t t = sharers.members[whole][0];
    const bool whole_by_columns = sharers.transposed && whole == 1;
    for (const std::uint64_t hash : whole_by_columns ? sides_[whole].hashes.columns[t] : sides_[whole].hashes.rows[t]) {
      const auto found = rows.find(hash);
      map.part.push_back(found == rows.end() ? -1 : static_cast<std::int64_t>(found->second.tensor));
      map.row.push_back(found == rows.end() ? -1 : found->second.row);
    }
    return map;
  }

  // Matches parameters of two dimensions on both sides: rows of the whole are rows of the parts.
  bool match_rows(const RowSharers& sharers, std::size_t whole) {
    const std::size_t parts = 1 - whole;
    std::vector<std::int64_t> rows;
    for (const std::size_t t : sharers.members[parts]) {
      const Shape& shape = tensor(parts, t).shape;
      if (shape.size() != 2) return false;
      rows.push_back(sharers.transposed && parts == 1 ? shape[1] : shape[0]);
    }
    if (tensor(whole, sharers.members[whole][0]).shape.size() != 2) return false;
    const auto pattern = row_pattern(map_of(sharers, whole), rows);
    if (!pattern) return false;
    // The reference's tensors are always looked at by rows, and the candidate's by columns where it is transposed.
    const auto text = [&](const std::string& axes, std::size_t side) {
      return sharers.transposed && side == 1 ? fmt::format("c {}", axes) : fmt::format("{} c", axes);
    };
    std::vector<std::string> part_texts;
    std::vector<std::size_t> members;
    for (std::size_t i = 0; i < pattern->order.size(); ++i) {
      part_texts.push_back(text(pattern->parts[i], parts));
      members.push_back(sharers.members[parts][pattern->order[i]]);
    }
    std::string texts[2];
    texts[parts] = fmt::format("{}", fmt::join(part_texts, ", "));
    texts[whole] = text(pattern->whole, whole);
    RowSharers ordered = sharers;
    ordered.members[parts] = std::move(members);
    std::vector<std::string> row_texts[2];
    if (!sharers.transposed) {
      row_texts[parts] = pattern->parts;
      row_texts[whole] = {pattern->whole};
    }
    const std::string both = fmt::format("{} -> {}", texts[0], texts[1]);
    return accept(ordered, texts[0] == texts[1] ? "same" : both, pattern->sizes, pattern->remark, row_texts);
  }

  bool accept(const RowSharers& sharers, const std::string& pattern, const AxisSizes& sizes, const std::string& remark,
              const std::vector<std::string> (&rows)[2]) {
    Tensors tensors[2];
    for (std::size_t side : {0, 1}) {
      for (const std::size_t t : sharers.members[side]) tensors[side].push_back(sides_[side].tensors[t]);
    }
    if (distance_by(pattern, sizes, {placed(tensors[0]), placed(tensors[1])}, dtype_) != 0.0) return false;
    ParameterMatch match = start(sharers.members[0], sharers.members[1]);
    match.pattern = pattern;
    match.sizes = sizes;
    match.remark = remark;
    match.rows[0] = rows[0];
    match.rows[1] = rows[1];
    result_.matches.push_back(std::move(match));
    return true;
  }

  bool add_numbered(const RowSharers& sharers, std::size_t whole) {
    Tensors parts;
    for (const std::size_t t : sharers.members[1 - whole]) parts.push_back(&tensor(1 - whole, t));
    auto match = match_numbered(parts, tensor(whole, sharers.members[whole][0]), whole, dtype_);
    if (!match) return false;
    for (std::size_t side : {0, 1}) {
      for (const std::size_t t : sharers.members[side]) sides_[side].done[t] = true;
    }
    result_.matches.push_back(std::move(*match));
    return true;
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
