#include "align/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <tuple>
#include <unordered_map>

#include "align/describe.h"
#include "align/dimension.h"
#include "align/fragment.h"
#include "align/pieces.h"
#include "ttrace/tensor_name.h"

namespace ttrace {
namespace {

// A token of the logical tensor that the rows came from; one of padding has row -1.
struct Token {
  std::int32_t microbatch = kNoMicrobatch;
  std::int64_t row = -1;
};

// The tokens of one recorded source tensor, by its local row.
using Source = std::vector<Token>;

// One row of a recorded tensor.
struct HeldRow {
  const RankTrace* rank = nullptr;
  const Entry* entry = nullptr;
  std::int64_t local = 0;
};

Finding about(const RowShard& shard, const std::string& what) {
  Finding finding;
  finding.id = shard.entry->id;
  finding.id.name = shard.name;
  finding.id.chunk = 0;
  finding.verdict = Verdict::kFail;
  finding.reason = Reason::kShapeMismatch;
  finding.ranks = {shard.holder->trace->rank};
  finding.order = shard.entry->order;
  finding.message = fmt::format("{}: {}", to_string(finding.id), what);
  return finding;
}

// The tensors that `of` patterns name, by what was recorded of them.
class Sources {
 public:
  Sources(const Alignment& alignment, const std::set<std::string>& patterns) {
    for (const auto& [id, tensor] : alignment.tensors) {
      if (id.kind != Kind::kInput || id.pass != Pass::kForward || tensor.shape.size() < 2) continue;
      const bool named = std::any_of(patterns.begin(), patterns.end(),
                                     [&, &name = id.name](const std::string& p) { return matches(p, name); });
      if (named) add(tensor);
    }
  }
  const Source* find(const Entry* entry) const {
    const auto found = sources_.find(entry);
    return found == sources_.end() ? nullptr : &found->second;
  }

 private:
  void add(const LogicalTensor& tensor) {
    const std::int64_t columns = tensor.shape.back();
    for (const Piece& piece : tensor.pieces()) {
      if (piece.logical.size.back() != columns || piece.entry->shape.back() != columns || columns == 0) continue;
      Source& source = sources_[piece.entry];
      source.resize(static_cast<std::size_t>(element_count(piece.entry->shape) / columns));
      const Shape strides = row_major_strides(tensor.shape);
      const std::int64_t rows = element_count(piece.logical.size) / columns;
      for (std::int64_t i = 0; i < rows; ++i) {
        std::int64_t rest = i, logical = 0, local = piece.offset;
        for (std::size_t d = tensor.shape.size() - 1; d-- > 0; rest /= piece.logical.size[d]) {
          const std::int64_t step = rest % piece.logical.size[d];
          logical += (piece.logical.start[d] + step) * strides[d];
          local += step * piece.strides[d];
        }
        source[static_cast<std::size_t>(local / columns)] = {tensor.id.microbatch, logical / columns};
      }
    }
  }

  std::unordered_map<const Entry*, Source> sources_;
};

// A rank's integer inputs and source tensors, to be found by pattern in the same call.
class Companions {
 public:
  explicit Companions(const RankTable& table) {
    for (const PresentRank& rank : table.ranks) {
      for (const Entry& entry : rank.trace->entries) {
        if (entry.id.kind == Kind::kInput) inputs_[key(rank.trace->rank, entry.id)].push_back(&entry);
      }
    }
  }
  const Entry* find(std::int32_t rank, const Entry& entry, Pass pass, const std::string& pattern) const {
    TensorId id = entry.id;
    id.pass = pass;
    const Entry* best = nullptr;
    for (const Entry* input : matching(key(rank, id), pattern)) {
      if (best == nullptr || is_nearer(entry.id.name, input->id.name, best->id.name)) best = input;
    }
    return best;
  }

 private:
  using Key = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t, Pass>;
  static Key key(std::int32_t rank, const TensorId& id) {
    return {rank, id.iteration, id.microbatch, id.chunk, id.pass};
  }
  // Asked for again by every expert of a layer.
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

// Which token each row of a shard is; or what is wrong with what was recorded of it.
class Identities {
 public:
  Identities(const RankTable& table, const Sources& sources) : companions_(table), sources_(sources) {}

