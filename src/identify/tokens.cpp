#include "identify/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

std::size_t common_prefix(std::string_view a, std::string_view b) {
  const auto [end, ignored] =
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin());
  return static_cast<std::size_t>(end - a.begin());
}

// The number of rows; -1 where the tensor has no dimensions.
std::int64_t rows_of(const Entry& entry) { return entry.shape.empty() ? -1 : entry.shape[0]; }

std::string describe(const Entry& entry, std::int32_t rank) {
  return fmt::format("'{}' of rank {} is {} {}", printable(entry.id.name), rank, name_of(entry.dtype),
                     to_string(entry.shape));
}

// The experts from `first` up to `last`, without it, whose tokens the rows of a shard are.
struct ExpertRange {
  std::int64_t first = 0, last = 0;
  bool one = false;  // the tensor is of one expert, which its name tells
};

// Of `experts` that there are. A tensor that is of no one expert has the tokens of all those on its rank.
ExpertRange experts_of(const RowShard& shard, const ResolvedAnnotations& annotations, std::int64_t experts) {
  if (!annotations.expert_axis) return {0, experts, false};
  if (const auto number = layer_number(shard.name, annotations.said.experts->layers)) {
    return {number->value, std::min(number->value + 1, experts), true};
  }
  const std::int64_t share = experts / annotations.expert_axis->size;
  const std::int64_t first = coordinate_on(*shard.holder, annotations.expert_axis->index) * share;
  return {first, first + share, false};
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

// A recorded tensor, and the rank that recorded it.
struct TokenReader::Recorded {
  const RankTrace* rank = nullptr;
  const Entry* entry = nullptr;
  const std::byte* data() const { return rank->bytes_of(*entry); }
};

// The tokens of one rank, and where its router sends them.
struct TokenReader::Source {
  const std::vector<Token>* tokens = nullptr;
  const std::byte* routing = nullptr;  // row-major, a row for each token
  std::int64_t columns = 0;            // of `routing`
  std::int64_t experts = 0;
  bool choices = false;  // a column is the int64 number of a chosen expert; else an expert's bool

  bool sends(std::int64_t token, std::int64_t expert) const {
    if (!choices) return routing[token * columns + expert] != std::byte{0};
    for (std::int64_t i = 0; i < columns; ++i) {
      std::int64_t chosen = 0;
      std::memcpy(&chosen, routing + (token * columns + i) * 8, sizeof(chosen));
      if (chosen == expert) return true;
    }
    return false;
  }
};

// The recorded inputs and outputs by rank and call, to be found by pattern.
class TokenReader::TensorsByCall {
 public:
  explicit TensorsByCall(const RankTable& table) {
    for (const PresentRank& rank : table.ranks) {
      for (const Entry& entry : rank.trace->entries) {
        if (entry.id.kind != Kind::kInput && entry.id.kind != Kind::kOutput) continue;
        tensors_[key(rank.trace->rank, entry.id.kind, entry.id)].push_back({rank.trace, &entry});
      }
    }
  }

  // The input or output of `rank` that matches `pattern` and is nearest to `entry`; nothing when there is none.
  std::optional<Recorded> find(std::int32_t rank, Kind kind, const Entry& entry, Pass pass,
                               const std::string& pattern) const {
    TensorId id = entry.id;
    id.pass = pass;
    std::optional<Recorded> nearest;
    for (const Recorded& tensor : matching(key(rank, kind, id), pattern)) {
      if (!nearest || is_nearer(entry.id.name, tensor.entry->id.name, nearest->entry->id.name)) nearest = tensor;
    }
    return nearest;
  }

  // The same of the entry's own pass; where nothing was recomputed, of the forward.
  std::optional<Recorded> find(std::int32_t rank, Kind kind, const Entry& entry, const std::string& pattern) const {
    auto found = find(rank, kind, entry, entry.id.pass, pattern);
    return found ? found : find(rank, kind, entry, Pass::kForward, pattern);
  }

 private:
  using Key = std::tuple<std::int32_t, Kind, std::int32_t, std::int32_t, std::int32_t, Pass>;
  static Key key(std::int32_t rank, Kind kind, const TensorId& id) {
    return {rank, kind, id.iteration, id.microbatch, id.chunk, id.pass};
  }

  // Every expert of a layer asks again, so the answers are kept.
  const std::vector<Recorded>& matching(const Key& key, const std::string& pattern) const {
    const auto [found, is_new] = matching_.try_emplace({key, pattern});
    const auto tensors = tensors_.find(key);
    if (is_new && tensors != tensors_.end()) {
      for (const Recorded& tensor : tensors->second) {
        if (matches(pattern, tensor.entry->id.name)) found->second.push_back(tensor);
      }
    }
    return found->second;
  }

  std::map<Key, std::vector<Recorded>> tensors_;
  mutable std::map<std::pair<Key, std::string>, std::vector<Recorded>> matching_;
};

TokenReader::TokenReader(const RankTable& table, const ResolvedAnnotations& annotations, const Alignment& alignment,
                         const std::set<std::string>& patterns)
    : annotations_(annotations),
      calls_(std::make_unique<const TensorsByCall>(table)),
      sources_(std::make_unique<const SourceTensors>(alignment, patterns)) {}

TokenReader::~TokenReader() = default;

// The rows of a gradient are the tokens of the forward: what its call recorded says which.
std::optional<TokenReader::Recorded> TokenReader::find_ids(const RowShard& shard) const {
  const RowRule& rule = *shard.placement->rule->rows;
  if (rule.ids.empty()) return std::nullopt;
  return calls_->find(shard.holder->trace->rank, Kind::kInput, *shard.entry, rule.ids);
}

// Without a name for them, the rank's own tokens are all.
std::optional<std::vector<std::int64_t>> TokenReader::find_sources(const RowShard& shard) const {
  const RowRule& rule = *shard.placement->rule->rows;
  const std::int32_t rank = shard.holder->trace->rank;
  if (rule.routing.empty()) return std::nullopt;
  if (rule.sources.empty()) return std::vector<std::int64_t>{rank};
  const auto recorded = calls_->find(rank, Kind::kInput, *shard.entry, rule.sources);
  if (!recorded || recorded->entry->dtype != Dtype::kInt64 || recorded->entry->shape.size() != 1) return std::nullopt;
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(recorded->entry->shape[0]));
  if (!ranks.empty()) std::memcpy(ranks.data(), recorded->data(), ranks.size() * sizeof(std::int64_t));
  return ranks;
}

