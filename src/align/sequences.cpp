#include "align/sequences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "base/error.h"
#include "identify/placement.h"

namespace ttrace {
namespace {

constexpr std::int64_t kMaxSequences = std::int64_t{1} << 24;

const Entry* find_lengths(const LengthTensors& tensors, const Shard& shard, const std::string& pattern) {
  const TensorId& id = shard.entry->id;
  const auto found = tensors.find({pattern, shard.holder->trace->rank, id.iteration, id.microbatch});
  return found == tensors.end() ? nullptr : found->second;
}

// Reads cumulative lengths, which begin with 0 and never fall. Returns nothing where the tensor holds no such lengths.
std::optional<std::vector<std::int64_t>> read_lengths(const Shard& shard, const Entry& entry) {
  const std::int64_t count = element_count(entry.shape);
  if (count < 1 || count > kMaxSequences) return std::nullopt;
  if (entry.dtype != Dtype::kInt32 && entry.dtype != Dtype::kInt64) return std::nullopt;
  const std::byte* data = shard.holder->trace->bytes_of(entry);
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t value = 0;
    if (entry.dtype == Dtype::kInt64) {
      std::memcpy(&value, data + i * 8, 8);
    } else {
      std::int32_t narrow = 0;
      std::memcpy(&narrow, data + i * 4, 4);
      value = narrow;
    }
    const std::int64_t least = lengths.empty() ? 0 : lengths.back();
    if (value < least || value > kMaxExtent || (lengths.empty() && value != 0)) return std::nullopt;
    lengths.push_back(value);
  }
  return lengths;
}

std::string describe_bad_lengths(const Shard& shard, const Entry& entry) {
  return fmt::format(
      "'{}' of rank {} holds no cumulative sequence lengths; expected int32 or int64 that begin with 0 "
      "and never fall",
      printable(entry.id.name), shard.holder->trace->rank);
}

Sequences segments_of(const Shard& shard, const Entry& real, const Entry* padded) {
  const auto lengths = read_lengths(shard, real);
  if (!lengths) return describe_bad_lengths(shard, real);
  const auto room = padded == nullptr ? lengths : read_lengths(shard, *padded);
  if (!room) return describe_bad_lengths(shard, *padded);
  if (room->size() != lengths->size()) {
    return fmt::format("rank {} has {} sequences without padding and {} with it", shard.holder->trace->rank,
                       lengths->size() - 1, room->size() - 1);
  }
  std::vector<Segment> segments;
  for (std::size_t i = 0; i + 1 < lengths->size(); ++i) {
    const Segment segment{(*room)[i], (*room)[i + 1] - (*room)[i], (*lengths)[i + 1] - (*lengths)[i]};
    if (segment.size > segment.padded) {
      return fmt::format("rank {}: sequence {} has {} elements in a room of {}", shard.holder->trace->rank, i,
                         segment.size, segment.padded);
    }
    segments.push_back(segment);
  }
  return segments;
}

bool same(const std::vector<Segment>& a, const std::vector<Segment>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Segment& s, const Segment& t) {
    return s.start == t.start && s.padded == t.padded && s.size == t.size;
  });
}

}  // namespace

LengthTensors find_length_tensors(const Census& census, const Annotations& annotations) {
  std::set<std::string> patterns;
  for (const AnnotationRule& rule : annotations.rules) {
    for (const AxisPlacement& axis : rule.axes) {
      for (const std::string& pattern : {axis.cu_seqlens, axis.cu_seqlens_padded}) {
        if (!pattern.empty()) patterns.insert(pattern);
      }
    }
  }
  LengthTensors tensors;
  if (patterns.empty()) return tensors;
  for (const std::string& pattern : patterns) {
    const auto is_named = [&](const Entry& entry) { return matches(pattern, entry.id.name); };
    for_each_entry(census, is_named, [&](const PresentRank& rank, const Entry& entry) {
      if (is_floating(entry.dtype)) return;
      tensors.try_emplace({pattern, rank.trace->rank, entry.id.iteration, entry.id.microbatch}, &entry);
    });
  }
  return tensors;
}

Sequences sequences_of(const LengthTensors& tensors, const AxisUse& use, const Group& group) {
  std::optional<std::vector<Segment>> known;
  std::int32_t known_by = 0;
  for (const Shard& shard : group.shards) {
    const Entry* real = find_lengths(tensors, shard, use.cu_seqlens);
    if (real == nullptr) continue;
    const Entry* padded = use.cu_seqlens_padded.empty() ? nullptr : find_lengths(tensors, shard, use.cu_seqlens_padded);
    Sequences found = segments_of(shard, *real, padded);
    if (std::holds_alternative<std::string>(found)) return found;
    auto& segments = std::get<std::vector<Segment>>(found);
    if (!known) {
      known = std::move(segments);
      known_by = shard.holder->trace->rank;
    } else if (!same(*known, segments)) {
      return fmt::format("the packed sequences of ranks {} and {} differ", known_by, shard.holder->trace->rank);
    }
  }
  if (!known) {
    throw InputError(
        fmt::format("{}: no rank that holds {} has recorded an integer tensor '{}' in its micro-batch; "
                    "expected the cumulative sequence lengths",
                    where(*group.placement, use), to_string(group.id), use.cu_seqlens));
  }
  return *known;
}

}  // namespace ttrace
