#include "correspond/join_microbatches.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <ranges>
#include <set>
#include <tuple>
#include <utility>

#include "align/pieces.h"
#include "base/lookup.h"
#include "identify/given_inputs.h"
#include "identify/samples.h"
#include "merge/elements.h"
#include "merge/values.h"
#include "numeric/convert.h"
#include "numeric/xxh3.h"

namespace ttrace {
namespace {

// Where the samples of a micro-batch lie: which of the larger ones has them, and their numbers in it.
struct PlaceInBatch {
  std::int32_t microbatch = 0;
  Samples samples;
};

// Where the smaller micro-batches of an iteration lie, and how many samples the larger ones have. `crosses`: some smaller
// one has samples of several larger ones, and no place.
struct CutIteration {
  std::vector<PlaceInBatch> places;
  std::vector<std::int64_t> samples;
  bool crosses = false;
};

// The tensors of the micro-batches that lie in one larger one, and where.
struct JoinedPart {
  const LogicalTensor* tensor = nullptr;
  const PlaceInBatch* place = nullptr;
};
using JoinedParts = std::vector<JoinedPart>;

// The tensors of an iteration, which lie together.
auto tensors_of_iteration(const Alignment& alignment, std::int32_t iteration) {
  constexpr std::int32_t kBeforeAll = std::numeric_limits<std::int32_t>::min();
  TensorId first;
  first.iteration = iteration;
  first.microbatch = kBeforeAll;
  const auto begin = alignment.tensors.lower_bound(first);
  ++first.iteration;
  return std::ranges::subrange(begin, alignment.tensors.lower_bound(first));
}

// The tensors of an iteration by micro-batch; empty where some lacks it, or is no plain tensor.
std::vector<const LogicalTensor*> tensors_of(const Alignment& alignment, TensorId id, std::int64_t microbatches) {
  std::vector<const LogicalTensor*> tensors;
  for (std::int64_t i = 0; i < microbatches; ++i) {
    id.microbatch = static_cast<std::int32_t>(i);
    const LogicalTensor* tensor = find_tensor(alignment, id);
    if (tensor == nullptr || tensor->rows || tensor->kept || tensor->sketched) return {};
    tensors.push_back(tensor);
  }
  return tensors;
}

// The dimension in which alone the parts differ from the whole, each of them shorter. Nothing where there is none.
std::optional<std::size_t> dimension_cut(const Shape& whole, const std::vector<Shape>& parts) {
  std::optional<std::size_t> cut;
  for (const Shape& part : parts) {
    if (part.size() != whole.size()) return std::nullopt;
    for (std::size_t d = 0; d < whole.size(); ++d) {
      if (part[d] == whole[d]) continue;
      if (part[d] > whole[d] || cut.value_or(d) != d) return std::nullopt;
      cut = d;
    }
  }
  return cut;
}

std::vector<Shape> shapes_of(const std::vector<const LogicalTensor*>& tensors) {
  std::vector<Shape> shapes;
  for (const LogicalTensor* tensor : tensors) shapes.push_back(tensor->shape);
  return shapes;
}

// What one input tells of the samples: those of the smaller micro-batches by number among those of all of the larger
// ones, one behind the other.
struct TellingInput {
  Telling telling;
  std::vector<std::int64_t> of_larger, of_smaller;  // how many samples, by micro-batch
};

std::optional<TellingInput> told_by(const std::vector<const LogicalTensor*>& larger,
                                    const std::vector<const LogicalTensor*>& smaller) {
  if (larger.empty() || smaller.empty()) return std::nullopt;
  const std::vector<Shape> wholes = shapes_of(larger), parts = shapes_of(smaller);
  const bool are_alike = std::ranges::all_of(parts, [&](const Shape& part) { return part == wholes[0]; });
  const auto dim = are_alike && !wholes[0].empty() ? std::optional<std::size_t>(0) : dimension_cut(wholes[0], parts);
  if (!dim) return std::nullopt;
  TellingInput input;
  std::int64_t left = 0;
  std::vector<std::uint64_t> whole;
  std::vector<std::vector<std::uint64_t>> hashes;
  for (const LogicalTensor* tensor : larger) {
    if (tensor->shape.size() != wholes[0].size()) return std::nullopt;
    for (std::size_t d = 0; d < wholes[0].size(); ++d) {
      if (d != *dim && tensor->shape[d] != wholes[0][d]) return std::nullopt;
    }
    input.of_larger.push_back(tensor->shape[*dim]);
    left += tensor->shape[*dim];
    const auto rows = hashes_of_rows(bytes_of(*tensor).data(), tensor->shape, *dim, tensor->dtype);
    whole.insert(whole.end(), rows.begin(), rows.end());
  }
  for (const LogicalTensor* tensor : smaller) {
    if (tensor->dtype != larger[0]->dtype) return std::nullopt;
    input.of_smaller.push_back(tensor->shape[*dim]);
    left -= tensor->shape[*dim];
    hashes.push_back(hashes_of_rows(bytes_of(*tensor).data(), tensor->shape, *dim, tensor->dtype));
  }
  if (left != 0) return std::nullopt;
  const bool are_numbers = element_count(wholes[0]) == wholes[0][*dim];
  auto telling = telling_of_hashes(whole, hashes, are_numbers);
  if (!telling) return std::nullopt;
  input.telling = *std::move(telling);
  return input;
}

// True where `a` tells the samples better than `b`: by all micro-batches, of whole samples, by more different ones.
bool tells_better(const TellingInput& a, const TellingInput& b) {
  const auto rank = [](const TellingInput& input) {
    return std::tuple(!input.telling.exact, input.telling.samples.size(), -std::int64_t(input.telling.different));
  };
  return rank(a) < rank(b);
}

// Returns where the `many` smaller micro-batches of an iteration lie in the `few` larger ones; nothing where no input tells
// it.
std::optional<CutIteration> cut_of(const Alignment& larger, const Alignment& smaller, std::int32_t iteration,
                                   std::int64_t few, std::int64_t many) {
  std::optional<TellingInput> best;
  for (const auto& [id, tensor] : tensors_of_iteration(larger, iteration)) {
    const bool is_given = id.kind == Kind::kInput && id.pass == Pass::kForward && id.microbatch == 0;
    if (!is_given || !is_of_whole_model(id)) continue;
    auto told = told_by(tensors_of(larger, id, few), tensors_of(smaller, id, many));
    if (told && (!best || tells_better(*told, *best))) best = std::move(told);
  }
  if (!best) return std::nullopt;
  const std::int64_t samples = std::accumulate(best->of_larger.begin(), best->of_larger.end(), std::int64_t{0});
  const auto is_sample = [&](std::int64_t number) { return number >= 0 && number < samples; };
  if (!std::ranges::all_of(best->telling.samples, is_sample)) return std::nullopt;
  CutIteration cut;
  cut.samples = best->of_larger;
  auto sample = best->telling.samples.begin();
  for (const std::int64_t count : best->of_smaller) {
    if (count == 0) return std::nullopt;
    PlaceInBatch place{0, Samples(sample, sample + count)};
    sample += count;
    std::int64_t first = 0;
    while (place.samples[0] >= first + cut.samples[static_cast<std::size_t>(place.microbatch)]) {
      first += cut.samples[static_cast<std::size_t>(place.microbatch++)];
    }
    for (std::int64_t& number : place.samples) {
      number -= first;
      const bool is_in_it = number >= 0 && number < cut.samples[static_cast<std::size_t>(place.microbatch)];
      if (!is_in_it && !best->telling.exact) return std::nullopt;
      cut.crosses = cut.crosses || !is_in_it;
    }
    cut.places.push_back(std::move(place));
  }
  return cut;
}

// True where the iteration has nothing that a model was given, as light ones.
bool lacks_inputs(const Alignment& larger, std::int32_t iteration) {
  return std::ranges::none_of(tensors_of_iteration(larger, iteration), [&](const auto& item) {
    return item.first.kind == Kind::kInput && is_of_whole_model(item.first);
  });
}

// A tensor that all parts have in common, but for its pieces.
LogicalTensor like_parts(const TensorId& id, const Shape& shape, const JoinedParts& parts) {
  LogicalTensor all = *parts[0].tensor;
  all.id = id;
  all.shape = shape;
  all.bytes = 0;
  for (const auto& [tensor, place] : parts) {
    all.order = std::min(all.order, tensor->order);
    all.bytes += tensor->bytes;
    all.guessed = all.guessed || tensor->guessed;
    if (all.doubt.empty()) all.doubt = tensor->doubt;
  }
  return all;
}

// Appends a piece of a part for each stretch of its rows that lie one behind the other in the batch.
void append_rows(const Piece& piece, const PlaceInBatch& place, std::size_t dim, std::int64_t rows_a_sample,
                 std::vector<Piece>& pieces) {
  const std::int64_t begin = piece.logical.start[dim], end = begin + piece.logical.size[dim];
  const auto place_of = [&](std::int64_t row) {
    return place.samples[static_cast<std::size_t>(row / rows_a_sample)] * rows_a_sample + row % rows_a_sample;
  };
  for (std::int64_t row = begin; row < end;) {
    std::int64_t stop = row + 1;
    while (stop < end && place_of(stop) == place_of(row) + stop - row) ++stop;
    Piece of_batch = piece;
    of_batch.logical.start[dim] = place_of(row);
    of_batch.logical.size[dim] = stop - row;
    of_batch.offset += (row - begin) * piece.strides[dim];
    pieces.push_back(std::move(of_batch));
    row = stop;
  }
}

// The rows of all parts, along `dim`.
LogicalTensor rows_of(const TensorId& id, const Shape& shape, const JoinedParts& parts, std::size_t dim,
                      std::int64_t rows_a_sample) {
  LogicalTensor all = like_parts(id, shape, parts);
  all.guessed = all.guessed || rows_a_sample > 1;  // those of a sample may lie together, or apart
  std::vector<std::pair<LogicalTensor, PlaceInBatch>> kept;
  for (const auto& [tensor, place] : parts) kept.emplace_back(*tensor, *place);
  const auto shared = std::make_shared<const decltype(kept)>(std::move(kept));
  all.pieces = [shared, dim, rows_a_sample] {
    std::vector<Piece> pieces;
    for (const auto& [tensor, place] : *shared) {
      for (const Piece& piece : tensor.pieces()) append_rows(piece, place, dim, rows_a_sample, pieces);
    }
    sort_pieces(pieces);
    return pieces;
  };
  return all;
}

std::int32_t replicas_in(const std::vector<Piece>& pieces) {
  std::int32_t replicas = 0;
  for (const Piece& piece : pieces) replicas = std::max(replicas, piece.replica + 1);
  return replicas;
}

// The pieces of all parts, one part behind the other: each is a further term, or a further replica, as `number` says.
// Of terms, copies that only some of the parts have are left out: there is no sum of them.
std::vector<Piece> pieces_behind(const std::vector<LogicalTensor>& parts, std::int32_t Piece::* number) {
  std::vector<std::vector<Piece>> of_parts;
  std::int32_t replicas = std::numeric_limits<std::int32_t>::max(), first = 0;
  for (const LogicalTensor& part : parts) {
    of_parts.push_back(part.pieces());
    if (number == &Piece::term) replicas = std::min(replicas, replicas_in(of_parts.back()));
  }
  std::vector<Piece> pieces;
  for (const std::vector<Piece>& of_part : of_parts) {
    std::int32_t next = first;
    for (Piece piece : of_part) {
      if (piece.replica >= replicas) continue;
      piece.*number += first;
      next = std::max(next, piece.*number + 1);
      pieces.push_back(std::move(piece));
    }
    first = next;
  }
  sort_pieces(pieces);
  return pieces;
}

LogicalTensor joined_by(const TensorId& id, const Shape& shape, const JoinedParts& parts,
                        std::int32_t Piece::* number) {
  LogicalTensor all = like_parts(id, shape, parts);
  std::vector<LogicalTensor> kept;
  for (const auto& [tensor, place] : parts) kept.push_back(*tensor);
  all.pieces = [shared = std::make_shared<const std::vector<LogicalTensor>>(std::move(kept)), number] {
    return pieces_behind(*shared, number);
  };
  return all;
}

LogicalTensor sum_of(const TensorId& id, const Shape& shape, const JoinedParts& parts) {
  return joined_by(id, shape, parts, &Piece::term);
}

LogicalTensor mean_of(const TensorId& id, const Shape& shape, const JoinedParts& parts) {
  LogicalTensor all = sum_of(id, shape, parts);
  all.scale *= static_cast<double>(parts.size());
  return all;
}

// One tensor that all parts are copies of.
LogicalTensor copies_of(const TensorId& id, const Shape& shape, const JoinedParts& parts) {
  return joined_by(id, shape, parts, &Piece::replica);
}

// A tensor of one element that is in no file.
struct MadeValue {
  Entry entry;
  std::array<std::byte, sizeof(double)> bytes{};
};

LogicalTensor value_of(const TensorId& id, const Shape& shape, const JoinedParts& parts, double value) {
  const auto made = std::make_shared<MadeValue>();
  made->entry.id = id;
  made->entry.dtype = parts[0].tensor->dtype;
  made->entry.shape = shape;
  made->entry.bytes = static_cast<std::uint64_t>(size_of(made->entry.dtype));
  value *= parts[0].tensor->scale;
  narrow(&value, made->entry.dtype, 1, made->bytes.data());
  made->entry.checksum = XXH3_64bits(made->bytes.data(), made->entry.bytes);
  LogicalTensor all = like_parts(id, shape, parts);
  const std::int32_t rank = parts[0].tensor->pieces().at(0).rank;
  all.pieces = [made, shape, rank] {
    Piece piece;
    piece.rank = rank;
    piece.entry = &made->entry;
    piece.data = made->bytes.data();
    piece.logical = whole_box(shape);
    piece.strides = Shape(shape.size(), 1);
    return std::vector<Piece>{piece};
  };
  return all;
}

bool are_copies(const JoinedParts& parts) {
  const std::vector<std::byte> first = bytes_of(*parts[0].tensor);
  return std::all_of(parts.begin() + 1, parts.end(),
                     [&](const JoinedPart& part) { return bytes_of(*part.tensor) == first; });
}

// How values of micro-batches make up that of the batch.
enum class Made { kCopies, kSum, kMean, kWeighted, kUnknown };

// Puts the tensors of one iteration together.
class Joiner {
 public:
  Joiner(const Alignment& larger, const Alignment& smaller, const CutIteration& cut, std::int32_t iteration)
      : larger_(larger), smaller_(smaller), cut_(cut), iteration_(iteration) {}