bool TokenReader::knows(const RowShard& shard) const { return find_ids(shard) || find_sources(shard); }

std::optional<std::string> TokenReader::read(const RowShard& shard, RoutedRows& rows) const {
  if (const auto ids = find_ids(shard)) return read_ids(shard, *ids, rows);
  if (const auto sources = find_sources(shard)) return read_routing(shard, *sources, rows);
  const RowRule& rule = *shard.placement->rule->rows;
  return fmt::format("rank {} has recorded no '{}' that says which tokens these are", shard.holder->trace->rank,
                     rule.ids.empty() ? rule.sources : rule.ids);
}

std::optional<std::string> TokenReader::read_ids(const RowShard& shard, const Recorded& ids, RoutedRows& rows) const {
  const RowRule& rule = *shard.placement->rule->rows;
  const std::int32_t rank = shard.holder->trace->rank;
  const std::int64_t count = rows_of(*shard.entry);
  if (ids.entry->dtype != Dtype::kInt64 || ids.entry->shape != Shape{count, 2}) {
    return fmt::format("{}; expected int64 [{}, 2]", describe(*ids.entry, rank), count);
  }
  for (std::int64_t row = 0; row < count; ++row) {
    std::int64_t from[2];  // a rank, and a local row of its source tensor
    std::memcpy(from, ids.data() + row * 16, 16);
    const std::vector<Token>* source = source_on(from[0], *shard.entry, rule.of);
    if (source == nullptr || from[1] < 0 || from[1] >= static_cast<std::int64_t>(source->size())) {
      return fmt::format("row {} on rank {} is said to be row {} of '{}' on rank {}, which there is not", row, rank,
                         from[1], rule.of, from[0]);
    }
    rows.tokens.push_back((*source)[static_cast<std::size_t>(from[1])]);
  }
  return std::nullopt;
}

