// The dimensions of a logical tensor: which axes split each, and where the parts lie.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/alignment.h"
#include "identify/placement.h"

namespace ttrace {

struct Dimension {
  std::vector<std::size_t> digits;       // indexes into the frame's shard digits, outermost first
  std::vector<AxisSplit> splits;         // of the same axes, in the same order
  std::optional<std::int64_t> unpadded;  // where padding begins in the whole
  std::vector<std::int64_t> sizes;       // of each part, in the order of `nest`; -1 where no rank holds the part
  AxisLayout layout;                     // empty before `lay_out`
  std::int32_t occurrences = 1;          // how often an element occurs in the parts, at most
  bool is_covered = false;               // its parts' first occurrences fill the whole, each element once
};

// Ranges of one dimension, as boxes of one dimension, and the part that holds each.
struct HeldRanges {
  std::vector<Box> ranges;
  std::vector<std::size_t> parts;
};
HeldRanges first_occurrences(const AxisLayout& layout);

// The dimensions of a tensor whose shards have as many dimensions as `shape`; all sizes are -1. `reference` is the
// shape of the reference's tensor, null where there is none. Throws InputError when the placement shards a dimension
// that is not there, or two axes say where one dimension's padding begins.
std::vector<Dimension> dimensions_of(const TensorPlacement& placement, const std::string& name, const Shape& shape,
                                     const Shape* reference);

// The dimensions of a trace's tensors. A large job has millions of tensors and few ways in which they lie: all
// micro-batches of a module share one object. Several threads may use it.
class DimensionPool {
 public:
  using Sizes = std::vector<std::vector<std::int64_t>>;  // of the parts, by dimension; -1 where no rank holds the part

  using Shared = std::shared_ptr<const std::vector<Dimension>>;

  // Tensors of one placement, and of one shape in the reference.
  class Alike {
   public:
    explicit Alike(std::vector<Dimension> blank) : blank_(std::move(blank)) {}
    const std::vector<Dimension>& blank() const { return blank_; }  // as `dimensions_of` makes them

    // The dimensions that were laid out from these sizes; null where nobody has done it.
    Shared find(const Sizes& sizes);
    // Adds them, unless another thread was faster, and returns those that are there.
    Shared add(Sizes sizes, std::vector<Dimension> dimensions);

   private:
    const std::vector<Dimension> blank_;
    std::mutex busy_;  // of what follows
    std::map<Sizes, Shared> laid_out_;
  };

  // As `dimensions_of`. `placement` and `reference` must outlive the pool.
  Alike& find(const TensorPlacement& placement, const std::string& name, const Shape& shape, const Shape* reference);

 private:
  struct Key {
    const TensorPlacement* placement;
    const Shape* reference;
    std::size_t dimensions;  // their number
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      const std::hash<const void*> hash;
      return (hash(key.placement) * 0x9e3779b97f4a7c15u ^ hash(key.reference)) + key.dimensions;  // 2^64 / golden ratio
    }
  };

  std::shared_mutex busy_;  // of what follows
  std::unordered_map<Key, Alike, KeyHash> alike_;
};

// Works out the layout from the sizes, of which at least one must be known. A part that no rank holds is taken to be as
// large as the first one that a rank does hold, so that a finding can say where it would be. Throws LayoutError.
void lay_out(Dimension& dimension);

// The digits of a shard's index, of a tensor that has these dimensions.
std::vector<std::int64_t> digits_of(const std::vector<Dimension>& dimensions, std::int64_t shard);

// The index of the part that the digits choose in a dimension.
std::size_t part_index(const Dimension& dimension, const std::vector<std::int64_t>& digits);

// A box of a shard's elements, and where it lies in the logical tensor.
struct PlacedBox {
  Box local, logical;
  std::int32_t occurrence = 0;
};

// The boxes of the shard that the digits choose: every combination of its stretches in the dimensions, as far as they
// lie in the box `within` of its elements.
std::vector<PlacedBox> boxes_of(const std::vector<Dimension>& dimensions, const std::vector<std::int64_t>& digits,
                                const Box& within);

// The shape of the logical tensor.
Shape extents_of(const std::vector<Dimension>& dimensions);

}  // namespace ttrace
