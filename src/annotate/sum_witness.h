// Tells sums that a program makes from sums that it forgot.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "annotate/decision.h"

namespace ttrace {

// A tensor that is meant to be partial looks, by its values alone, like one whose sum the program forgot. A later
// tensor shows that the sum is made if it is as near the reference without one, and all ranks hold equal copies of it:
// - of a parameter's gradient, the main gradient;
// - of an activation, what the module returns, or one around it (in backward, what goes back to its inputs);
// - a tensor that is recorded later and has the same bits in the reference: what the next module is given.
class SumWitness {
 public:
  SumWitness(const Subjects& subjects, const Decisions& decisions, const Alignment& reference);

  // Makes a guess of each partial axis whose sum nothing shows to be made.
  void doubt_sums(const SubjectKey& key, const Decision& decision, std::vector<AxisObservation>& axes) const;

 private:
  // The bits of one tensor of the reference: iteration, micro-batch, checksum.
  using Bits = std::tuple<std::int32_t, std::int32_t, std::uint64_t>;

  std::string find_witness(const SubjectKey& key, const std::string& axis, double error) const;
  // Returns nothing where `key` says nothing of the sum over the axis; else whether it is right.
  std::optional<bool> shows_sum(const SubjectKey& key, const std::string& axis, double error) const;
  std::string find_same_tensor(const SubjectKey& key, const std::string& axis, double error) const;
  std::uint64_t first_recorded(const SubjectKey& key) const;

  const Subjects& subjects_;
  const Decisions& decisions_;
  std::map<Bits, std::vector<SubjectKey>> same_;
  std::map<SubjectKey, Bits> bits_;  // of the first tensor of each subject
};

}  // namespace ttrace