// The rows of each expert are, rank by rank of the sources, the tokens that the rank's router has sent to it.
std::optional<std::string> TokenReader::read_routing(const RowShard& shard, const std::vector<std::int64_t>& ranks,
                                                     RoutedRows& rows) const {
  const RowRule& rule = *shard.placement->rule->rows;
  std::vector<Source> sources(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (auto objection = read_source(shard, ranks[i], sources[i])) return objection;
    if (sources[i].experts != sources[0].experts) {
      return fmt::format("rank {} routes to {} experts, rank {} to {}", ranks[0], sources[0].experts, ranks[i],
                         sources[i].experts);
    }
  }
  const std::int64_t experts = sources.empty() ? 0 : sources[0].experts;
  const ExpertRange range = experts_of(shard, annotations_, experts);
  if (!range.one) rows.experts = experts;
  for (std::int64_t expert = range.first; expert < range.last; ++expert) {
    for (const Source& source : sources) {
      for (std::size_t i = 0; i < source.tokens->size(); ++i) {
        if (!source.sends(static_cast<std::int64_t>(i), expert)) continue;
        Token token = (*source.tokens)[i];
        if (!range.one && token.row >= 0) token.row = token.row * experts + expert;
        rows.tokens.push_back(token);
      }
    }
  }
  if (static_cast<std::int64_t>(rows.tokens.size()) == rows_of(*shard.entry)) return std::nullopt;
  return fmt::format("rank {} has {} rows here, and by '{}' of rank{} {} it should have got {}",
                     shard.holder->trace->rank, rows_of(*shard.entry), rule.routing, ranks.size() == 1 ? "" : "s",
                     fmt::join(ranks, ", "), rows.tokens.size());
}

std::optional<std::string> TokenReader::read_source(const RowShard& shard, std::int64_t from, Source& source) const {
  const RowRule& rule = *shard.placement->rule->rows;
  source.tokens = source_on(from, *shard.entry, rule.of);
  if (source.tokens == nullptr) return fmt::format("its tokens come from rank {}, which has no '{}'", from, rule.of);
  const auto rank = static_cast<std::int32_t>(from);
  const auto routing = calls_->find(rank, Kind::kOutput, *shard.entry, rule.routing);
  const auto logits = calls_->find(rank, Kind::kOutput, *shard.entry, rule.router.logits);
  if (!routing || !logits || logits->entry->shape.empty()) {
    return fmt::format("its tokens come from rank {}, which has recorded no '{}'", from,
                       routing ? rule.router.logits : rule.routing);
  }
  source.routing = routing->data();
  source.columns = routing->entry->shape.empty() ? 0 : routing->entry->shape.back();
  source.experts = logits->entry->shape.back();
  source.choices = routing->entry->dtype == Dtype::kInt64;
  const auto tokens = static_cast<std::int64_t>(source.tokens->size());
  const bool fits = source.choices || (routing->entry->dtype == Dtype::kBool && source.columns == source.experts);
  if (fits && element_count(routing->entry->shape) == tokens * source.columns) return std::nullopt;
  return fmt::format("{}; expected, for {} tokens, bool [.., {}] or int64 [.., choices]",
                     describe(*routing->entry, rank), tokens, source.experts);
}

const std::vector<Token>* TokenReader::source_on(std::int64_t rank, const Entry& entry,
                                                 const std::string& pattern) const {
  if (rank < 0 || rank > std::numeric_limits<std::int32_t>::max()) return nullptr;
  const auto [known, is_new] = found_.try_emplace(std::pair(rank, &entry), nullptr);
  if (is_new) {
    const auto source = calls_->find(static_cast<std::int32_t>(rank), Kind::kInput, entry, Pass::kForward, pattern);
    known->second = source ? sources_->find(source->entry) : nullptr;
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
