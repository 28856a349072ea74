// The layouts, their nesting, packed sequences, padding, shared heads and fragments against a plain rule: which
// element of the whole is each element of a part. Sharding a known tensor by that rule and rebuilding it through
// the pieces is the identity, and what is then broken is found where it is.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "align/shard_mapping.h"
#include "compare/compare.h"
#include "files/annotation_file.h"
#include "support/mesh_trace.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

using Random = std::mt19937_64;
using Indices = std::vector<std::int64_t>;  // of the whole; -1 is padding

std::int64_t pick(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

// The plain rules. Each deals a sequence of `whole` elements, from `first` on, to `n` parts.
std::vector<Indices> deal(const std::string& layout, std::int64_t whole, std::int64_t first, std::int64_t n) {
  std::vector<Indices> parts(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < whole; ++i) {
    const std::int64_t chunk = whole == 0 ? 0 : i * 2 * n / whole;
    std::int64_t part = i * n / whole;
    if (layout == "zigzag") part = std::min(chunk, 2 * n - 1 - chunk);
    if (layout == "striped") part = i % n;
    parts[static_cast<std::size_t>(part)].push_back(first + i);
  }
  return parts;
}

// One dimension: what each part holds, and the annotation that says so.
struct Split {
  std::int64_t extent = 0;
  std::vector<Indices> parts;  // the axes' coordinates, the last fastest
  std::string annotation;
  bool shares = false;
};

void append(Indices& all, const Indices& more) { all.insert(all.end(), more.begin(), more.end()); }

const char* kTokenLayouts[] = {"contiguous", "zigzag", "striped"};

// Tokens over `cp`, then, when `sp` is more than 1, contiguously over that.
Split split_tokens(Random& random, std::int64_t cp, std::int64_t sp, std::vector<std::int64_t>& sequences) {
  Split split;
  const std::string layout = kTokenLayouts[pick(random, 0, 2)];
  const std::int64_t unit = cp * sp * (layout == "zigzag" ? 2 : 1);
  std::vector<Indices> parts(static_cast<std::size_t>(cp));
  const bool packed = pick(random, 0, 2) == 0;
  if (packed) sequences = {0};
  for (std::int64_t i = 0, n = packed ? pick(random, 1, 4) : 1; i < n; ++i) {
    const std::int64_t padded = unit * pick(random, 1, 3);
    const std::int64_t real = packed ? pick(random, 0, padded) : padded;
    const auto dealt = deal(layout, padded, 0, cp);
    for (std::size_t c = 0; c < parts.size(); ++c) {
      for (const std::int64_t index : dealt[c]) parts[c].push_back(index < real ? split.extent + index : -1);
    }
    split.extent += real;
    if (packed) sequences.insert(sequences.end(), {real, padded});
  }
  for (const Indices& part : parts) {
    const std::size_t size = part.size() / static_cast<std::size_t>(sp);
    for (std::size_t s = 0; s < static_cast<std::size_t>(sp); ++s) {
      const auto begin = part.begin() + static_cast<std::ptrdiff_t>(s * size);
      split.parts.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(size));
    }
  }
  split.annotation =
      "cp: {dim: 0, layout: " + layout + (packed ? ", cu_seqlens: cu, cu_seqlens_padded: room" : "") + "}";
  if (sp > 1) split.annotation += ", sp_dim: 0";
  return split;
}

Indices range(std::int64_t begin, std::int64_t end) {
  Indices indices;
  for (std::int64_t i = begin; i < end; ++i) indices.push_back(i);
  return indices;
}

Split split_blocks(Random& random, std::int64_t tp) {
  Split split;
  const Indices blocks = pick(random, 0, 1) == 0 ? Indices{1, 1} : Indices{pick(random, 1, 3), 1, 1};
  Indices units;  // of each part, in relative sizes
  for (std::int64_t c = 0; c < tp; ++c) units.push_back(pick(random, 1, 3));
  std::int64_t all = 0;
  for (const std::int64_t unit : units) all += unit;
  split.parts.resize(units.size());
  for (const std::int64_t block : blocks) {
    std::int64_t at = split.extent;
    for (std::size_t c = 0; c < units.size(); ++c) {
      append(split.parts[c], range(at, at + units[c] * block));
      at += units[c] * block;
    }
    split.extent += all * block;
  }
  split.annotation = "tp: {dim: 1, layout: stacked, blocks: [";
  for (const std::int64_t block : blocks) split.annotation += std::to_string(block) + ", ";
  split.annotation += "]}";
  split.annotation.replace(split.annotation.rfind(", ]"), 3, "]");
  return split;
}

