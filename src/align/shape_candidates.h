// Which assignments of open axes to dimensions explain the shapes that ranks recorded, and what else tells them apart by
// the bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "align/open_subject.h"

namespace ttrace {

class ShapeCandidates {
 public:
  ShapeCandidates(const Microbatches& microbatches, const RankTable& table, const ModelLayout& layout);

  // Sets the assignments that explain the shapes, and settles the subject where there is one. `lead` is the subject that
  // this one follows, of the kind whose placement it has; null where there is none.
  void find(Kind kind, const OpenSubject* lead, OpenSubject& subject) const;
  // Of several assignments of what whole models are given, those in which slices of the batch lie along some dimension:
  // ranks that are given other samples than they should be have the shapes of another axis.
  static void keep_sliced_inputs(OpenSubject& subject);
  // Of several assignments, where some do.
  void keep_those_with_equal_copies(OpenSubject& subject) const;
  // True where all ranks that would hold the same part hold the same bits, as far as each has it. Along an axis of slices
  // a gradient's ranks hold terms.
  bool copies_are_equal(const OpenSubject& subject, const Assignment& assignment) const;
  TensorPlacement placed(const OpenSubject& subject, const Assignment& assignment) const;
  Dimensions cut_of(const Group& group, const Shape& reference) const;  // as cut_dimensions

  // How many elements of the dimension each coordinate on the axes of micro-batches has; -1: nobody recorded any. Empty
  // where some shard has no such dimension.
  std::vector<std::int64_t> own_extents(const Group& group, std::size_t dim) const;

 private:
  // The rows of a tensor of one or two dimensions, where they are the positions of padded samples.
  std::optional<FlatRows> flat_rows_of(const Group& group, const Shape& reference) const;
  // Settles the subject where its rows are the positions of padded samples; of micro-batches without padding they may be
  // whole samples.
  bool settle_flat(OpenSubject& subject) const;
  // The assignments to these dimensions that explain the shapes.
  std::vector<Assignment> fitting_assignments(const OpenSubject& subject, const std::vector<int>& dims) const;
  // Looks for the one dimension whose parts are the reference's and padding behind it. Slices of the batch are not
  // padded: what a rank was given too many of has a gradient.
  void find_padded(OpenSubject& subject, const std::vector<int>& dims) const;
  // How many elements two neighbours along the axis share in the dimension, as their sizes say; 0 where they say none.
  std::int64_t overlap_of(const OpenSubject& subject, const OpenAxis& axis, int dim) const;
  // Looks for the one dimension in which each part begins with the last elements of the one before it, as a convolution
  // is given them beside its own. The bytes must say so, since padding may be as long; a gradient follows its value.
  void find_overlapping(Kind kind, const OpenSubject* lead, OpenSubject& subject, const std::vector<int>& dims) const;
  bool shows_overlap(Kind kind, const OpenSubject* lead, const OpenSubject& subject,
                     const Assignment& assignment) const;
  // The shape that all shards have from their start on, where some go on in dimensions that are cut; else nothing.
  std::optional<Shape> common_front(const Group& group) const;
  static std::uint64_t checksum_of_front(const Shard& shard, const Shape& front);

  const Microbatches& microbatches_;
  const RankTable& table_;
  const ModelLayout& layout_;
  const Layout* slice_layout_;
};

}  // namespace ttrace
