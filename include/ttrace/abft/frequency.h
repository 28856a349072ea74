// How often each protected section of attention is worth checking (ATTNChecker, section 4.5 and Algorithm 1).
//
// Three formulas of the paper do not fit each other as they are printed. Derived again, and used here:
// - A run in which a section is not checked survives an error with probability 1 - phi, phi being "the probability
//   [...] that leads to a non-trainable state". So H = f + (1 - f)(1 - phi); the paper prints f + (1 - f) phi.
// - FCE is d FC / dT at T = f T_S, hence sum R phi / T_S. The paper prints R_free + sum R (1 - phi) over T_S, which is
//   the derivative of neither H.
// - Algorithm 1 begins with FC = 0 and adds coverages of sections; but FC_att is their product, and is not 0 without
//   checks. Its first comparison is turned round, too: as printed it takes a whole section when a part would do.
// What is kept: sections in order of efficiency, each whole until the last, which gets just what is missing.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace ttrace::abft {

constexpr int kErrorTypes = 3;  // INF, NaN, near-INF
using ErrorTypes = std::array<double, kErrorTypes>;

struct Operation {
  double flops = 0;
  ErrorTypes vulnerability = {};  // phi: how probably an error of the type makes the model non-trainable
};
struct ProtectedSection {
  std::vector<Operation> operations;
  double overhead = 0;  // T_S: the time to check it once
};

// The probability of `count` errors among `flops` operations at `rate` errors each (Poisson).
double error_probability(double rate, double flops, int count);

// What a section loses: the probability that an execution ends in a non-trainable state, 1 - FC_S. One error in a
// checked section is corrected; more than one counts as lost.
double loss(const ProtectedSection& section, const ErrorTypes& rates, double frequency);

// FCE: how much loss a unit of time avoids.
double efficiency(const ProtectedSection& section, const ErrorTypes& rates);

struct Frequencies {
  std::vector<double> frequencies;  // of the sections, 0 to 1
  double loss = 0;                  // 1 - FC_att with them
  double overhead = 0;              // sum of f_S T_S
  bool reached = false;             // the target
};

// The cheapest frequencies whose loss is `target` at most; all 1 if none is.
Frequencies optimise(std::span<const ProtectedSection> sections, const ErrorTypes& rates, double target);

}  // namespace ttrace::abft
