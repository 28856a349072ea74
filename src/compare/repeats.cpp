#include "compare/repeats.h"

#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "numeric/xxh3.h"

namespace ttrace {
namespace {

// Recorders store smaller tensors again, and to look at their pieces would cost as much as to compare them.
constexpr std::uint64_t kLeastBytes = 1 << 10;

template <class Number>
void append(std::string& text, Number number) {
  static_assert(std::is_trivially_copyable_v<Number>);
  text.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void append_all(std::string& text, const std::vector<std::int64_t>& numbers) {
  append(text, numbers.size());
  for (const std::int64_t number : numbers) append(text, number);
}

// Appends all that a comparison takes from one side.
void append_side(std::string& text, const LogicalTensor& tensor) {
  append(text, tensor.dtype);
  append(text, tensor.scale);
  append_all(text, tensor.shape);
  append(text, tensor.rows.has_value());
  if (tensor.rows) append_all(text, *tensor.rows);
  const std::vector<Piece> pieces = tensor.pieces();
  append(text, pieces.size());
  for (const Piece& piece : pieces) {
    append(text, piece.data);
    append(text, piece.entry->dtype);
    append(text, piece.entry->bytes);
    append(text, piece.rank);
    append(text, piece.offset);
    append(text, piece.replica);
    append(text, piece.term);
    append_all(text, piece.strides);
    append_all(text, piece.logical.start);
    append_all(text, piece.logical.size);
  }
}

std::string description_of(const LogicalTensor& tensor) {
  std::string text;
  append_side(text, tensor);
  return text;
}

std::uint64_t hash_of(const LogicalTensor& tensor) {
  const std::string text = description_of(tensor);
  return XXH3_64bits(text.data(), text.size());
}

bool are_repeats(const TensorPair& a, const TensorPair& b) {
  return description_of(*a.reference) == description_of(*b.reference) &&
         description_of(*a.candidate) == description_of(*b.candidate);
}

}  // namespace

// To list the pieces of thousands of ranks is the greater part of the work. The candidate, which has more of them as a
// rule, is asked for its own only where the reference has repeats.
std::vector<std::size_t> first_of_each(std::span<const TensorPair> pairs, const ForEach& for_each) {
  const auto is_looked_at = [&](std::size_t i) {
    return pairs[i].reference->bytes >= kLeastBytes && pairs[i].candidate->bytes >= kLeastBytes;
  };
  std::vector<std::uint64_t> references(pairs.size()), candidates(pairs.size());
  for_each(pairs.size(), [&](std::size_t i) {
    if (is_looked_at(i)) references[i] = hash_of(*pairs[i].reference);
  });
  std::unordered_map<std::uint64_t, std::size_t> alike;  // pairs by the reference's hash
  for (std::size_t i = 0; i < pairs.size(); ++i) alike[references[i]] += is_looked_at(i) ? 1 : 0;
  const auto may_repeat = [&](std::size_t i) { return is_looked_at(i) && alike.at(references[i]) > 1; };
  for_each(pairs.size(), [&](std::size_t i) {
    if (may_repeat(i)) candidates[i] = hash_of(*pairs[i].candidate);
  });
  std::vector<std::size_t> first(pairs.size());
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> by_hashes;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    first[i] = i;
    if (!may_repeat(i)) continue;
    const auto [found, is_new] = by_hashes.try_emplace({references[i], candidates[i]}, i);
    if (!is_new && are_repeats(pairs[i], pairs[found->second])) first[i] = found->second;
  }
  return first;
}

}  // namespace ttrace
