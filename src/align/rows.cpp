#include "align/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <tuple>

#include "align/dimension.h"
#include "align/pieces.h"
#include "identify/loss_scale.h"
#include "identify/tokens.h"

namespace ttrace {
namespace {

// One row of a recorded tensor.
struct HeldRow {
  const RankTrace* rank = nullptr;
  const Entry* entry = nullptr;
  std::int64_t local = 0;
};

TensorId id_of(const RowShard& shard) {
  TensorId id = shard.entry->id;
  id.name = shard.name;
  id.chunk = 0;
  return id;
}

// A finding that what the training code recorded with the shard cannot be right; `what` completes the message.
Finding make_finding(const RowShard& shard, const TensorId& id, const std::string& what) {
  Finding finding;
  finding.id = id;
  finding.verdict = Verdict::kFail;
  finding.reason = Reason::kShapeMismatch;
  finding.ranks = {shard.holder->trace->rank};
  finding.order = shard.entry->order;
  finding.message = fmt::format("{}: {}", to_string(finding.id), what);
  return finding;
}

// What may tell the shard's rows apart.
std::pair<std::string, std::string> ways_to_tell(const RowShard& shard) {
  return {shard.placement->rule->rows->ids, shard.placement->rule->rows->sources};
}

// Adds that the tensor was not seen whose rows nobody has told apart.
void add_unknown(const RowShard& shard, Alignment& alignment) {
  Finding finding = make_finding(shard, id_of(shard), "nobody has recorded which tokens its rows are");
  finding.verdict = Verdict::kMissing;
  finding.reason = Reason::kOmission;
  NotSeen statement;
  statement.reason = "nobody has recorded which tokens the rows are";
  statement.kinds = {finding.id.kind};
  statement.iterations = {finding.id.iteration};
  alignment.not_seen.add_tensor(statement, finding.id.name);
  alignment.findings.push_back(std::move(finding));
}

// Everything that the pieces of one tensor follow from.
struct RowHolders {
  std::vector<Dimension> dimensions;  // all but the first
  // One rank's hold of one row. The digits choose the part of the dimensions that it holds.
  struct Holder {
    HeldRow held;
    std::vector<std::int64_t> digits;
    std::int32_t term = 0, replica = 0;
  };
  std::map<std::int64_t, std::vector<Holder>> by_row;
};

std::vector<Piece> make_row_pieces(const RowHolders& row_holders) {
  std::vector<Piece> pieces;
  for (const auto& [row, holders] : row_holders.by_row) {
    for (const RowHolders::Holder& holder : holders) {
      const RankTrace& rank = *holder.held.rank;
      const Entry& entry = *holder.held.entry;
      const Shape strides = row_major_strides(entry.shape);
      const Shape inner(entry.shape.begin() + 1, entry.shape.end());
      for (PlacedBox& box : boxes_of(row_holders.dimensions, holder.digits, whole_box(inner))) {
        Piece& piece = pieces.emplace_back();
        piece.rank = rank.rank;
        piece.entry = &entry;
        piece.data = rank.stored_bytes_of(entry);
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

// Makes the tensors of one name, kind, pass and iteration: one for each micro-batch of their tokens.
class RowTensors {
 public:
  RowTensors(const ResolvedAnnotations& annotations, const Microbatches& microbatches,
             const std::vector<const RowShard*>& shards)
      : annotations_(annotations), microbatches_(microbatches), shards_(shards), placement_(*shards[0]->placement) {}

  // Adds the tensors to `alignment`, or the first finding, for each of them. `token_counts` has the number of tokens of
  // each micro-batch.
  void add_to(Alignment& alignment, const TokenReader& reader,
              const std::map<std::int32_t, std::int64_t>& token_counts) {
    std::optional<Objection> objection = lay_out_columns();
    // An expert to which no token came is a tensor without rows.
    for (const auto& [microbatch, count] : token_counts) holders_[microbatch];
    for (const RowShard* shard : shards_) {
      if (!objection) objection = read_rows(*shard, reader, token_counts);
    }
    for (auto& [microbatch, holders] : holders_) {
      if (!objection) add_tensor(alignment, microbatch, std::move(holders), token_counts.at(microbatch));
      if (objection) alignment.findings.push_back(finding_of(*objection, microbatch));
    }
    if (objection && holders_.empty()) alignment.findings.push_back(finding_of(*objection, kNoMicrobatch));
  }

 private:
  // Why what the training code recorded with the shard cannot be right.
  struct Objection {
    const RowShard* shard;
    std::string what;
  };

  static Finding finding_of(const Objection& objection, std::int32_t microbatch) {
    TensorId id = id_of(*objection.shard);
    if (microbatch != kNoMicrobatch) id.microbatch = microbatch;
    return make_finding(*objection.shard, id, objection.what);
  }

  // Lays out all dimensions but the first. As for every tensor, a size may depend only on the axes that split its
  // dimension; otherwise it is a finding.
  std::optional<Objection> lay_out_columns() {
    const Entry& first = *shards_[0]->entry;
    dimensions_ = dimensions_of(placement_, shards_[0]->name, first.shape, nullptr);
    for (const RowShard* shard : shards_) {
      const Entry& entry = *shard->entry;
      if (entry.dtype != first.dtype || entry.shape.size() != first.shape.size()) {
        return Objection{shard, fmt::format("{} {} on rank {}, {} {} on rank {}", name_of(first.dtype),
                                            to_string(first.shape), shards_[0]->holder->trace->rank,
                                            name_of(entry.dtype), to_string(entry.shape), shard->holder->trace->rank)};
      }
      const std::vector<std::int64_t> digits = digits_of_shard(*shard);
      for (std::size_t d = 1; d < dimensions_.size(); ++d) {
        std::int64_t& size = dimensions_[d].sizes[part_index(dimensions_[d], digits)];
        if (size >= 0 && size != entry.shape[d]) {
          return Objection{shard, fmt::format("shards do not fit together in dimension {}", d)};
        }
        size = entry.shape[d];
      }
    }
    dimensions_.erase(dimensions_.begin());
    try {
      for (Dimension& dimension : dimensions_) lay_out(dimension);
    } catch (const LayoutError& error) {
      return Objection{shards_[0], error.what()};
    }
    return std::nullopt;
  }

  // Adds the shard to the holders of the tokens that its rows are.
  std::optional<Objection> read_rows(const RowShard& shard, const TokenReader& reader,
                                     const std::map<std::int32_t, std::int64_t>& token_counts) {
    RoutedRows rows;
    if (const auto objection = reader.read(shard, rows)) return Objection{&shard, *objection};
    if (&shard != shards_[0] && rows.experts != experts_) {
      return Objection{&shard, fmt::format("the tokens of {} experts; expected {}", rows.experts, experts_)};
    }
    experts_ = rows.experts;
    for (std::size_t row = 0; row < rows.tokens.size(); ++row) {
      const Token& token = rows.tokens[row];
      if (token.row < 0) continue;  // padding
      if (!token_counts.contains(token.microbatch)) {
        return Objection{&shard, fmt::format("row {} is a token of micro-batch {}, of which no whole '{}' was recorded",
                                             row, token.microbatch, placement_.rule->rows->of)};
      }
      add_holder(holders_[token.microbatch], token.row, shard, static_cast<std::int64_t>(row));
    }
    return std::nullopt;
  }

  std::vector<std::int64_t> digits_of_shard(const RowShard& shard) const {
    std::vector<std::int64_t> digits;
    for (const AxisUse& use : placement_.uses) {
      if (use.placement == Placement::kShard) digits.push_back(coordinate_on(*shard.holder, use.axis));
    }
    return digits;
  }

  // Adds the shard as a holder of the row. Of several ranks that hold the same part of a row, each holds a replica.
  void add_holder(RowHolders& row_holders, std::int64_t row, const RowShard& shard, std::int64_t local) const {
    RowHolders::Holder holder{{shard.holder->trace, shard.entry, local}, digits_of_shard(shard), 0, 0};
    for (const AxisUse& use : placement_.uses) {
      if (use.placement != Placement::kPartial) continue;
      holder.term = static_cast<std::int32_t>(holder.term * use.split.size + coordinate_on(*shard.holder, use.axis));
    }
    std::vector<RowHolders::Holder>& holders = row_holders.by_row[row];
    for (const RowHolders::Holder& other : holders) {
      holder.replica += other.digits == holder.digits && other.term == holder.term ? 1 : 0;
    }
    holders.push_back(std::move(holder));
  }

  // Adds the tensor of one micro-batch, unless a row lacks a holder for one of its parts or terms.
  void add_tensor(Alignment& alignment, std::int32_t microbatch, RowHolders row_holders,
                  std::int64_t token_count) const {
    std::size_t needed = 1;
    for (const AxisUse& use : placement_.uses) {
      if (use.placement != Placement::kReplicate) needed *= static_cast<std::size_t>(use.split.size);
    }
    LogicalTensor tensor;
    tensor.id = id_of(*shards_[0]);
    tensor.id.microbatch = microbatch;
    tensor.dtype = shards_[0]->entry->dtype;
    tensor.module_class = shards_[0]->entry->module_class;
    tensor.scale = scale_of(annotations_, microbatches_, tensor.id, placement_, LossRole::kNone);
    // The shards are of all micro-batches; the tensor's order is that of the first that holds one of its rows.
    const bool is_empty = row_holders.by_row.empty();
    tensor.order = is_empty ? shards_[0]->entry->order : std::numeric_limits<std::uint64_t>::max();
    tensor.annotated = true;
    tensor.factoring = placement_.factoring;
    tensor.shape = extents_of(dimensions_);
    tensor.shape.insert(tensor.shape.begin(), token_count * std::max<std::int64_t>(experts_, 1));
    tensor.rows.emplace();
    tensor.router = std::make_shared<const RouterRule>(placement_.rule->rows->router);
    tensor.routed_experts = experts_;
    for (const auto& [row, holders] : row_holders.by_row) {
      const auto first = std::count_if(holders.begin(), holders.end(), [](const auto& h) { return h.replica == 0; });
      if (static_cast<std::size_t>(first) != needed) {
        Finding finding = make_finding(*shards_[0], tensor.id,
                                       fmt::format("token {} is held by {} of the {} ranks that split it",
                                                   row / std::max<std::int64_t>(experts_, 1), first, needed));
        finding.verdict = Verdict::kMissing;
        finding.reason = Reason::kOmission;
        finding.ranks = {holders[0].held.rank->rank};
        return alignment.findings.push_back(std::move(finding));
      }
      tensor.rows->push_back(row);
      for (const RowHolders::Holder& holder : holders) {
        tensor.order = std::min(tensor.order, holder.held.entry->order);
        tensor.sketched |= holder.held.entry->sketch != nullptr;
        tensor.bytes += holder.held.entry->bytes / static_cast<std::uint64_t>(holder.held.entry->shape[0]);
      }
    }
    row_holders.dimensions = dimensions_;
    tensor.pieces = [shared = std::make_shared<const RowHolders>(std::move(row_holders))] {
      return make_row_pieces(*shared);
    };
    const TensorId id = tensor.id;
    alignment.tensors.emplace(id, std::move(tensor));
  }

  const ResolvedAnnotations& annotations_;
  const Microbatches& microbatches_;
  const std::vector<const RowShard*>& shards_;
  const TensorPlacement& placement_;
  std::vector<Dimension> dimensions_;
  std::map<std::int32_t, RowHolders> holders_;  // by micro-batch
  std::int64_t experts_ = 0;                    // `LogicalTensor::routed_experts`
};

}  // namespace

void align_rows(const RankTable& table, const ResolvedAnnotations& annotations, const Microbatches& microbatches,
                const std::vector<RowShard>& shards, Alignment& alignment) {
  if (shards.empty()) return;
  std::set<std::string> patterns;
  std::map<std::tuple<std::string, Kind, Pass, std::int32_t>, std::vector<const RowShard*>> tensors;
  for (const RowShard& shard : shards) {
    patterns.insert(shard.placement->rule->rows->of);
    const TensorId& id = shard.entry->id;
    tensors[{shard.name, id.kind, id.pass, id.iteration}].push_back(&shard);
  }
  const TokenReader reader(table, annotations, alignment, patterns);
  const TokenCounts counts(alignment, patterns);
  std::set<std::pair<std::string, std::string>> known;  // `ids` and `sources` that some rank has recorded
  for (const RowShard& shard : shards) {
    if (reader.knows(shard)) known.insert(ways_to_tell(shard));
  }
  for (const auto& [key, row_shards] : tensors) {
    const std::string& of = row_shards[0]->placement->rule->rows->of;
    if (!known.contains(ways_to_tell(*row_shards[0]))) {
      add_unknown(*row_shards[0], alignment);
      continue;
    }
    RowTensors(annotations, microbatches, row_shards)
        .add_to(alignment, reader, counts.of(std::get<3>(key), of, std::get<0>(key)));
  }
}

}  // namespace ttrace
