#include "identify/truncated.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using Hashes = std::vector<std::uint64_t>;

// The dimension, other than that of samples, in which alone some parts are shorter than the reference and none is
// longer.
std::optional<std::size_t> shorter_dimension(const SlicedInput& input) {
  const LogicalTensor& reference = *input.reference;
  std::optional<std::size_t> shorter;
  for (const Entry* part : input.parts) {
    if (part == nullptr || part->dtype != reference.dtype || part->sketch != nullptr) return std::nullopt;
    for (std::size_t d = 0; d < reference.shape.size(); ++d) {
      if (d == input.dim || part->shape[d] == reference.shape[d]) continue;
      if (part->shape[d] > reference.shape[d] || part->shape[d] == 0 || shorter.value_or(d) != d) return std::nullopt;
      shorter = d;
    }
  }
  return shorter;
}

// The bytes of a row-major tensor, put sample behind sample, and of each sample place behind place: a place is an index
// along the dimension in which samples may be cut, and holds all elements at it.
class PlacesOfSamples {
 public:
  PlacesOfSamples(const std::byte* data, const Shape& shape, Dtype dtype, std::size_t samples, std::size_t cut)
      : places_(shape[cut]) {
    const auto bytes = static_cast<std::size_t>(size_of(dtype));
    const auto rows = static_cast<std::size_t>(shape[samples] * places_);
    bytes_of_place_ = static_cast<std::size_t>(element_count(shape)) / std::max<std::size_t>(rows, 1) * bytes;
    bytes_.reserve(rows * bytes_of_place_);
    std::vector<std::vector<std::byte>> of_rows(rows);
    for (std::int64_t i = 0; i < element_count(shape); ++i) {
      const Shape index = index_at(i, shape);
      std::vector<std::byte>& row = of_rows[static_cast<std::size_t>(index[samples] * places_ + index[cut])];
      const std::byte* element = data + i * static_cast<std::int64_t>(bytes);
      row.insert(row.end(), element, element + bytes);
    }
    for (const auto& row : of_rows) bytes_.insert(bytes_.end(), row.begin(), row.end());
  }

  std::string_view at(std::int64_t sample, std::int64_t place) const { return until(sample, place, place + 1); }
  std::string_view beginning(std::int64_t sample, std::int64_t places) const { return until(sample, 0, places); }
  std::int64_t places() const { return places_; }

 private:
  std::string_view until(std::int64_t sample, std::int64_t from, std::int64_t to) const {
    const std::size_t start = static_cast<std::size_t>(sample * places_ + from) * bytes_of_place_;
    return {reinterpret_cast<const char*>(bytes_.data()) + start,
            static_cast<std::size_t>(to - from) * bytes_of_place_};
  }

  std::int64_t places_ = 0;
  std::size_t bytes_of_place_ = 0;
  std::vector<std::byte> bytes_;
};

// What most samples end with.
std::string_view usual_end(const PlacesOfSamples& whole, std::int64_t samples) {
  std::map<std::string_view, std::int64_t> counts;
  for (std::int64_t i = 0; i < samples; ++i) ++counts[whole.at(i, whole.places() - 1)];
  return std::ranges::max_element(counts, {}, [](const auto& item) { return item.second; })->first;
}

// Returns how many places of the sample behind its first `length` are no padding, up to the last that is none.
std::int64_t places_lacking(const PlacesOfSamples& whole, std::int64_t sample, std::int64_t length,
                            std::string_view filler) {
  const auto end_before = [&](std::string_view value) {
    std::int64_t end = whole.places();
    while (end > length && whole.at(sample, end - 1) == value) --end;
    return end;
  };
  return std::min(end_before(filler), end_before(whole.at(sample, length - 1))) - length;
}

Samples dealt_out(const std::vector<PlacesOfSamples>& parts, const std::vector<std::int64_t>& counts, bool in_turns) {
  Samples samples;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    for (std::int64_t i = 0; i < counts[rank]; ++i) {
      const auto next = static_cast<std::int64_t>(samples.size());
      samples.push_back(in_turns ? i * std::ssize(parts) + static_cast<std::int64_t>(rank) : next);
    }
  }
  return samples;
}

// True where each sample of the parts begins the reference's that it is said to be.
bool are_beginnings(const PlacesOfSamples& whole, std::int64_t of_whole, const std::vector<PlacesOfSamples>& parts,
                    const std::vector<std::int64_t>& counts, const Samples& samples) {
  auto sample = samples.begin();
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    for (std::int64_t i = 0; i < counts[rank]; ++i, ++sample) {
      const std::int64_t length = parts[rank].places();
      if (*sample >= of_whole || whole.beginning(*sample, length) != parts[rank].beginning(i, length)) return false;
    }
  }
  return true;
}

}  // namespace

std::optional<TruncatedTelling> truncated_telling_of(const SlicedInput& input) {
  const LogicalTensor& reference = *input.reference;
  const auto cut = shorter_dimension(input);
  const std::byte* data = cut && input.is_shared ? elements_of(reference) : nullptr;
  if (data == nullptr) return std::nullopt;
  const std::int64_t of_whole = reference.shape[input.dim];
  const PlacesOfSamples whole(data, reference.shape, reference.dtype, input.dim, *cut);
  std::vector<PlacesOfSamples> parts;
  std::vector<std::int64_t> counts, lengths;
  for (std::size_t rank = 0; rank < input.parts.size(); ++rank) {
    const Entry& part = *input.parts[rank];
    parts.emplace_back(input.ranks[rank]->bytes_of(part), part.shape, part.dtype, input.dim, *cut);
    counts.push_back(part.shape[input.dim]);
    lengths.push_back(part.shape[*cut]);
  }
  std::set<std::string_view> different;
  const std::int64_t shortest = std::ranges::min(lengths);
  for (std::int64_t i = 0; i < of_whole; ++i) different.insert(whole.beginning(i, shortest));
  if (different.size() < 2) return std::nullopt;
  const std::string_view filler = usual_end(whole, of_whole);
  for (const bool in_turns : {false, true}) {
    Samples samples = dealt_out(parts, counts, in_turns);
    if (!are_beginnings(whole, of_whole, parts, counts, samples)) continue;
    Truncation truncation{*cut, reference.shape[*cut], {}};
    std::set<std::int64_t> lacking_one;
    auto sample = samples.begin();
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      for (std::int64_t i = 0; i < counts[rank]; ++i, ++sample) {
        const std::int64_t lacking = places_lacking(whole, *sample, lengths[rank], filler);
        if (lacking > 0) (lacking > 1 ? truncation.coordinates : lacking_one).insert(static_cast<std::int64_t>(rank));
      }
    }
    truncation.by_one = truncation.coordinates.empty();
    if (truncation.by_one) truncation.coordinates = std::move(lacking_one);
    Telling telling{std::move(samples), different.size(), false, reference.shape[*cut], std::move(lengths)};
    return TruncatedTelling{std::move(telling), std::move(truncation)};
  }
  return std::nullopt;
}

}  // namespace ttrace