Split split_heads(Random& random, std::int64_t tp, bool stacked) {
  Split split;
  const std::int64_t size = pick(random, 1, 2), kv = pick(random, 1, 3), query = kv * tp * pick(random, 1, 2);
  for (std::int64_t c = 0; c < tp; ++c) {
    std::set<std::int64_t> used;
    for (std::int64_t q = c * query / tp; q < (c + 1) * query / tp; ++q) used.insert(q * kv / query);
    Indices& part = split.parts.emplace_back();
    if (stacked) append(part, range(c * query / tp * size, (c + 1) * query / tp * size));
    for (std::int64_t block = 0; block < (stacked ? 2 : 1); ++block) {
      for (const std::int64_t head : used) {
        const std::int64_t at = ((stacked ? query + block * kv : 0) + head) * size;
        append(part, range(at, at + size));
      }
    }
  }
  split.extent = (stacked ? query + 2 * kv : kv) * size;
  split.shares = true;
  split.annotation = "tp: {dim: 1, layout: " + std::string(stacked ? "qkv_heads" : "kv_heads") +
                     ", query_heads: " + std::to_string(query) + ", kv_heads: " + std::to_string(kv) + "}";
  return split;
}

// Contiguous, with rows behind the last that are padding.
Split split_padded(Random& random, std::int64_t tp) {
  Split split;
  const std::int64_t size = pick(random, 1, 4);
  split.extent = pick(random, 1, size * tp);
  for (std::int64_t c = 0; c < tp; ++c) {
    Indices& part = split.parts.emplace_back(range(c * size, (c + 1) * size));
    for (std::int64_t& index : part) index = index < split.extent ? index : -1;
  }
  split.annotation = "tp: {dim: 1, unpadded: " + std::to_string(split.extent) + "}";
  return split;
}

// Each part begins with the last columns of the one before it.
Split split_halo(Random& random, std::int64_t tp) {
  Split split;
  const std::int64_t overlap = pick(random, 1, 3);
  for (std::int64_t c = 0; c < tp; ++c) {
    const std::int64_t begin = c == 0 ? 0 : split.extent - overlap;
    split.extent = begin + overlap + pick(random, 1, 3);
    split.parts.push_back(range(begin, split.extent));
  }
  split.shares = true;
  split.annotation = "tp: {dim: 1, layout: halo, overlap: " + std::to_string(overlap) + "}";
  return split;
}

// A tensor of two dimensions on a mesh of tp, cp and dp, and what every rank holds of it.
struct Case {
  std::int64_t tp = 1, cp = 1, dp = 1;
  bool sp = false, gradient = false;
  Split rows, columns;
  std::vector<std::int64_t> sequences;  // 0, then real and padded sizes

  Shape shape() const { return {rows.extent, columns.extent}; }
  std::int32_t world() const { return static_cast<std::int32_t>(tp * cp * dp); }
  const Indices& rows_of(std::int32_t rank) const {
    const std::int64_t c = rank / tp % cp;
    return rows.parts[static_cast<std::size_t>(sp ? c * tp + rank % tp : c)];
  }
  const Indices& columns_of(std::int32_t rank) const {
    return columns.parts[static_cast<std::size_t>(sp ? 0 : rank % tp)];
  }
  Kind kind() const { return gradient ? Kind::kGradOutput : Kind::kOutput; }
};

Case draw(Random& random) {
  Case c;
  c.tp = pick(random, 1, 4);
  c.cp = pick(random, 1, 3);
  c.dp = pick(random, 1, 2);
  c.sp = pick(random, 0, 2) == 0;
  c.gradient = pick(random, 0, 1) == 0;
  c.rows = split_tokens(random, c.cp, c.sp ? c.tp : 1, c.sequences);
  const std::int64_t what = pick(random, 0, 4);
  if (c.sp) {
    c.columns.extent = pick(random, 1, 4);
    c.columns.parts = {range(0, c.columns.extent)};
  } else {
    c.columns = what == 0   ? split_blocks(random, c.tp)
                : what == 1 ? split_padded(random, c.tp)
                : what == 2 ? split_halo(random, c.tp)
                            : split_heads(random, c.tp, what == 3);
  }
  return c;
}

// How many ranks of one replica hold a column.
std::int64_t holders(const Case& c, std::int64_t column) {
  std::int64_t count = 0;
  for (const Indices& part : c.columns.parts) count += std::count(part.begin(), part.end(), column);
  return count;
}