  // Appends the tokens.
  std::optional<std::string> read(const RowShard& shard, std::vector<Token>& tokens) const {
    const RowRule& rule = *shard.placement->rule->rows;
    const Entry& entry = *shard.entry;
    const std::int32_t rank = shard.holder->trace->rank;
    // Gradients have the identity of the forward.
    const Entry* ids = companions_.find(rank, entry, entry.id.pass, rule.ids);
    const std::int64_t rows = entry.shape.empty() ? -1 : entry.shape[0];
    if (ids == nullptr)
      return fmt::format("rank {} has recorded no '{}' that says which tokens these are", rank, rule.ids);
    if (ids->dtype != Dtype::kInt64 || ids->shape != Shape{rows, 2}) {
      return fmt::format("'{}' of rank {} is {} {}; expected int64 [{}, 2]", printable(ids->id.name), rank,
                         name_of(ids->dtype), to_string(ids->shape), rows);
    }
    const std::byte* data = shard.holder->trace->bytes_of(*ids);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::int64_t from[2];
      std::memcpy(from, data + row * 16, 16);
      const Source* source = source_on(from[0], entry, rule.of);
      if (source == nullptr || from[1] < 0 || from[1] >= static_cast<std::int64_t>(source->size())) {
        return fmt::format("row {} on rank {} is said to be row {} of '{}' on rank {}, which there is not", row, rank,
                           from[1], rule.of, from[0]);
      }
      tokens.push_back((*source)[static_cast<std::size_t>(from[1])]);
    }
    return std::nullopt;
  }

 private:
  const Source* source_on(std::int64_t rank, const Entry& entry, const std::string& pattern) const {
    if (rank < 0 || rank > std::numeric_limits<std::int32_t>::max()) return nullptr;
    const auto key = std::pair(rank, &entry);
    const auto [known, is_new] = found_.try_emplace(key, nullptr);
    if (is_new) {
      const Entry* source = companions_.find(static_cast<std::int32_t>(rank), entry, Pass::kForward, pattern);
      known->second = source == nullptr ? nullptr : sources_.find(source);
    }
    return known->second;
  }

  Companions companions_;
  const Sources& sources_;
  mutable std::map<std::pair<std::int64_t, const Entry*>, const Source*> found_;
};

// What the pieces of one tensor follow from.
struct RowPlan {
  std::vector<Dimension> dimensions;  // all but the first
  // By row: the holders, with the part of the dimensions and the term of the sum that they hold.
  struct Holder {
    HeldRow held;
    std::vector<std::int64_t> digits;
    std::int32_t term = 0, replica = 0;
  };
  std::map<std::int64_t, std::vector<Holder>> rows;
};

std::vector<Piece> make_row_pieces(const RowPlan& plan) {
  std::vector<Piece> pieces;
  for (const auto& [row, holders] : plan.rows) {
    for (const RowPlan::Holder& holder : holders) {
      const RankTrace& rank = *holder.held.rank;
      const Entry& entry = *holder.held.entry;
      const Shape strides = row_major_strides(entry.shape);
      const Shape inner(entry.shape.begin() + 1, entry.shape.end());
      for (PlacedBox& box : boxes_of(plan.dimensions, holder.digits, {Shape(inner.size(), 0), inner})) {
        Piece& piece = pieces.emplace_back();
        piece.rank = rank.rank;
        piece.entry = &entry;
        piece.data = rank.bytes_of(entry);
        piece.file = rank.file.get();
        piece.strides = strides;
        piece.offset = holder.held.local * strides[0];
        for (std::size_t d = 0; d < inner.size(); ++d) piece.offset += box.local.start[d] * strides[d + 1];
        piece.logical = std::move(box.logical);
        piece.logical.start.insert(piece.logical.start.begin(), row);
        piece.logical.size.insert(piece.logical.size.begin(), 1);
        piece.replica = holder.replica;
        piece.term = holder.term;
      }
    }
  }
  sort_pieces(pieces);
  return pieces;
}

std::int64_t coordinate(const PresentRank& rank, const AxisUse& use) {
  return use.axis < 0 ? 0 : rank.place[static_cast<std::size_t>(use.axis)];
}

// The tensors of one name and kind, by the micro-batch of their tokens.
class RowTensors {
 public:
  RowTensors(const Annotations& annotations, const Mesh& mesh, const std::vector<const RowShard*>& shards)
      : annotations_(annotations), mesh_(mesh), shards_(shards), placement_(*shards[0]->placement) {}

