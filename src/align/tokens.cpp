#include "align/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "ttrace/tensor_name.h"

namespace ttrace {
namespace {

std::size_t common_prefix(std::string_view a, std::string_view b) {
  const auto [end, ignored] =
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin());
  return static_cast<std::size_t>(end - a.begin());
}

}  // namespace

bool is_nearer(std::string_view name, std::string_view a, std::string_view b) {
  const auto nearness = [&, call = TensorName(name).call](std::string_view other) {
    return std::pair(common_prefix(name, other), TensorName(other).call == call);
  };
  return nearness(a) > nearness(b);
}

// The recorded tensors that rows come from, which `of` patterns name, with the token of each of their local rows.
class TokenReader::SourceTensors {
 public:
  SourceTensors(const Alignment& alignment, const std::set<std::string>& patterns) {
    for (const auto& [id, tensor] : alignment.tensors) {
      if (id.kind != Kind::kInput || id.pass != Pass::kForward || tensor.shape.size() < 2) continue;
      const bool named = std::any_of(patterns.begin(), patterns.end(),
                                     [&, &name = id.name](const std::string& p) { return matches(p, name); });
      if (named) add(tensor);
    }
  }
  const std::vector<Token>* find(const Entry* entry) const {
    const auto found = tokens_.find(entry);
    return found == tokens_.end() ? nullptr : &found->second;
  }

 private:
  void add(const LogicalTensor& tensor) {
    const std::int64_t columns = tensor.shape.back();
    for (const Piece& piece : tensor.pieces()) {
      if (piece.logical.size.back() != columns || piece.entry->shape.back() != columns || columns == 0) continue;
      std::vector<Token>& tokens = tokens_[piece.entry];
      tokens.resize(static_cast<std::size_t>(element_count(piece.entry->shape) / columns));
      const Shape strides = row_major_strides(tensor.shape);
      const std::int64_t rows = element_count(piece.logical.size) / columns;
      for (std::int64_t i = 0; i < rows; ++i) {
        std::int64_t rest = i, logical = 0, local = piece.offset;
        for (std::size_t d = tensor.shape.size() - 1; d-- > 0; rest /= piece.logical.size[d]) {
          const std::int64_t step = rest % piece.logical.size[d];
          logical += (piece.logical.start[d] + step) * strides[d];
          local += step * piece.strides[d];
        }
        tokens[static_cast<std::size_t>(local / columns)] = {tensor.id.microbatch, logical / columns};
      }
    }
  }

  std::unordered_map<const Entry*, std::vector<Token>> tokens_;
};

// The recorded inputs by rank and call, to be found by pattern.
class TokenReader::InputsByCall {
 public:
  explicit InputsByCall(const RankTable& table) {
    for (const PresentRank& rank : table.ranks) {
      for (const Entry& entry : rank.trace->entries) {
        if (entry.id.kind == Kind::kInput) inputs_[key(rank.trace->rank, entry.id)].push_back(&entry);
      }
    }
  }

  // The input of `rank` that matches `pattern` and is nearest to `entry`; null when there is none.
  const Entry* find(std::int32_t rank, const Entry& entry, Pass pass, const std::string& pattern) const {
    TensorId id = entry.id;
    id.pass = pass;
    const Entry* nearest = nullptr;
    for (const Entry* input : matching(key(rank, id), pattern)) {
      if (nearest == nullptr || is_nearer(entry.id.name, input->id.name, nearest->id.name)) nearest = input;
    }
    return nearest;
  }

 private:
  using Key = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t, Pass>;
  static Key key(std::int32_t rank, const TensorId& id) {
    return {rank, id.iteration, id.microbatch, id.chunk, id.pass};
  }

  // Every expert of a layer asks again, so the answers are kept.
  const std::vector<const Entry*>& matching(const Key& key, const std::string& pattern) const {
    const auto [found, is_new] = matching_.try_emplace({key, pattern});
    const auto inputs = inputs_.find(key);
    if (is_new && inputs != inputs_.end()) {
      for (const Entry* input : inputs->second) {
        if (matches(pattern, input->id.name)) found->second.push_back(input);
      }
    }
    return found->second;
  }

