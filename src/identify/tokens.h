// The identity of routed tokens: which token of which micro-batch each row is that a rank recorded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/alignment.h"
#include "identify/identity.h"
#include "identify/ranks.h"
#include "identify/resolved_annotations.h"

namespace ttrace {

// Tells which of two names that match a pattern is the one meant: true when `a` shares a longer path with `name` than
// `b` does, or shares as long a one and is of the same call where `b` is not.
bool is_nearer(std::string_view name, std::string_view a, std::string_view b);

// One row of the logical tensor that the tokens came from, its dimensions but the last taken together.
struct Token {
  std::int32_t microbatch = kNoMicrobatch;
  std::int64_t row = -1;  // -1: padding
};

// Which tokens the rows of a recorded tensor are.
struct RoutedRows {
  std::vector<Token> tokens;  // where there are `experts`, with `LogicalTensor::rows` that count them
  std::int64_t experts = 0;   // `LogicalTensor::routed_experts`
};

// Reads which tokens the rows of recorded tensors are. `patterns` are the `of` patterns of the rules; the tensors that
// match them must be in `alignment` already. `table`, `annotations` and `alignment` must outlive it, unchanged.
class TokenReader {
 public:
  TokenReader(const RankTable& table, const ResolvedAnnotations& annotations, const Alignment& alignment,
              const std::set<std::string>& patterns);
  ~TokenReader();

  // True where the rank has recorded anything that says which tokens the shard's rows are.
  bool knows(const RowShard& shard) const;

  // Returns what is wrong with the recorded identities, if anything is.
  std::optional<std::string> read(const RowShard& shard, RoutedRows& rows) const;

 private:
  class SourceTensors;
  class TensorsByCall;
  struct Recorded;
  struct Source;
  std::optional<std::string> read_ids(const RowShard& shard, const Recorded& ids, RoutedRows& rows) const;
  std::optional<std::string> read_routing(const RowShard& shard, const std::vector<std::int64_t>& ranks,
                                          RoutedRows& rows) const;
  std::optional<std::string> read_source(const RowShard& shard, std::int64_t from, Source& source) const;
  std::optional<Recorded> find_ids(const RowShard& shard) const;
  std::optional<std::vector<std::int64_t>> find_sources(const RowShard& shard) const;
  const std::vector<Token>* source_on(std::int64_t rank, const Entry& entry, const std::string& pattern) const;

  const ResolvedAnnotations& annotations_;
  std::unique_ptr<const TensorsByCall> calls_;
  std::unique_ptr<const SourceTensors> sources_;
  mutable std::map<std::pair<std::int64_t, const Entry*>, const std::vector<Token>*> found_;
};

// How many tokens each micro-batch has.
class TokenCounts {
 public:
  TokenCounts(const Alignment& alignment, const std::set<std::string>& patterns);

  // The counts by micro-batch, taken from the input that matches `pattern` and is nearest to `name`.
  std::map<std::int32_t, std::int64_t> of(std::int32_t iteration, const std::string& pattern,
                                          const std::string& name) const;

 private:
  using ByMicrobatch = std::map<std::int32_t, std::int64_t>;
  std::map<std::pair<std::string, std::int32_t>, std::map<std::string, ByMicrobatch>> inputs_;
};

}  // namespace ttrace