  // `tokens_in`: how many tokens each micro-batch has.
  void add_to(Alignment& alignment, const Identities& identities,
              const std::map<std::int32_t, std::int64_t>& tokens_in) {
    if (auto finding = lay_out_columns()) return alignment.findings.push_back(std::move(*finding));
    // An expert to which no token came is a tensor without rows.
    for (const auto& [microbatch, all] : tokens_in) plans_[microbatch];
    for (const RowShard* shard : shards_) {
      std::vector<Token> tokens;
      if (const auto objection = identities.read(*shard, tokens)) {
        return alignment.findings.push_back(about(*shard, *objection));
      }
      for (std::size_t row = 0; row < tokens.size(); ++row) {
        if (tokens[row].row < 0) continue;  // padding
        if (!tokens_in.contains(tokens[row].microbatch)) {
          return alignment.findings.push_back(
              about(*shard, fmt::format("row {} is a token of micro-batch {}, of which "
                                        "no whole '{}' was recorded",
                                        row, tokens[row].microbatch, placement_.rule->rows->of)));
        }
        hold(plans_[tokens[row].microbatch], tokens[row].row, *shard, static_cast<std::int64_t>(row));
      }
    }
    for (auto& [microbatch, plan] : plans_)
      add_tensor(alignment, microbatch, std::move(plan), tokens_in.at(microbatch));
  }

 private:
  // The sizes of the columns depend on the axes that split them, as everywhere.
  std::optional<Finding> lay_out_columns() {
    const Entry& first = *shards_[0]->entry;
    dimensions_ = dimensions_of(placement_, shards_[0]->name, first.shape, nullptr);
    for (const RowShard* shard : shards_) {
      const Entry& entry = *shard->entry;
      if (entry.dtype != first.dtype || entry.shape.size() != first.shape.size()) {
        return about(*shard, fmt::format("{} {} on rank {}, {} {} on rank {}", name_of(first.dtype),
                                         to_string(first.shape), shards_[0]->holder->trace->rank, name_of(entry.dtype),
                                         to_string(entry.shape), shard->holder->trace->rank));
      }
      const std::vector<std::int64_t> digits = digits_of_shard(*shard);
      for (std::size_t d = 1; d < dimensions_.size(); ++d) {
        std::int64_t& size = dimensions_[d].sizes[part_of(dimensions_[d], digits)];
        if (size >= 0 && size != entry.shape[d]) {
          return about(*shard, fmt::format("shards do not fit together in dimension {}", d));
        }
        size = entry.shape[d];
      }
    }
    dimensions_.erase(dimensions_.begin());
    try {
      for (Dimension& dimension : dimensions_) lay_out(dimension);
    } catch (const LayoutError& error) {
      return about(*shards_[0], error.what());
    }
    return std::nullopt;
  }

  std::vector<std::int64_t> digits_of_shard(const RowShard& shard) const {
    std::vector<std::int64_t> digits;
    for (const AxisUse& use : placement_.uses) {
      if (use.placement == Placement::kShard) digits.push_back(coordinate(*shard.holder, use));
    }
    return digits;
  }

  // A row that several ranks hold in the same part is held in copies.
  void hold(RowPlan& plan, std::int64_t row, const RowShard& shard, std::int64_t local) const {
    RowPlan::Holder holder{{shard.holder->trace, shard.entry, local}, digits_of_shard(shard), 0, 0};
    for (const AxisUse& use : placement_.uses) {
      if (use.placement != Placement::kPartial) continue;
      holder.term = static_cast<std::int32_t>(holder.term * use.split.size + coordinate(*shard.holder, use));
    }
    std::vector<RowPlan::Holder>& holders = plan.rows[row];
    for (const RowPlan::Holder& other : holders) {
      holder.replica += other.digits == holder.digits && other.term == holder.term ? 1 : 0;
    }
    holders.push_back(std::move(holder));
  }

