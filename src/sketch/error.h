// Bounds how far an estimate from sketches may be off.
//
// Let e be the difference of two tensors, S its sums (16 a cell, C cells), and T = sum of S^2, whose mean over tables
// of signs is ||e||^2. The signs of a sum are independent; those of the 16 sums of a cell are, too; but all cells share
// one table, so that a difference that is alike in all cells (a bias, a factor of something periodic) has as many
// independent sums as one cell. In any case T is a quadratic form of independent signs, whose moment generating
// function is at most that of the same form of normal variables (E exp(s x)^2 <= E exp(s g)^2; Achlioptas,
// "Database-friendly random projections", 2003). So with a_i the eigenvalues of its covariance over ||e||^2, which add
// up to 1 (Laurent and Massart, "Adaptive estimation of a quadratic functional by model selection", 2000, lemma 1):
//
//   P(T > ||e||^2 (1 + 2 |a|_2 sqrt(x) + 2 |a|_inf x)) <= exp(-x)
//   P(T < ||e||^2 (1 - 2 |a|_2 sqrt(x)))               <= exp(-x)
//
// What the a_i are is measured on the sums themselves: |a|_2^2 is 1/T^2 times the sum of the squared entries of the
// covariance, of which S^4 (whose mean is at least the square of a sum's variance, and three times that where the
// difference is dense) bounds the diagonal, and the products of different sums over all cells say the rest, what cells
// have in common; |a|_inf is at least the share of the largest S^2. A difference that lies in one sum alone, of one
// cell, comes out with |a| = 1: it is widened by 7. Where it is dense, a tensor of 4 cells is widened by 2.3, of 64 by
// 1.3, of 1,024 by 1.1.
#pragma once

#include <span>

#include "sketch/cells.h"

namespace ttrace {

// exp(-kSureness) is the probability that an estimate exceeds its bound: 1e-9, so that a run of 100,000 tensors which
// all lay at their limit would have a false alarm in 10,000.
inline constexpr double kSureness = 20.7;

// The sums of a difference, cell after cell.
using CellSums = std::array<double, kCellSums>;

// The factor by which sqrt(T) may exceed ||e||. 1 where all sums are 0.
double widening_of(std::span<const CellSums> difference, double sureness = kSureness);

}  // namespace ttrace
