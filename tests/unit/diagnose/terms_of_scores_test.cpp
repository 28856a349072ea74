// Tests the causes of gradients with respect to scores that have more or less of one term than the reference's.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <random>

#include "merge/values.h"
#include "support/root_causes.h"
#include "support/trace_builder.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("diagnose");

namespace {

constexpr std::size_t kRoutedRows = 24, kRoutedSequences = 2, kExperts = 6, kChosen = 2;

Values drawn_for_experts(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> value;
  Values values(kRoutedRows * kExperts);
  for (double& each : values) each = static_cast<float>(value(random));
  return values;
}

// Scores of tokens, [tokens of a sequence, sequences, experts], which prefer some experts.
Values routing_scores() {
  Values scores = drawn_for_experts(1);
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] += 0.4 * static_cast<double>(i % kExperts % 3);
  for (double& score : scores) score = static_cast<float>(score);
  return scores;
}

Values routing_shares(const Values& scores) {
  Values shares = scores;
  for (std::size_t row = 0; row < kRoutedRows; ++row) {
    double sum = 0;
    for (std::size_t j = 0; j < kExperts; ++j) sum += std::exp(scores[row * kExperts + j]);
    for (std::size_t j = 0; j < kExperts; ++j) shares[row * kExperts + j] = std::exp(scores[row * kExperts + j]) / sum;
  }
  return shares;
}

bool is_chosen(const Values& scores, std::size_t row, std::size_t expert) {
  std::size_t larger = 0;
  for (std::size_t j = 0; j < kExperts; ++j) larger += scores[row * kExperts + j] > scores[row * kExperts + expert];
  return larger < kChosen;
}

// What comes back through a softmax for `of_shares`.
Values through_softmax(const Values& shares, const Values& of_shares) {
  Values gradient = shares;
  for (std::size_t row = 0; row < kRoutedRows; ++row) {
    double mean = 0;
    for (std::size_t j = 0; j < kExperts; ++j) mean += shares[row * kExperts + j] * of_shares[row * kExperts + j];
    for (std::size_t j = 0; j < kExperts; ++j) gradient[row * kExperts + j] *= of_shares[row * kExperts + j] - mean;
  }
  return gradient;
}

using GroupOfRow = std::size_t (*)(std::size_t row);
std::size_t only_group(std::size_t) { return 0; }
std::size_t sequence_of_row(std::size_t row) { return row % kRoutedSequences; }
std::size_t half_of_rows(std::size_t row) { return row / (kRoutedRows / 2); }

// The gradient of the loss that balances experts, with the choices counted by group.
Values balancing(const Values& scores, GroupOfRow group) {
  const Values shares = routing_shares(scores);
  Values of_shares(scores.size());
  for (std::size_t row = 0; row < kRoutedRows; ++row) {
    for (std::size_t j = 0; j < kExperts; ++j) {
      double chosen = 0, rows = 0;
      for (std::size_t other = 0; other < kRoutedRows; ++other) {
        if (group(other) != group(row)) continue;
        chosen += is_chosen(scores, other, j);
        rows += 1;
      }
      of_shares[row * kExperts + j] = kExperts * chosen / (kChosen * rows) / kRoutedRows;
    }
  }
  return through_softmax(shares, of_shares);
}

// The gradient of what experts return, which comes back for the chosen alone.
Values of_experts(const Values& scores) {
  Values of_shares = drawn_for_experts(2);
  for (std::size_t i = 0; i < of_shares.size(); ++i) {
    of_shares[i] = is_chosen(scores, i / kExperts, i % kExperts) ? of_shares[i] / 8 : 0;
  }
  return through_softmax(routing_shares(scores), of_shares);
}

Values sum_of(Values values, const Values& more, double times) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += times * more[i];
  return values;
}

struct RoutedRun {
  Values gradient;
  std::string axes{};            // empty: of one process; else two ranks have half of the rows each
  std::optional<double> loss{};  // none: it is not recorded
};

Trace trace_of_routing(const RoutedRun& run, const std::string& run_id) {
  TraceBuilder builder;
  builder.axes(run.axes).run_id(run_id);
  if (run.loss) {
    TensorSpec loss;
    loss.id = {.microbatch = 0, .kind = Kind::kScalar, .name = "loss"};
    loss.values = [value = *run.loss](std::int32_t, std::int64_t) { return value; };
    builder.tensor(loss);
  }
  const std::size_t rows = run.axes.empty() ? kRoutedRows : kRoutedRows / 2;
  for (const Kind kind : {Kind::kOutput, Kind::kGradOutput}) {
    TensorSpec spec;
    spec.id = {.microbatch = 0, .kind = kind, .name = "router"};
    spec.shape = {static_cast<std::int64_t>(rows / kRoutedSequences), kRoutedSequences, kExperts};
    const Values whole = kind == Kind::kOutput ? routing_scores() : run.gradient;
    spec.values = [whole, rows](std::int32_t rank, std::int64_t i) {
      return whole[static_cast<std::size_t>(rank) * rows * kExperts + static_cast<std::size_t>(i)];
    };
    builder.tensor(spec);
  }
  return builder.read();
}