  // Every row needs one holder for each part and each term.
  void add_tensor(Alignment& alignment, std::int32_t microbatch, RowPlan plan, std::int64_t all) const {
    std::size_t needed = 1;
    for (const AxisUse& use : placement_.uses) {
      if (use.placement != Placement::kReplicate) needed *= static_cast<std::size_t>(use.split.size);
    }
    LogicalTensor tensor;
    tensor.id = shards_[0]->entry->id;
    tensor.id.name = shards_[0]->name;
    tensor.id.chunk = 0;
    tensor.id.microbatch = microbatch;
    tensor.dtype = shards_[0]->entry->dtype;
    tensor.module_class = shards_[0]->entry->module_class;
    tensor.scale = scale_of(annotations_, mesh_, tensor.id.kind, tensor.id.name);
    tensor.order = shards_[0]->entry->order;
    tensor.annotated = true;
    tensor.factoring = placement_.view;
    tensor.shape = extents_of(dimensions_);
    tensor.shape.insert(tensor.shape.begin(), all);
    tensor.rows.emplace();
    tensor.router = placement_.rule->rows->logits;
    for (const auto& [row, holders] : plan.rows) {
      const auto first = std::count_if(holders.begin(), holders.end(), [](const auto& h) { return h.replica == 0; });
      if (static_cast<std::size_t>(first) != needed) {
        Finding finding = about(*shards_[0], "");
        finding.id = tensor.id;
        finding.verdict = Verdict::kMissing;
        finding.reason = Reason::kOmission;
        finding.ranks = {holders[0].held.rank->rank};
        finding.message = fmt::format("{}: token {} is held by {} of the {} ranks that split it", to_string(tensor.id),
                                      row, first, needed);
        return alignment.findings.push_back(std::move(finding));
      }
      tensor.rows->push_back(row);
      for (const RowPlan::Holder& holder : holders) {
        tensor.order = std::min(tensor.order, holder.held.entry->order);
        tensor.bytes += holder.held.entry->bytes / static_cast<std::uint64_t>(holder.held.entry->shape[0]);
      }
    }
    plan.dimensions = dimensions_;
    tensor.pieces = [plan = std::make_shared<const RowPlan>(std::move(plan))] { return make_row_pieces(*plan); };
    const TensorId id = tensor.id;
    alignment.tensors.emplace(id, std::move(tensor));
  }

  const Annotations& annotations_;
  const Mesh& mesh_;
  const std::vector<const RowShard*>& shards_;
  const TensorPlacement& placement_;
  std::vector<Dimension> dimensions_;
  std::map<std::int32_t, RowPlan> plans_;
};

std::size_t common_path(std::string_view a, std::string_view b) {
  const auto [end, ignored] =
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin());
  return static_cast<std::size_t>(end - a.begin());
}

// How many tokens each micro-batch has: the rows of inputs; each pattern goes through all tensors once.
class TokenCounts {
 public:
  TokenCounts(const Alignment& alignment, const std::set<std::string>& patterns) {
    for (const auto& [id, tensor] : alignment.tensors) {
      if (id.kind != Kind::kInput || id.pass != Pass::kForward) continue;
      if (tensor.shape.size() < 2 || tensor.shape.back() == 0) continue;
      for (const std::string& pattern : patterns) {
        if (!matches(pattern, id.name)) continue;
        inputs_[{pattern, id.iteration}][id.name][id.microbatch] = element_count(tensor.shape) / tensor.shape.back();
      }
    }
  }

  // By micro-batch, of the input that is nearest to `name`.
  std::map<std::int32_t, std::int64_t> of(std::int32_t iteration, const std::string& pattern,
                                          const std::string& name) const {
    const auto inputs = inputs_.find({pattern, iteration});
    if (inputs == inputs_.end()) return {};
    auto nearest = inputs->second.begin();
    for (auto input = nearest; input != inputs->second.end(); ++input) {
      if (is_nearer(name, input->first, nearest->first)) nearest = input;
    }
    return nearest->second;
  }

 private:
  using ByMicrobatch = std::map<std::int32_t, std::int64_t>;
  std::map<std::pair<std::string, std::int32_t>, std::map<std::string, ByMicrobatch>> inputs_;
};

}  // namespace

bool is_nearer(std::string_view name, std::string_view a, std::string_view b) {
  const auto nearness = [&, call = TensorName(name).call](std::string_view other) {
    return std::pair(common_path(name, other), TensorName(other).call == call);
  };
  return nearness(a) > nearness(b);
}

void align_rows(const RankTable& table, const Annotations& annotations, const std::vector<RowShard>& shards,
                Alignment& alignment) {
  if (shards.empty()) return;
  std::set<std::string> patterns;
  std::map<std::tuple<std::string, Kind, Pass, std::int32_t>, std::vector<const RowShard*>> tensors;
  for (const RowShard& shard : shards) {
    patterns.insert(shard.placement->rule->rows->of);
    const TensorId& id = shard.entry->id;
    tensors[{shard.name, id.kind, id.pass, id.iteration}].push_back(&shard);
  }
  const Sources sources(alignment, patterns);
  const Identities identities(table, sources);
  const TokenCounts counts(alignment, patterns);
  for (const auto& [key, all] : tensors) {
    const std::string& of = all[0]->placement->rule->rows->of;
    RowTensors(annotations, table.mesh, all)
        .add_to(alignment, identities, counts.of(std::get<3>(key), of, std::get<0>(key)));
  }
}

}  // namespace ttrace