// What a rank has recorded for an element; NaN for padding, so that no use of it goes unseen. Of a shared column's
// gradient each holder has a share.
float recorded(const Case& c, std::int32_t rank, std::int64_t row, std::int64_t column) {
  if (row < 0 || column < 0) return std::numeric_limits<float>::quiet_NaN();
  const auto value = static_cast<float>(row * c.columns.extent + column + 1);
  if (!c.gradient || !c.columns.shares) return value;
  const std::int64_t count = holders(c, column);
  std::int64_t before = 0;
  for (std::int64_t part = 0; part < rank % c.tp; ++part) {
    const Indices& columns = c.columns.parts[static_cast<std::size_t>(part)];
    before += std::count(columns.begin(), columns.end(), column);
  }
  return before == 0 ? value - static_cast<float>(count - 1) : 1;
}

const std::string kName = "tensor";

void add_lengths(Trace& trace, std::size_t rank, const std::string& name, const std::vector<std::int32_t>& lengths) {
  std::vector<float> bits(lengths.size());
  std::memcpy(bits.data(), lengths.data(), lengths.size() * sizeof(float));
  add_tensor(trace, rank, tensor_id(Kind::kInput, name, 0), {static_cast<std::int64_t>(lengths.size())}, bits);
  trace.ranks[rank].entries.back().dtype = Dtype::kInt32;
}

Trace shard(const Case& c) {
  Trace trace = mesh_trace(
      "tp=" + std::to_string(c.tp) + ",cp=" + std::to_string(c.cp) + ",dp=" + std::to_string(c.dp) + ",sp=tp",
      c.world());
  for (std::int32_t rank = 0; rank < c.world(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    std::vector<std::int32_t> real = {0}, padded = {0};
    for (std::size_t i = 1; i < c.sequences.size(); i += 2) {
      real.push_back(real.back() + static_cast<std::int32_t>(c.sequences[i]));
      padded.push_back(padded.back() + static_cast<std::int32_t>(c.sequences[i + 1]));
    }
    if (!c.sequences.empty()) add_lengths(trace, at, "cu", real), add_lengths(trace, at, "room", padded);
    std::vector<float> values;
    for (const std::int64_t row : c.rows_of(rank)) {
      for (const std::int64_t column : c.columns_of(rank)) values.push_back(recorded(c, rank, row, column));
    }
    const Shape shape = {static_cast<std::int64_t>(c.rows_of(rank).size()),
                         static_cast<std::int64_t>(c.columns_of(rank).size())};
    add_tensor(trace, at, tensor_id(c.kind(), kName, 0), shape, values);
  }
  return trace;
}

// The data-parallel ranks hold one batch together, as copies.
Annotations annotations_of(const Case& c) {
  const std::string axes = c.rows.annotation + (c.columns.annotation.empty() ? "" : ", " + c.columns.annotation);
  return parse_annotations("tensor: {output: {dp: replicate, " + axes + "}}\ncu: {input: {dp: replicate}}\n" +
                               "room: {input: {dp: replicate}}\n",
                           "case.yaml");
}

Alignment aligned(const Case& c, const Trace& trace) {
  Alignment alignment = align(trace, annotations_of(c), {});
  std::erase_if(alignment.tensors, [](const auto& item) { return item.first.name != kName; });
  return alignment;
}

// The logical values by replica; what no piece fills stays 0.
std::map<int, std::vector<float>> rebuild(const LogicalTensor& tensor) {
  std::map<int, std::vector<float>> replicas;
  for (const Piece& piece : tensor.pieces()) {
    std::vector<float>& values = replicas[piece.replica];
    values.resize(static_cast<std::size_t>(element_count(tensor.shape)), 0);
    for (std::int64_t i = 0; i < element_count(piece.logical.size); ++i) {
      const std::int64_t row = i / piece.logical.size[1], column = i % piece.logical.size[1];
      const std::int64_t from = piece.offset + row * piece.strides[0] + column * piece.strides[1];
      REQUIRE(from < element_count(piece.entry->shape));
      float value = 0;
      std::memcpy(&value, piece.data + from * 4, 4);
      const std::int64_t to = (piece.logical.start[0] + row) * tensor.shape[1] + piece.logical.start[1] + column;
      values[static_cast<std::size_t>(to)] += value;
    }
  }
  return replicas;
}

// The first replica is the whole tensor; the others are so where they hold something.
void require_whole(const Case& c, const LogicalTensor& tensor) {
  REQUIRE(tensor.shape == c.shape());
  const auto rebuilt = rebuild(tensor);
  for (const auto& [replica, values] : rebuilt) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto expected = static_cast<float>(i + 1);
      if (replica == 0 || values[i] != 0) REQUIRE(values[i] == expected);
    }
  }
  if (element_count(c.shape()) > 0) REQUIRE(rebuilt.contains(0));
}