  // The tensors of the larger micro-batches, by their names; what cannot be put together is in `apart`, and the tensors
  // that were are in `taken`.
  std::map<TensorId, LogicalTensor> run(std::set<TensorId>& apart, std::set<TensorId>& taken) const {
    std::map<TensorId, LogicalTensor> joined;
    for (const auto& [id, whole] : tensors_of_iteration(larger_, iteration_)) {
      if (id.microbatch == kNoMicrobatch) continue;
      const std::vector<TensorId> ids = ids_of_parts(id);
      if (ids.empty()) continue;
      if (auto tensor = join(whole)) {
        joined.emplace(id, *std::move(tensor));
        taken.insert(ids.begin(), ids.end());
      } else {
        apart.insert(ids.begin(), ids.end());
        apart.insert(id);
      }
    }
    return joined;
  }

 private:
  // Those of the smaller micro-batches that lie in that of `id`.
  std::vector<TensorId> ids_of_parts(TensorId id) const {
    std::vector<TensorId> ids;
    const std::int32_t microbatch = id.microbatch;
    for (std::size_t i = 0; i < cut_.places.size(); ++i) {
      id.microbatch = static_cast<std::int32_t>(i);
      if (cut_.places[i].microbatch == microbatch && find_tensor(smaller_, id) != nullptr) ids.push_back(id);
    }
    return ids;
  }