RootCause root_of_runs(const RoutedRun& right, const RoutedRun& wrong, double allowed = 1e-5) {
  const std::string text = wrong.axes.empty() ? "" : "router:\n  output: {cp_dim: 0}\n  grad_output: {cp_dim: 0}\n";
  const std::vector<RootCause> roots = roots_between(trace_of_routing(right, "reference"),
                                                     trace_of_routing(wrong, "candidate"), text, allowing(allowed));
  REQUIRE(!roots.empty());
  return roots[0];
}

RootCause root_of_scores(const Values& right, const Values& wrong, double allowed = 1e-5) {
  return root_of_runs({right}, {wrong}, allowed);
}

void check_term(const RootCause& root, const std::string& words) {
  CHECK_MESSAGE(root.diagnosis == Cause::kOtherLoss, root.sentence);
  CHECK_MESSAGE(has(root.sentence, words), root.sentence);
}

void check_no_term(const RootCause& root) { CHECK_MESSAGE(root.diagnosis != Cause::kOtherLoss, root.sentence); }

}  // namespace

TEST_CASE("a load-balancing loss that counts otherwise in what the router's scores get back") {
  const Values scores = routing_scores(), experts = of_experts(scores);
  const Values of_all = balancing(scores, only_group), of_sequences = balancing(scores, sequence_of_row);
  const auto with = [&](const Values& loss, double times) { return sum_of(experts, loss, times); };
  check_term(
      root_of_scores(with(of_all, 2), with(of_all, 1)),
      "an auxiliary loss that balances load (E sum f P, f of the 2 largest scores of a row, over all 24 rows) is "
      "in it 1 times, 0.5 times as often as in the reference's");
  check_term(root_of_scores(with(of_sequences, 1), with(of_sequences, 3)),
             "over each of the 2 sequences along dimension 1) is in it 3 times, 3 times as often");
  check_term(root_of_scores(with(of_all, 0), with(of_all, 1)), "is in it 1 times, and is no part of the reference's");
  check_term(root_of_scores(with(of_all, 1), with(of_all, 0)), "is no part of it, and is in the reference's 1 times");
}

TEST_CASE("a load-balancing loss beside gradients that hide how often it counts") {
  const Values scores = routing_scores(), rest = drawn_for_experts(7), loss = balancing(scores, only_group);
  check_term(root_of_scores(sum_of(rest, loss, 2), sum_of(rest, loss, 1)),
             "it has 1 times the gradient of an auxiliary loss that balances load");
}

TEST_CASE("a load-balancing loss whose choices are counted over other rows than the reference's") {
  const Values scores = routing_scores(), experts = of_experts(scores);
  const Values of_all = balancing(scores, only_group), of_sequences = balancing(scores, sequence_of_row);
  check_term(root_of_scores(sum_of(experts, of_all, 2), sum_of(experts, of_sequences, 2)),
             "an auxiliary loss that balances load (E sum f P, 2 times) has f of the 2 largest scores of a row counted "
             "over each of the 2 sequences along dimension 1, and in the reference over all 24 rows");
  check_term(root_of_scores(sum_of(experts, of_sequences, 1), sum_of(experts, of_all, 1)),
             "counted over all 24 rows, and in the reference over each of the 2 sequences");
  const Values of_halves = balancing(scores, half_of_rows);
  check_term(root_of_runs({sum_of(experts, of_all, 1)}, {sum_of(experts, of_halves, 1), "cp=2"}),
             "counted over each rank's own rows, and in the reference over all 24 rows");
  check_no_term(root_of_scores(sum_of(experts, of_all, 1), sum_of(experts, of_halves, 1)));  // of one rank
  check_no_term(root_of_scores(sum_of(experts, of_all, 2), sum_of(experts, of_sequences, 1)));
}

