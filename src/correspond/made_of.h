// Makes tensors of one side of tensors of the other, by the pattern between them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "correspond/rearrange.h"

namespace ttrace {

// The tensors of one side of a pattern, by their places in it.
using PlacedTensors = std::vector<std::pair<PatternTensor, const LogicalTensor*>>;

// A tensor that is a source of another, and where.
struct Source {
  const LogicalTensor* tensor = nullptr;
  PatternTensor place;
};

// A pattern with the sizes that follow from the shapes of tensors, whose elements lie on the side `how->from`.
struct FittedPattern {
  std::shared_ptr<Rearrangement> how;
  bool fits = true;  // the shapes do not contradict the pattern
};
FittedPattern fit(IndexPattern pattern, std::size_t from, const AxisSizes& sizes, const PlacedTensors& sources,
                  const PlacedTensors& targets);

// The first axis of unknown size; empty where there is none.
std::string unknown_axis(const Rearrangement& how);

// The sources of `target`; empty where not all of its parts have one.
std::vector<Source> sources_of(const Rearrangement& how, const PatternTensor& target, const PlacedTensors& sources);

// The shape of a tensor of the side that is made, without its padding. All sizes must be known.
Shape shape_of_made(const Rearrangement& how, const PatternTensor& target);

// The tensor `id` at `target`, made of its sources.
LogicalTensor made_of(const TensorId& id, std::shared_ptr<const Rearrangement> how, const std::vector<Source>& sources,
                      const PatternTensor& target);

// Replicas of `more` become further replicas of `into`.
void add_copies(LogicalTensor& into, LogicalTensor more);

// Tensors of routed tokens hold some rows only; a pattern that keeps the rows keeps that.
bool keeps_rows(const Rearrangement& how);

}  // namespace ttrace