  // Empty where not all micro-batches have a part, or these are not alike.
  JoinedParts parts_of(const LogicalTensor& whole) const {
    JoinedParts parts;
    for (std::size_t i = 0; i < cut_.places.size(); ++i) {
      if (cut_.places[i].microbatch != whole.id.microbatch) continue;
      TensorId id = whole.id;
      id.microbatch = static_cast<std::int32_t>(i);
      const LogicalTensor* tensor = find_tensor(smaller_, id);
      const bool is_plain = tensor != nullptr && !tensor->rows && !tensor->kept && !tensor->sketched;
      if (!is_plain || smaller_.local.contains(id)) return {};
      if (!parts.empty() && (tensor->dtype != parts[0].tensor->dtype || tensor->scale != parts[0].tensor->scale)) {
        return {};
      }
      parts.push_back({tensor, &cut_.places[i]});
    }
    return parts;
  }

  std::optional<LogicalTensor> join(const LogicalTensor& whole) const {
    const TensorId& id = whole.id;
    const JoinedParts parts = parts_of(whole);
    if (parts.empty() || whole.rows || whole.kept || whole.sketched) return std::nullopt;
    if (std::ranges::any_of(parts, [&](const JoinedPart& part) { return part.tensor->shape != whole.shape; })) {
      return join_rows(whole, parts);
    }
    switch (made(whole, parts)) {
      case Made::kCopies:
        return copies_of(id, whole.shape, parts);
      case Made::kSum:
        return sum_of(id, whole.shape, parts);
      case Made::kMean:
        return mean_of(id, whole.shape, parts);
      case Made::kWeighted:
        return value_of(id, whole.shape, parts, *weighted_mean(id, parts));
      case Made::kUnknown:
        break;
    }
    return std::nullopt;
  }

