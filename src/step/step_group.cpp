#include "step/step_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace ttrace {
namespace {

constexpr std::int64_t kMostFitted = std::int64_t{1} << 17;  // elements that a factor is fitted to
constexpr double kSmallestFactor = 0.1;
constexpr int kHalvings = 16;  // of the logarithms of factors up to 1 / kSmallestFactor: to a relative 7e-5

}  // namespace

void StepGroup::add(const LogicalTensor& tensor, std::span<const WrongPart> parts) {
  std::int64_t elements = 0;
  for (const WrongPart& part : parts) elements += part.series->elements;
  const double copies = static_cast<double>(elements) / static_cast<double>(element_count(tensor.shape));
  Member member{&tensor, parts, 1 / std::max(copies, 1.0), {}};
  for (const WrongPart& part : parts) {
    for (std::size_t a = 0; a < member.moves.size(); ++a) member.moves[a].add(part.tally->moves[a], member.weight);
  }
  members_.push_back(member);
}

std::map<TensorId, std::string> StepGroup::judge() const {
  std::vector<const Member*> wrong, others, all;
  MovesByArithmetic of_all{}, of_others{};
  for (const Member& member : members_) {
    const bool is_wrong = excess(member.moves) > kMostExcess;
    (is_wrong ? wrong : others).push_back(&member);
    all.push_back(&member);
    for (std::size_t a = 0; a < of_all.size(); ++a) {
      of_all[a].add(member.moves[a]);
      if (!is_wrong) of_others[a].add(member.moves[a]);
    }
  }
  std::map<TensorId, std::string> words;
  // Where most are wrong by themselves, it is all of them.
  const bool most = 2 * wrong.size() > members_.size();
  std::vector<const Member*> together = most ? all : others;
  if (!together.empty() && excess(most ? of_all : of_others) > kMostExcess) {
    const double common = factor_of(together);
    const auto follows = [&](const Member* member) {
      return std::abs(factor_of({&member, 1}) - common) <= std::abs(common - 1) / 4;
    };
    const auto alone = std::stable_partition(wrong.begin(), wrong.end(), follows);
    if (!most) together.insert(together.end(), wrong.begin(), alone);
    std::vector<const Member*> named(wrong.begin(), alone);
    if (named.empty()) {
      const auto shows_less = [](const Member* a, const Member* b) {
        return a->moves[best_of(a->moves)].steps < b->moves[best_of(b->moves)].steps;
      };
      named.push_back(*std::max_element(together.begin(), together.end(), shows_less));
    }
    for (const Member* member : named) words[member->tensor->id] = describe(together, common);
    wrong.erase(wrong.begin(), alone);
  }
  for (const Member* member : wrong) words[member->tensor->id] = describe({&member, 1}, factor_of({&member, 1}));
  return words;
}

double StepGroup::excess(const MovesByArithmetic& moves) { return moves[best_of(moves)].excess(); }

// The factor at which X, which falls as the factor grows, is 0; of each arithmetic, and then that of the one that is
// nearest to what was recorded.
double StepGroup::factor_of(std::span<const Member* const> members) {
  std::vector<std::pair<ParameterSeries, double>> fitted;  // of one update, with the weight of an element
  std::int64_t elements = 0;
  for (const Member* member : members) {
    elements += element_count(member->tensor->shape);
    if (!fitted.empty() && elements > kMostFitted) continue;
    for (const WrongPart& part : member->parts) {
      ParameterSeries one = *part.series;
      one.updates = {part.series->updates[part.update]};  // what such an update follows from is recorded with it
      one.elements = std::min(one.elements, kMostFitted);
      fitted.emplace_back(std::move(one), member->weight);
    }
  }
  const auto moves_beside = [&](double factor) {
    MovesByArithmetic moves{};
    for (const auto& [series, weight] : fitted) {
      const MovesByArithmetic of_part = replay(series, 0, series.elements, 0, nullptr, factor).front().moves;
      for (std::size_t a = 0; a < moves.size(); ++a) moves[a].add(of_part[a], weight);
    }
    return moves;
  };
  double factor = 1, nearest = std::numeric_limits<double>::infinity();
  for (std::size_t a = 0; a < kStepArithmetics.size(); ++a) {
    double low = std::log(kSmallestFactor), high = -low;
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = (low + high) / 2;
      (moves_beside(std::exp(middle))[a].moved > 0 ? low : high) = middle;
    }
    const double found = std::exp((low + high) / 2), square = moves_beside(found)[a].square;
    if (square < nearest) nearest = square, factor = found;
  }
  return factor;
}

std::string StepGroup::describe(std::span<const Member* const> members, double factor) {
  const WrongPart& part = members.front()->parts.front();
  const double lr = part.series->updates[part.update].rule.lr;
  const std::string over = members.size() > 1
                               ? fmt::format("{} tensors", members.size())
                               : fmt::format("{} elements", element_count(members.front()->tensor->shape));
  return fmt::format(
      "the update is {:.3f} times what lr {:g} gives, over {}: single elements are explained by rounding", factor, lr,
      over);
}

}  // namespace ttrace