TEST_CASE("a gradient of a router that another loss moves is not said to balance load") {
  const Values scores = routing_scores(), experts = of_experts(scores), shares = routing_shares(scores);
  Values other_experts = balancing(scores, only_group);  // the choices of each expert counted for the next
  Values of_shares(scores.size());
  for (std::size_t i = 0; i < of_shares.size(); ++i) {
    double chosen = 0;
    for (std::size_t row = 0; row < kRoutedRows; ++row) chosen += is_chosen(scores, row, (i + 1) % kExperts);
    of_shares[i] = chosen / kRoutedRows;
  }
  check_no_term(root_of_scores(experts, sum_of(experts, through_softmax(shares, of_shares), 0.1)));
  check_no_term(root_of_scores(experts, sum_of(experts, through_softmax(shares, drawn_for_experts(3)), 0.1)));
  other_experts[3] += 0.1;
  check_no_term(root_of_scores(experts, sum_of(experts, other_experts, 1)));
}

TEST_CASE("a z-loss that counts otherwise in what the router's scores get back") {
  const Values scores = routing_scores(), experts = of_experts(scores), shares = routing_shares(scores);
  Values z_loss = shares, of_squares = shares;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const std::size_t row = i / kExperts;
    double sum = 0;
    for (std::size_t j = 0; j < kExperts; ++j) sum += std::exp(scores[row * kExperts + j]);
    z_loss[i] *= 2 * std::log(sum) / kRoutedRows;
    of_squares[i] *= std::log(sum) * std::log(sum) / kRoutedRows;
  }
  check_term(root_of_scores(sum_of(experts, z_loss, 0.2), sum_of(experts, z_loss, 0.3)),
             "it has 0.1 times the gradient of a z-loss");
  check_no_term(root_of_scores(sum_of(experts, of_squares, 0.2), sum_of(experts, of_squares, 0.3)));
}

TEST_CASE("a log-softmax of soft labels whose backward lacks the softmax, beside a cross entropy") {
  const Values scores = routing_scores(), shares = routing_shares(scores),
               labels = routing_shares(drawn_for_experts(5));
  const double rows = kRoutedRows;
  Values right(scores.size()), wrong(scores.size()), squared(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double hard = i % kExperts == i / kExperts % kExperts ? 1 : 0;
    right[i] = (shares[i] - labels[i] + shares[i] - hard) / rows;
    wrong[i] = (-labels[i] + shares[i] - hard) / rows;
    squared[i] = right[i] - shares[i] * shares[i] / rows;
  }
  check_term(root_of_scores(right, wrong),
             "the softmax of a row's scores times the sum of the row's gradient is not taken off (-0.04167 in "
             "24 rows");
  check_no_term(root_of_scores(right, squared));
  const Values rest = drawn_for_experts(8);  // whose rows do not sum to zero
  check_no_term(root_of_scores(rest, sum_of(rest, shares, -1 / rows), 1e-6));
}

TEST_CASE("a cross entropy whose softmax has more scores than the model's, as of padding that is not masked") {
  const Values scores = routing_scores(), shares = routing_shares(scores);
  const auto gradient_with = [&](const std::function<double(std::size_t)>& more) {
    Values gradient = shares;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const std::size_t row = i / kExperts;
      const double sum = std::exp(scores[row * kExperts]) / shares[row * kExperts];
      gradient[i] *= sum / (sum + more(row));
      gradient[i] = (gradient[i] - (i % kExperts == row % kExperts ? 1 : 0)) / kRoutedRows;
    }
    return gradient;
  };
  double loss = 0;
  for (std::size_t row = 0; row < kRoutedRows; ++row) {
    loss += std::log1p(3 * shares[row * kExperts] / std::exp(scores[row * kExperts])) / kRoutedRows;
  }
  const Values right = gradient_with([](std::size_t) { return 0; });
  const Values padded = gradient_with([](std::size_t) { return 3; });
  const std::string words = "larger by 3 in each row, as 3 further scores of 0 make it (padding that is not masked?)";
  check_term(root_of_scores(right, padded), words);
  check_term(root_of_runs({right, "", 2}, {padded, "", 2 + loss}), words);
  const RootCause otherwise = root_of_runs({right, "", 2}, {padded, "", 2.5 + loss});
  CHECK_MESSAGE(otherwise.diagnosis == Cause::kRegion, otherwise.sentence);
  check_term(root_of_scores(right, gradient_with([](std::size_t) { return 2.5; })), "larger by 2.5 in each row");
  const RootCause varied = root_of_scores(right, gradient_with([](std::size_t row) { return 1.0 + row % 3; }));
  check_term(varied, "where a softmax's backward is not whole, or the softmax is over more scores than these");
}

TEST_SUITE_END();