  // Where each sample has the same number of rows along the one dimension that differs.
  std::optional<LogicalTensor> join_rows(const LogicalTensor& whole, const JoinedParts& parts) const {
    std::vector<Shape> shapes;
    for (const JoinedPart& part : parts) shapes.push_back(part.tensor->shape);
    const auto dim = dimension_cut(whole.shape, shapes);
    if (!dim) return std::nullopt;
    const std::int64_t samples = cut_.samples[static_cast<std::size_t>(whole.id.microbatch)];
    if (samples == 0) return std::nullopt;
    const std::int64_t rows = whole.shape[*dim] / samples;
    const auto has_rows = [&](std::int64_t extent, std::int64_t of) { return rows > 0 && extent == rows * of; };
    const bool fits = has_rows(whole.shape[*dim], samples) && std::ranges::all_of(parts, [&](const JoinedPart& part) {
                        return has_rows(part.tensor->shape[*dim], std::ssize(part.place->samples));
                      });
    return fits ? std::optional(rows_of(whole.id, whole.shape, parts, *dim, rows)) : std::nullopt;
  }

  // Of tensors that have the same shape in each micro-batch as in the batch.
  Made made(const LogicalTensor& whole, const JoinedParts& parts) const {
    const Kind kind = whole.id.kind;
    const bool is_gradient = kind == Kind::kGradOutput || kind == Kind::kGradInput;
    const bool is_one_value = element_count(whole.shape) == 1 && is_floating(whole.dtype);
    if (kind == Kind::kParamGrad) return Made::kSum;
    if (!is_gradient && kind != Kind::kScalar && are_copies(parts)) return Made::kCopies;
    if (!is_gradient && is_one_value) {
      const Made made = made_of_values(whole, parts);
      const auto mean = made == Made::kUnknown ? weighted_mean(whole.id, parts) : std::nullopt;
      const double wanted = values_of(whole).at(0);
      const bool is_weighted = mean && std::abs(*mean - wanted) <= near_value(whole.dtype) * std::abs(wanted);
      return is_weighted ? Made::kWeighted : made;
    }
    if (!is_gradient) return Made::kUnknown;
    if (!is_one_value) return Made::kSum;
    // d(batch) / d(micro-batch) is 1 / n in a mean, and 1 in a sum.
    const LogicalTensor* value =
        find_tensor(larger_, whole.id.with_kind(kind == Kind::kGradOutput ? Kind::kOutput : Kind::kInput));
    const JoinedParts values = value != nullptr ? parts_of(*value) : JoinedParts();
    const bool is_of_sum = !values.empty() && made(*value, values) == Made::kSum;
    if (!is_of_sum) return Made::kSum;
    return are_copies(parts) ? Made::kCopies : Made::kUnknown;
  }

