// Reads the elements of an overlay box in logical order. Elements that lie in one run on both sides are read in place;
// others are gathered, a block at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "merge/overlay.h"

namespace ttrace {

// A position is the index of an element among the box's, row-major. A run is a stretch of positions that
// is contiguous in memory in every term of both sides.
class BoxReader {
 public:
  explicit BoxReader(const OverlayBox& box);

  std::int64_t elements() const { return elements_; }
  std::int64_t run_length() const { return run_length_; }
  std::int64_t left_in_run(std::int64_t position) const { return run_length_ - position % run_length_; }

  // The address of the element at `position` in a term. The reference's terms are numbered first, then the candidate's.
  const std::byte* address_of(std::size_t term, std::int64_t position) const;
  Dtype dtype(std::size_t term) const { return terms_[term].dtype; }
  std::size_t reference_terms() const { return reference_terms_; }
  std::size_t terms() const { return terms_.size(); }

  // Copies a term's elements as they are.
  void gather(std::size_t term, std::int64_t position, std::int64_t count, std::byte* out) const;
  void gather_integers(std::size_t term, std::int64_t position, std::int64_t count, std::int64_t* out) const;

  // Adds up the terms [first, last) in fp64, in order, and divides by `scale`. `count` is at most kBlockElements.
  void gather_sum(std::size_t first, std::size_t last, double scale, std::int64_t position, std::int64_t count,
                  double* out) const;

 private:
  struct Term {
    const std::byte* data;
    Dtype dtype;
    Shape strides;  // in elements, of the outer dimensions
  };
  template <class Visit>
  void for_each_run(std::int64_t position, std::int64_t count, Visit visit) const;

  std::int64_t elements_ = 1, run_length_ = 1;
  Shape outer_;  // sizes of the dimensions that did not merge into the run, outermost first
  std::vector<Term> terms_;
  std::size_t reference_terms_ = 0;
};

}  // namespace ttrace