  std::map<Key, std::vector<const Entry*>> inputs_;
  mutable std::map<std::pair<Key, std::string>, std::vector<const Entry*>> matching_;
};

TokenReader::TokenReader(const RankTable& table, const Alignment& alignment, const std::set<std::string>& patterns)
    : inputs_(std::make_unique<const InputsByCall>(table)),
      sources_(std::make_unique<const SourceTensors>(alignment, patterns)) {}

TokenReader::~TokenReader() = default;

std::optional<std::string> TokenReader::read(const RowShard& shard, std::vector<Token>& tokens) const {
  const RowRule& rule = *shard.placement->rule->rows;
  const Entry& entry = *shard.entry;
  const std::int32_t rank = shard.holder->trace->rank;
  // The rows of a gradient are the tokens of the forward: the inputs of its call say which.
  const Entry* ids = inputs_->find(rank, entry, entry.id.pass, rule.ids);
  const std::int64_t rows = entry.shape.empty() ? -1 : entry.shape[0];
  if (ids == nullptr)
    return fmt::format("rank {} has recorded no '{}' that says which tokens these are", rank, rule.ids);
  if (ids->dtype != Dtype::kInt64 || ids->shape != Shape{rows, 2}) {
    return fmt::format("'{}' of rank {} is {} {}; expected int64 [{}, 2]", printable(ids->id.name), rank,
                       name_of(ids->dtype), to_string(ids->shape), rows);
  }
  const std::byte* data = shard.holder->trace->bytes_of(*ids);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t from[2];  // a rank, and a local row of its source tensor
    std::memcpy(from, data + row * 16, 16);
    const std::vector<Token>* source = source_on(from[0], entry, rule.of);
    if (source == nullptr || from[1] < 0 || from[1] >= static_cast<std::int64_t>(source->size())) {
      return fmt::format("row {} on rank {} is said to be row {} of '{}' on rank {}, which there is not", row, rank,
                         from[1], rule.of, from[0]);
    }
    tokens.push_back((*source)[static_cast<std::size_t>(from[1])]);
  }
  return std::nullopt;
}

const std::vector<Token>* TokenReader::source_on(std::int64_t rank, const Entry& entry,
                                                 const std::string& pattern) const {
  if (rank < 0 || rank > std::numeric_limits<std::int32_t>::max()) return nullptr;
  const auto [known, is_new] = found_.try_emplace(std::pair(rank, &entry), nullptr);
  if (is_new) {
    const Entry* source = inputs_->find(static_cast<std::int32_t>(rank), entry, Pass::kForward, pattern);
    known->second = source == nullptr ? nullptr : sources_->find(source);
  }
  return known->second;
}

TokenCounts::TokenCounts(const Alignment& alignment, const std::set<std::string>& patterns) {
  for (const auto& [id, tensor] : alignment.tensors) {
    if (id.kind != Kind::kInput || id.pass != Pass::kForward) continue;
    if (tensor.shape.size() < 2 || tensor.shape.back() == 0) continue;
    for (const std::string& pattern : patterns) {
      if (!matches(pattern, id.name)) continue;
      inputs_[{pattern, id.iteration}][id.name][id.microbatch] = element_count(tensor.shape) / tensor.shape.back();
    }
  }
}

std::map<std::int32_t, std::int64_t> TokenCounts::of(std::int32_t iteration, const std::string& pattern,
                                                     const std::string& name) const {
  const auto inputs = inputs_.find({pattern, iteration});
  if (inputs == inputs_.end()) return {};
  auto nearest = inputs->second.begin();
  for (auto input = nearest; input != inputs->second.end(); ++input) {
    if (is_nearer(name, input->first, nearest->first)) nearest = input;
  }
  return nearest->second;
}

}  // namespace ttrace