  // How far a value may be from the larger one's, as a part of that, and be made of the same.
  static double near_value(Dtype dtype) {
    constexpr double kNearValue = 1e-4, kRoundings = 16;
    return std::max(kNearValue, kRoundings * epsilon_of(dtype));
  }

  // The mean of values that a program weights by itself before it adds them up: a model's own loss, by its tokens. What it
  // multiplies each by is the gradient of that. Nothing where these are not known, or have no sum.
  std::optional<double> weighted_mean(const TensorId& id, const JoinedParts& parts) const {
    if (id.kind != Kind::kOutput) return std::nullopt;
    const LogicalTensor* gradient = find_tensor(larger_, id.with_kind(Kind::kGradOutput));
    const JoinedParts weights = gradient != nullptr ? parts_of(*gradient) : JoinedParts();
    if (weights.size() != parts.size()) return std::nullopt;
    double sum = 0, of_weights = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const double weight = values_of(*weights[i].tensor).at(0);
      sum += weight * values_of(*parts[i].tensor).at(0);
      of_weights += weight;
    }
    return of_weights > 0 ? std::optional(sum / of_weights) : std::nullopt;
  }

  // A criterion takes the mean of its samples, or their sum; and a program divides its loss, or does not. A loss is the
  // one or the other, and nothing else: the mean where that is near the larger one's value, from which the sum is at least
  // twice as far. What else a module makes of all samples need be neither.
  static Made made_of_values(const LogicalTensor& whole, const JoinedParts& parts) {
    constexpr double kNearLoss = 0.125;
    const bool is_loss = whole.id.kind == Kind::kScalar;
    const double near = is_loss ? kNearLoss : near_value(whole.dtype);
    const double wanted = values_of(whole).at(0);
    double sum = 0;
    for (const JoinedPart& part : parts) sum += values_of(*part.tensor).at(0);
    const double mean = sum / static_cast<double>(parts.size());
    const auto is_near = [&](double value) { return std::abs(value - wanted) <= near * std::abs(wanted); };
    const auto is_alike = [&](const JoinedPart& part) {
      return part.place->samples.size() == parts[0].place->samples.size();
    };
    const bool is_mean = is_near(mean) && std::abs(mean - wanted) < std::abs(sum - wanted);
    if (is_mean) return std::ranges::all_of(parts, is_alike) ? Made::kMean : Made::kUnknown;
    return is_loss || is_near(sum) ? Made::kSum : Made::kUnknown;
  }