// Cuts what the rank recorded down to [begin, end) of its elements.
void keep_range(RankTrace& rank, std::int64_t begin, std::int64_t end) {
  Entry& entry = rank.entries.back();
  RecordedMapping mapping;
  mapping.fragment = Fragment{entry.shape, {}, Fragment::Range{begin, end}};
  entry.mapping = std::make_shared<const RecordedMapping>(mapping);
  entry.offset += static_cast<std::uint64_t>(begin) * 4;
  entry.bytes = static_cast<std::uint64_t>(end - begin) * 4;
  entry.shape = {end - begin};
}

// ... to some of its rows and columns.
void keep_rows(RankTrace& rank, std::int64_t begin, std::int64_t end) {
  Entry& entry = rank.entries.back();
  const Shape whole = entry.shape;
  RecordedMapping mapping;
  mapping.fragment = Fragment{whole, {{{{0, 0}, {end - begin, whole[1]}}, {{begin, 0}, {end - begin, whole[1]}}}}, {}};
  entry.mapping = std::make_shared<const RecordedMapping>(mapping);
  entry.offset += static_cast<std::uint64_t>(begin * whole[1]) * 4;
  entry.shape = {end - begin, whole[1]};
  entry.bytes = static_cast<std::uint64_t>(element_count(entry.shape)) * 4;
}

// The data-parallel ranks share what each of them would hold. Returns where the second one begins, by rank.
std::vector<std::int64_t> share(Random& random, const Case& c, Trace& trace) {
  std::vector<std::int64_t> cuts;
  const std::int64_t plane = c.tp * c.cp;
  for (std::int64_t rank = 0; rank < plane; ++rank) {
    RankTrace& first = trace.ranks[static_cast<std::size_t>(rank)];
    RankTrace& second = trace.ranks[static_cast<std::size_t>(rank + plane)];
    const Shape shape = first.entries.back().shape;
    const bool flat = pick(random, 0, 1) == 0;
    const std::int64_t all = flat ? element_count(shape) : shape[0];
    const std::int64_t cut = pick(random, 0, all);
    // Terms of a sum are not held twice.
    const bool twice = pick(random, 0, 2) == 0 && !(c.gradient && c.columns.shares);
    const std::int64_t overlap = twice ? pick(random, 0, cut) : cut;
    const auto keep = flat ? keep_range : keep_rows;
    keep(first, 0, cut);
    keep(second, overlap, all);
    cuts.push_back(cut);
  }
  return cuts;
}

constexpr int kCases = 2500;

}  // namespace

TEST_SUITE_BEGIN("align");

TEST_CASE("every layout rebuilds what its plain rule sharded") {
  Random random(4711);
  int zigzag = 0, striped = 0, packed = 0, shared = 0, nested = 0, terms = 0;
  for (int i = 0; i < kCases; ++i) {
    const Case c = draw(random);
    const Trace trace = shard(c);
    const Alignment alignment = aligned(c, trace);
    REQUIRE_MESSAGE(alignment.findings.empty(), alignment.findings[0].message);
    REQUIRE(alignment.tensors.size() == 1);
    require_whole(c, alignment.tensors.begin()->second);
    zigzag += c.cp > 1 && c.rows.annotation.find("zigzag") != std::string::npos ? 1 : 0;
    striped += c.cp > 1 && c.rows.annotation.find("striped") != std::string::npos ? 1 : 0;
    packed += c.sequences.size() > 1 ? 1 : 0;
    nested += c.sp && c.cp > 1 && c.tp > 1 ? 1 : 0;
    const bool several = c.columns.shares && c.columns.extent > 0 && holders(c, c.columns.extent - 1) > 1;
    shared += several && !c.gradient ? 1 : 0;
    terms += several && c.gradient ? 1 : 0;
  }
  for (const int count : {zigzag, striped, packed, shared, nested, terms}) CHECK(count > kCases / 50);
}

TEST_CASE("fragments of data-parallel ranks make up the tensor, overlapping or not") {
  Random random(1848);
  for (int i = 0; i < kCases; ++i) {
    Case c = draw(random);
    c.dp = 2;
    Trace trace = shard(c);
    share(random, c, trace);
    const Alignment alignment = aligned(c, trace);
    REQUIRE_MESSAGE(alignment.findings.empty(), alignment.findings[0].message);
    require_whole(c, alignment.tensors.begin()->second);
  }
}

