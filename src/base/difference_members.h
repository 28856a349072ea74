// Names the members of a difference once, for whoever does the same with each, such as sending them.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "base/finding.h"

namespace ttrace {

// Converts to any member of an aggregate, to count them.
struct AnyMember {
  template <class T>
  operator T() const;  // NOLINT(misc-explicit-constructor): an aggregate is made of it
};

template <class T, std::size_t... I>
constexpr bool is_made_of(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), AnyMember())...}; };
}

// True where the aggregate has this number of members. A list of them that is asserted to have all stays whole.
template <class T, std::size_t kCount>
inline constexpr bool has_members =
    is_made_of<T>(std::make_index_sequence<kCount>()) && !is_made_of<T>(std::make_index_sequence<kCount + 1>());

// Calls `visit` with all members but `sketch`.
template <class OneDifference, class Visit>
void visit_members(OneDifference& difference, Visit&& visit)
  requires std::same_as<std::remove_const_t<OneDifference>, Difference>
{
  static_assert(has_members<Difference, 28>, "a member was added: visit it here");
  auto& d = difference;
  visit(d.elements, d.differing, d.reference_nan, d.reference_inf, d.candidate_nan, d.candidate_inf,
        d.nonfinite_mismatch, d.reference_square, d.candidate_square, d.difference_square, d.along, d.reference_max_abs,
        d.max_abs, d.worst_index, d.worst_rank, d.worst_local_index, d.worst_reference, d.worst_candidate, d.rows,
        d.row_square, d.worst_row, d.square_by_rank, d.nonfinite_by_rank, d.replica_square, d.replica_ranks,
        d.reference_replica_square, d.reference_replica_ranks);
}

// Calls `visit` with all members.
template <class OneMeasure, class Visit>
void visit_members(OneMeasure& measure, Visit&& visit)
  requires std::same_as<std::remove_const_t<OneMeasure>, SketchMeasure>
{
  static_assert(has_members<SketchMeasure, 11>, "a member was added: visit it here");
  auto& m = measure;
  visit(m.cells, m.cell_elements, m.cell_rows, m.width, m.widening, m.scale_error, m.cell_square, m.cell_widening,
        m.worst_cell, m.worst_cell_size, m.worst_rank);
}

}  // namespace ttrace