  const Alignment& larger_;
  const Alignment& smaller_;
  const CutIteration& cut_;
  std::int32_t iteration_;
};

// 0 where they are not equal.
std::int64_t common_of(const std::vector<std::int64_t>& numbers) {
  return std::ranges::all_of(numbers, [&](std::int64_t other) { return other == numbers[0]; }) ? numbers[0] : 0;
}

// How many samples each of the smaller micro-batches has; 0 where they are not alike.
std::int64_t samples_of_smaller(const CutIteration& cut) {
  std::vector<std::int64_t> samples;
  for (const PlaceInBatch& place : cut.places) samples.push_back(std::ssize(place.samples));
  return common_of(samples);
}

// Sets what is of a micro-batch apart in iterations of which both sides run as many, of other samples of the same batch.
void set_crossing_apart(const Alignment& reference, Alignment& candidate) {
  const auto of_candidate = microbatch_counts(candidate);
  std::optional<std::pair<std::int64_t, CutIteration>> first;
  for (const auto& [iteration, count] : microbatch_counts(reference)) {
    const auto found = of_candidate.find(iteration);
    if (count < 2 || found == of_candidate.end() || found->second != count) continue;
    std::optional<CutIteration> cut = cut_of(reference, candidate, iteration, count, count);
    if (!cut && first && first->first == count && lacks_inputs(reference, iteration)) cut = first->second;
    if (!cut || !cut->crosses) continue;
    if (!first) first.emplace(count, *cut);
    candidate.joined[iteration] = {count, count, true, common_of(cut->samples), samples_of_smaller(*cut)};
    for (const auto& [id, tensor] : tensors_of_iteration(candidate, iteration)) {
      if (id.microbatch != kNoMicrobatch) candidate.apart.insert(id);
    }
  }
}

}  // namespace