TEST_CASE("a fragment that no rank holds is found, with the ranks that share it") {
  Random random(77);
  int checked = 0;
  for (int i = 0; i < kCases; ++i) {
    Case c = draw(random);
    c.dp = 2;
    Trace trace = shard(c);
    const std::vector<std::int64_t> cuts = share(random, c, trace);
    const auto plane = static_cast<std::int32_t>(c.tp * c.cp);
    const auto lost = static_cast<std::int32_t>(pick(random, 0, plane - 1));
    // Padding may be lost, and what the other rank holds as well.
    bool needed = false;
    std::int64_t at = 0;
    const Entry& kept = trace.ranks[static_cast<std::size_t>(lost + plane)].entries.back();
    const Fragment& fragment = *kept.mapping->fragment;
    const std::int64_t begin =
        fragment.range ? fragment.range->begin : fragment.slices[0].whole.start[0] * fragment.whole[1];
    for (const std::int64_t row : c.rows_of(lost)) {
      for (const std::int64_t column : c.columns_of(lost)) needed |= at++ < begin && row >= 0 && column >= 0;
    }
    trace.ranks[static_cast<std::size_t>(lost)].entries.pop_back();
    const Alignment alignment = aligned(c, trace);
    if (!needed) continue;
    ++checked;
    REQUIRE(alignment.tensors.empty());
    REQUIRE(alignment.findings.size() == 1);
    REQUIRE(alignment.findings[0].reason == Reason::kOmission);
    REQUIRE(alignment.findings[0].ranks == std::vector<std::int32_t>{lost, lost + plane});
  }
  CHECK(checked > kCases / 4);
}

TEST_CASE("a rank with swapped chunks or a wrong stride differs from the reference there, and only there") {
  Random random(99);
  int checked = 0;
  for (int i = 0; i < kCases; ++i) {
    const Case c = draw(random);
    Trace trace = shard(c);
    const auto wrong = static_cast<std::int32_t>(pick(random, 0, c.tp * c.cp - 1));
    Entry& entry = trace.ranks[static_cast<std::size_t>(wrong)].entries.back();
    const auto file = std::static_pointer_cast<const MemoryFile>(trace.ranks[static_cast<std::size_t>(wrong)].file);
    auto* data = reinterpret_cast<float*>(std::const_pointer_cast<MemoryFile>(file)->bytes.data() + entry.offset);
    const auto elements = static_cast<std::size_t>(element_count(entry.shape));
    const std::vector<float> before(data, data + elements);
    const auto rows = static_cast<std::size_t>(entry.shape[0]), columns = static_cast<std::size_t>(entry.shape[1]);
    const bool swap = pick(random, 0, 1) == 0;
    for (std::size_t e = 0; e < elements; ++e) {
      const std::size_t row = e / columns, column = e % columns;
      data[e] = swap ? before[(row + rows / 2) % rows * columns + column] : before[column * rows + row];
    }
    // What changed, by the plain rule; NaN is padding that moved.
    std::int64_t changed = 0;
    bool padding_moved = false;
    for (std::size_t e = 0; e < elements; ++e) {
      const bool real = !std::isnan(before[e]);
      padding_moved |= real == std::isnan(data[e]);
      changed += real && data[e] != before[e] ? 1 : 0;
    }
    // A shared head that differs from its other copies is another finding.
    if (changed == 0 || padding_moved || c.columns.shares) continue;
    ++checked;
    Case single;
    single.rows = {c.rows.extent, {range(0, c.rows.extent)}, "", false};
    single.columns = {c.columns.extent, {range(0, c.columns.extent)}, "", false};
    single.gradient = c.gradient;
    single.rows.annotation = "tp: replicate";
    const Trace reference_trace = shard(single);
    const Alignment reference = aligned(single, reference_trace), candidate = aligned(c, trace);
    REQUIRE(candidate.findings.empty());
    const TensorPair pair{&reference.tensors.begin()->second, &candidate.tensors.begin()->second};
    const Difference difference = compare({&pair, 1}, {0, {}, false})[0];
    REQUIRE(difference.differing == changed);
    REQUIRE(difference.worst_rank == wrong);
    for (const auto& [rank, square] : difference.square_by_rank) REQUIRE((square > 0) == (rank == wrong));
  }
  CHECK(checked > kCases / 8);
}

TEST_SUITE_END();