std::vector<std::string> join_microbatches(Alignment& reference, Alignment& candidate) {
  std::vector<std::string> notes;
  std::optional<std::pair<MicrobatchCounts, CutIteration>> first_told;
  for (const auto& [iteration, counts] : other_microbatch_counts(reference, candidate)) {
    const bool is_candidate_cut = counts.candidate > counts.reference;
    const Alignment& whole = is_candidate_cut ? reference : candidate;
    Alignment& parts = is_candidate_cut ? candidate : reference;
    std::optional<CutIteration> cut = cut_of(whole, parts, iteration, std::min(counts.reference, counts.candidate),
                                             std::max(counts.reference, counts.candidate));
    if (cut && !first_told) first_told.emplace(counts, *cut);
    const bool is_as_first = first_told && counts == first_told->first && lacks_inputs(whole, iteration);
    if (!cut && is_as_first) cut = first_told->second;
    if (!cut || cut->crosses) continue;
    std::set<TensorId> taken;
    auto joined = Joiner(whole, parts, *cut, iteration).run(candidate.apart, taken);
    for (const TensorId& id : taken) parts.tensors.erase(id);
    parts.tensors.merge(joined);
    const std::int64_t of_whole = common_of(cut->samples), of_parts = samples_of_smaller(*cut);
    candidate.joined[iteration] = {counts.reference, counts.candidate, true, is_candidate_cut ? of_whole : of_parts,
                                   is_candidate_cut ? of_parts : of_whole};
  }
  if (candidate.joined.empty()) {
    set_crossing_apart(reference, candidate);
    return notes;
  }
  candidate.open_order.clear();
  const auto& [iteration, first] = *candidate.joined.begin();
  const std::size_t more = candidate.joined.size() - 1;
  notes.push_back(fmt::format(
      "the candidate runs {} micro-batches where the reference runs {} (iteration {}{}): put together by the "
      "bytes of what the model is given",
      first.candidate, first.reference, iteration, more > 0 ? fmt::format(" and {} more", more) : ""));
  return notes;
}

}  // namespace ttrace
