// What differs and may be right all the same is a question, and what no other placement explains is wrong.
#include "diagnose/questions.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "diagnose/loss_scales.h"
#include "diagnose/root_causes.h"
#include "judge/judge.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

const TensorId kHiddenOut = tensor_id(Kind::kOutput, "fc", 0);
const TensorId kWeightGradient = tensor_id(Kind::kMainGrad, "fc.weight");

std::vector<float> numbers(std::size_t count, float first) {
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(first + static_cast<float>(i * i % 17));
  return values;
}

// What one process, or each of several ranks, has: its part of an output, and the gradient of a weight.
struct Process {
  std::vector<float> hidden;
  float gradient = 3;
};

Trace trace_of(const std::string& mesh, const std::vector<Process>& processes, const char* module_class = "Linear") {
  Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(processes.size()));
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    const Process& process = processes[rank];
    add_tensor(trace, rank, kHiddenOut, {static_cast<std::int64_t>(process.hidden.size() / 8), 8}, process.hidden);
    trace.ranks[rank].entries.back().module_class = std::string("torch.nn.") + module_class;
    add_tensor(trace, rank, kWeightGradient, {1}, {process.gradient});
  }
  return trace;
}

Report explained(const Trace& one, const Trace& two, const std::string& text = "") {
  Report report = checked(one, two, text);
  const Alignment reference = align(one, annotations(text), {});
  const Alignment candidate = align(two, annotations(text), layout_of(reference));
  Evidence evidence{reference, candidate, two.mesh, {}};
  evidence.reference_trace = &one;
  evidence.candidate_trace = &two;
  add_root_causes(report, evidence);
  return report;
}

// The rows of `values`, from the first on.
std::vector<float> rows(const std::vector<float>& values, std::vector<std::size_t> wanted) {
  std::vector<float> result;
  for (const std::size_t row : wanted) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * 8);
    result.insert(result.end(), begin, begin + 8);
  }
  return result;
}

const std::vector<float> kWhole = numbers(32, 1);
const Trace kOneProcess = trace_of("", {{kWhole}});

}  // namespace

TEST_SUITE_BEGIN("diagnose");

TEST_CASE("an output that is only placed by its shape leaves a question where all of training is right") {
  const Report report = explained(kOneProcess, trace_of("tp=2", {{rows(kWhole, {0, 2})}, {rows(kWhole, {1, 3})}}));
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
  CHECK(report.first_wrong() == nullptr);
  CHECK(report.totals.counts.fail == 0);
  CHECK(report.explanation.roots.empty());
  REQUIRE(report.explanation.questions.size() == 1);
  CHECK(report.explanation.questions[0].tensors == 1);
  CHECK(has(report.explanation.questions[0].sentence, "a line of the annotations says so: fc: {output: {tp:"));
}

TEST_CASE("an output is none where that of another layer lies as its shape says") {
  const auto in_layers = [](const char* mesh, const std::vector<std::vector<float>>& parts_of_layers) {
    const std::size_t ranks = parts_of_layers.size() / 2;
    Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(ranks));
    for (std::size_t i = 0; i < parts_of_layers.size(); ++i) {
      const std::vector<float>& part = parts_of_layers[i];
      const std::string name = "layers." + std::to_string(i / ranks) + ".fc";
      add_tensor(trace, i % ranks, tensor_id(Kind::kOutput, name, 0), {std::ssize(part) / 8, 8}, part);
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) add_tensor(trace, rank, kWeightGradient, {1}, {3});
    return trace;
  };
  const std::vector<float> first = rows(kWhole, {0, 1}), last = rows(kWhole, {2, 3}), even = rows(kWhole, {0, 2}),
                           odd = rows(kWhole, {1, 3});
  const Trace one = in_layers("", {kWhole, kWhole});
  CHECK(explained(one, in_layers("tp=2", {even, odd, even, odd})).verdict() == RunVerdict::kCouldNotLook);
  const Report report = explained(one, in_layers("tp=2", {first, last, even, odd}));
  CHECK(report.verdict() == RunVerdict::kDifferent);
  CHECK(report.first_wrong()->id == tensor_id(Kind::kOutput, "layers.1.fc", 0));
}

TEST_CASE("shapes that do not fit are none where a rank has the reference's very tensor, and training is wrong") {
  const auto on_ranks = [](const std::vector<float>& second, float gradient) {
    Trace trace = trace_of("tp=2", {{kWhole, gradient}, {second, gradient}});
    for (RankTrace& rank : trace.ranks) rank.entries[0].checksum = rank.entries[0].shape[0] == 4 ? 1 : 2;
    return trace;
  };
  Trace one = kOneProcess;
  one.ranks[0].entries[0].checksum = 1;
  const std::vector<float> fewer = rows(kWhole, {0, 1, 2});
  CHECK(explained(one, on_ranks(fewer, 4)).first_wrong()->id == kHiddenOut);
  CHECK(explained(one, on_ranks(fewer, 3)).verdict() == RunVerdict::kCouldNotLook);
}

TEST_CASE("padding that the shapes alone say is a question where all of training is right: a halo is as long") {
  const std::vector<float> whole = numbers(40, 1);
  const Trace one = trace_of("", {{whole}});
  std::vector<float> second = rows(whole, {2, 3, 4});
  second[3] = std::nextafter(second[3], 0.0F);  // neighbours that compute what they share for themselves
  const auto halves = [&](float gradient) {
    return trace_of("cp=2", {{rows(whole, {0, 1, 2}), gradient}, {second, gradient}});
  };
  const Report report = explained(one, halves(3));
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
  REQUIRE(report.explanation.questions.size() == 1);
  CHECK(has(report.explanation.questions[0].sentence, "unpadded: reference}}}; or leave it out: fc: {output: local}"));
  CHECK(explained(one, halves(3), "fc: {output: local}").explanation.questions.empty());
  CHECK(explained(one, halves(4)).verdict() == RunVerdict::kDifferent);
}

// One process that calls `fc` for each piece of its batch, in calls or micro-batches.
Trace in_pieces(const std::vector<TensorId>& calls, float gradient = 3) {
  Trace trace = mesh_trace("", 1);
  for (const TensorId& call : calls)
    add_tensor(trace, 0, call, {1, 8}, numbers(8, static_cast<float>(call.name.size())));
  add_tensor(trace, 0, kWeightGradient, {1}, {gradient});
  return trace;
}

TEST_CASE("calls that one side alone makes of a module are a question where all of training is right") {
  const TensorId second = tensor_id(Kind::kOutput, "fc#1", 0), other = tensor_id(Kind::kOutput, "gate", 0);
  const Trace one = in_pieces({kHiddenOut, second}), two = in_pieces({kHiddenOut});
  for (const auto& [reference, candidate] : {std::pair(one, two), std::pair(two, one)}) {
    const Report report = explained(reference, candidate);
    CHECK(report.verdict() == RunVerdict::kCouldNotLook);
    REQUIRE(report.explanation.questions.size() == 1);
    CHECK(has(report.explanation.questions[0].sentence, "Nothing says which is which"));
  }
  CHECK(has(explained(one, two).explanation.questions[0].sentence,
            "in iteration 0 the reference has fc 2 times, and the candidate once"));
  SUBCASE("but where a gradient is wrong, a call too few may be why") {
    const Report report = explained(one, in_pieces({kHiddenOut}, 4));
    CHECK(report.verdict() == RunVerdict::kDifferent);
    CHECK(report.first_wrong()->id == second);
  }
  SUBCASE("and one that is given what another call is given is known") {
    const TensorId given = tensor_id(Kind::kInput, "fc", 0), again = tensor_id(Kind::kInput, "fc", 1);
    CHECK(explained(in_pieces({given}), in_pieces({given, again})).verdict() == RunVerdict::kDifferent);
  }
  SUBCASE("and a module that is not called at all is missing") {
    CHECK(explained(in_pieces({kHiddenOut, other}), two).verdict() == RunVerdict::kDifferent);
  }
  SUBCASE("and what is missing of a call that was made is") {
    const TensorId given = tensor_id(Kind::kInput, "fc#1", 0), of_first = tensor_id(Kind::kInput, "fc", 0);
    const Report report =
        explained(in_pieces({of_first, kHiddenOut, given, second}), in_pieces({of_first, kHiddenOut, second}));
    CHECK(report.verdict() == RunVerdict::kDifferent);
    CHECK(report.first_wrong()->id == given);
  }
}

TEST_CASE("the same output is wrong where a rule places it there") {
  const Report report = explained(kOneProcess, trace_of("tp=2", {{rows(kWhole, {0, 2})}, {rows(kWhole, {1, 3})}}),
                                  "fc: {output: {tp_dim: 0}}");
  CHECK(report.verdict() == RunVerdict::kDifferent);
  CHECK(report.explanation.questions.empty());
}

TEST_CASE("where a gradient is wrong as well, that is the first wrong tensor, before the guess") {
  const Report report =
      explained(kOneProcess, trace_of("tp=2", {{rows(kWhole, {0, 2}), 4}, {rows(kWhole, {1, 3}), 4}}));
  CHECK(report.verdict() == RunVerdict::kDifferent);
  REQUIRE(report.first_wrong() != nullptr);
  CHECK(report.first_wrong()->id == kWeightGradient);
  CHECK(report.explanation.questions.size() == 1);
}

TEST_CASE("an output that no other placement explains stays wrong where a gradient is") {
  std::vector<float> second = rows(kWhole, {2, 3});
  second[5] += 100;
  const Report report = explained(kOneProcess, trace_of("tp=2", {{rows(kWhole, {0, 1}), 4}, {second, 4}}));
  CHECK(report.verdict() == RunVerdict::kDifferent);
  REQUIRE(report.first_wrong() != nullptr);
  CHECK(report.first_wrong()->id == kHiddenOut);
  CHECK(report.explanation.questions.empty());
}

TEST_CASE("a part that is another rank's, as its shape alone places it, is a question where all of training is right") {
  const auto twice_the_first = [&](float gradient) {
    return trace_of("tp=2", {{rows(kWhole, {0, 1}), gradient}, {rows(kWhole, {0, 1}), gradient}});
  };
  const Report report = explained(kOneProcess, twice_the_first(3));
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
  REQUIRE(report.explanation.questions.size() == 1);
  CHECK(has(report.explanation.questions[0].sentence, "the part of rank 1 is that of rank 0"));
  CHECK(explained(kOneProcess, twice_the_first(4)).verdict() == RunVerdict::kDifferent);
  CHECK(explained(kOneProcess, twice_the_first(3), "fc: {output: {tp_dim: 0}}").verdict() == RunVerdict::kDifferent);
}

TEST_CASE("a tensor that some ranks alone have is said to be missing on the others") {
  Trace two = trace_of("tp=2", {{kWhole}, {kWhole}});
  std::erase_if(two.ranks[1].entries, [](const Entry& entry) { return entry.id == kWeightGradient; });
  const Report report = explained(kOneProcess, two);
  REQUIRE(!report.explanation.roots.empty());
  CHECK_MESSAGE(has(report.explanation.roots[0].sentence, "fc.weight, main_grad: it is not there on rank 1"),
                report.explanation.roots[0].sentence);
}

// The same, of a module without parameters.
Trace without_parameters(Trace trace) {
  for (RankTrace& rank : trace.ranks) {
    for (Entry& entry : rank.entries) {
      if (entry.id == kHiddenOut) entry.id.name = "act";
    }
  }
  return trace;
}

TEST_CASE("copies whose sum is the reference's are a question, and not one where a rule says that they are copies") {
  const std::vector<float> half = numbers(32, 0.25F);
  std::vector<float> rest = kWhole;
  for (std::size_t i = 0; i < rest.size(); ++i) rest[i] -= half[i];
  const Trace two = trace_of("tp=2", {{half}, {rest}});
  const Report report = explained(without_parameters(kOneProcess), without_parameters(two));
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
  REQUIRE(report.explanation.questions.size() == 1);
  CHECK(has(report.explanation.questions[0].sentence, "act: {output: {tp: partial}}"));
  CHECK(explained(kOneProcess, two).same());  // the module's weight has the right gradient
  CHECK(explained(kOneProcess, two, "fc: {output: {tp: replicate}}").verdict() == RunVerdict::kDifferent);
}

TEST_CASE("what a module draws at random is a question about it, with all that follows") {
  std::vector<float> other = kWhole;
  for (std::size_t i = 0; i < other.size(); i += 3) other[i] = 0;
  const Trace one = trace_of("", {{kWhole}}, "Dropout"), two = trace_of("", {{other, 4}}, "Dropout");
  const Report report = explained(one, two);
  REQUIRE(report.explanation.questions.size() == 1);
  CHECK(has(report.explanation.questions[0].sentence, "Dropout draws random numbers"));
  CHECK(explained(trace_of("", {{kWhole}}), trace_of("", {{other, 4}})).verdict() == RunVerdict::kDifferent);
}

namespace {

const TensorId kHiddenGradient = tensor_id(Kind::kGradOutput, "fc", 0);
const TensorId kInputGradient = tensor_id(Kind::kGradInput, "fc", 0);
const TensorId kLoss = tensor_id(Kind::kScalar, "loss", 0);

// What two ranks, each with all of the batch, make of a loss that is multiplied by one number, and its gradients by
// others.
Trace scaled_trace(const std::string& mesh, std::int32_t ranks, float loss, float hidden, float input, float step = 1) {
  Trace trace = mesh_trace(mesh, ranks);
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
    const auto times = [](float factor) {
      std::vector<float> values = kWhole;
      for (float& value : values) value *= factor;
      return values;
    };
    add_tensor(trace, rank, kLoss, {}, {5 * loss});
    add_tensor(trace, rank, kHiddenGradient, {4, 8}, times(hidden));
    add_tensor(trace, rank, kInputGradient, {4, 8}, times(input));
    add_tensor(trace, rank, kWeightGradient, {1}, {3 * step});
  }
  return trace;
}

}  // namespace

TEST_CASE(
    "a loss and all gradients that are one multiple are a loss scale that was not said, if steps take what is right") {
  const Trace one = scaled_trace("", 1, 1, 1, 1);
  const Report report = explained(one, scaled_trace("tp=2", 2, 2, 2, 2));
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
  REQUIRE(report.explanation.questions.size() == 1);
  CHECK(report.explanation.questions[0].tensors == 3);
  CHECK(has(report.explanation.questions[0].sentence, "parallelism: {loss_scale: tp}"));
  CHECK(explained(one, scaled_trace("tp=2", 2, 0.25F, 0.25F, 0.25F)).verdict() == RunVerdict::kCouldNotLook);
  CHECK(explained(one, scaled_trace("tp=2", 2, 2, 2, 2), "parallelism: {loss_scale: tp}").same());
}

TEST_CASE("a loss alone that is a multiple has the line that leaves it out, and nothing is left in question with it") {
  const Trace one = scaled_trace("", 1, 1, 1, 1), two = scaled_trace("tp=2", 2, 3, 1, 1);
  const Report report = explained(one, two);
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
  REQUIRE(report.explanation.questions.size() == 1);
  CHECK(has(report.explanation.questions[0].sentence, "loss: {scalar: local}"));
  CHECK(explained(one, two, "loss: {scalar: local}").explanation.questions.empty());
}

TEST_CASE("a loss, or one of the gradients, that is right in another micro-batch is not multiplied by the program") {
  const auto in_two_microbatches = [](const char* mesh, std::int32_t ranks, float loss, float hidden) {
    Trace trace = scaled_trace(mesh, ranks, loss, hidden, 1);
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
      add_tensor(trace, rank, tensor_id(Kind::kScalar, "loss", 1), {}, {6});
      add_tensor(trace, rank, tensor_id(Kind::kGradOutput, "fc", 1), {4, 8}, kWhole);
    }
    return trace;
  };
  const Trace one = in_two_microbatches("", 1, 1, 1);
  CHECK(explained(one, in_two_microbatches("tp=2", 2, 0.5F, 1)).first_wrong()->id == kLoss);
  CHECK(explained(one, in_two_microbatches("tp=2", 2, 1, 0.5F)).first_wrong()->id == kHiddenGradient);
}

TEST_CASE("a loss that is behind several micro-batches may be scaled as their gradients are") {
  // The program calls its model in two micro-batches, and adds up one loss behind both.
  const auto with_loss_behind = [](Trace trace) {
    for (RankTrace& rank : trace.ranks) {
      for (Entry& entry : rank.entries) {
        if (entry.id == kLoss) entry.id.microbatch = 1;
      }
    }
    return trace;
  };
  const Report report =
      explained(with_loss_behind(scaled_trace("", 1, 1, 1, 1)), with_loss_behind(scaled_trace("tp=2", 2, 2, 2, 2)));
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
  REQUIRE(report.explanation.questions.size() == 1);
  CHECK(has(report.explanation.questions[0].sentence, "parallelism: {loss_scale: tp}"));
}

TEST_CASE("a loss scale is suggested where a step is wrong as well") {
  const Report report = explained(scaled_trace("", 1, 1, 1, 1), scaled_trace("tp=2", 2, 2, 2, 2, 3));
  CHECK(report.verdict() == RunVerdict::kDifferent);
  REQUIRE(!report.notes.empty());
  CHECK(has(report.notes.back(), "say it in the annotations, parallelism: {loss_scale: tp}, and what is wrong"));
}

TEST_CASE("it is none where a gradient is not that multiple, where it is no whole number, and where a step is wrong") {
  const Trace one = scaled_trace("", 1, 1, 1, 1);
  for (const Trace& wrong : {scaled_trace("tp=2", 2, 2, 2, 1), scaled_trace("tp=2", 2, 2, 2, 3),
                             scaled_trace("tp=2", 2, 1.5F, 1.5F, 1.5F), scaled_trace("tp=2", 2, 2, 2, 2, 2)}) {
    const Report report = explained(one, wrong);
    CHECK(report.verdict() == RunVerdict::kDifferent);
    CHECK(report.explanation.questions.empty());
  }
}

namespace {

// A run whose loss and gradients are multiplied, which the step of `right.weight` undoes; the steps of two further
// parameters are multiplied by `wrong`.
Trace undone_trace(const std::string& mesh, std::int32_t ranks, float scale, float undone, float wrong) {
  Trace trace = scaled_trace(mesh, ranks, scale, scale, scale);
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
    add_tensor(trace, rank, tensor_id(Kind::kParamGrad, "right.weight", 0), {2}, {3 * scale, 7 * scale});
    add_tensor(trace, rank, tensor_id(Kind::kMainGrad, "right.weight"), {2}, {3 * undone, 7 * undone});
    for (const char* name : {"one.weight", "two.weight"}) {
      add_tensor(trace, rank, tensor_id(Kind::kMainGrad, name), {2}, {3 * wrong, 7});
    }
    trace.ranks[rank].entries.erase(std::ranges::find(trace.ranks[rank].entries, kWeightGradient, &Entry::id));
  }
  return trace;
}

std::optional<PossibleLossScale> possible_scale(const Trace& one, const Trace& two) {
  const Alignment reference = align(one, {}, {});
  const Alignment candidate = align(two, {}, layout_of(reference));
  return possible_loss_scale(explained(one, two), {reference, candidate, two.mesh, {}});
}

}  // namespace

TEST_CASE("what a later iteration does wrong says nothing of the scale of those before it") {
  const auto with_next = [](Trace trace, float value) {
    for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank) {
      TensorId next = tensor_id(Kind::kMainGrad, "fc.weight");
      next.iteration = 1;
      add_tensor(trace, rank, next, {2}, {3, 7 * value});
    }
    return trace;
  };
  const Trace one = with_next(scaled_trace("", 1, 1, 1, 1), 1);
  const Report report = explained(one, with_next(scaled_trace("tp=2", 2, 2, 2, 2), 1.25F));
  CHECK(report.verdict() == RunVerdict::kDifferent);
  REQUIRE(report.first_wrong() != nullptr);
  CHECK(report.first_wrong()->id.iteration == 1);
  CHECK(report.explanation.questions.size() == 1);
}

TEST_CASE("a number that is no multiple may be of a scaled loss, where its gradients are") {
  const Trace one = scaled_trace("", 1, 1, 1, 1);
  const auto possible = possible_scale(one, scaled_trace("tp=2", 2, 2.25F, 2, 2));
  REQUIRE(possible);
  CHECK(possible->factor == "tp");
  CHECK(!possible_scale(one, scaled_trace("tp=2", 2, 2.25F, 1.5F, 1.5F)));
}

TEST_CASE("gradients that may be anything do not say that a scale is left for steps") {
  const Trace one = undone_trace("", 1, 1, 1, 1), two = undone_trace("tp=2", 2, 2, 1, 5);
  const Alignment reference = align(one, {}, {});
  const Alignment candidate = align(two, {}, layout_of(reference));
  Report report = explained(one, two);
  for (Finding& finding : report.findings) {
    if (finding.id.kind == Kind::kMainGrad) finding.allowed = 2;
  }
  const auto possible = possible_loss_scale(report, {reference, candidate, two.mesh, {}});
  REQUIRE(possible);
  CHECK(possible->may_explain_all);
}

TEST_CASE("a scale that a step undoes may explain all, also where another error spoils most steps") {
  const Trace one = undone_trace("", 1, 1, 1, 1);
  const auto undone = possible_scale(one, undone_trace("tp=2", 2, 2, 1, 5));
  const auto left = possible_scale(one, undone_trace("tp=2", 2, 2, 2, 5));
  REQUIRE((undone && left));
  CHECK(undone->factor == "tp");
  CHECK(undone->may_explain_all);
  CHECK(left->factor == "tp");
  CHECK_FALSE(left->may_explain_all);                             // nobody undoes it
  CHECK(!possible_scale(one, undone_trace("tp=2", 2, 3, 1, 5)));  // no axis has this size
  CHECK(!possible_scale(one, undone_trace("tp=2", 2, 1, 1, 5)));  // there is none
}

TEST_CASE("a loss scale is of some micro-batches where gradients of others are right") {
  const auto with_another = [](Trace trace, bool has_loss, float scale) {
    for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank) {
      add_tensor(trace, rank, tensor_id(Kind::kGradOutput, "fc", 1), {2}, {3 * scale, 7 * scale});
      if (has_loss) add_tensor(trace, rank, tensor_id(Kind::kScalar, "loss", 1), {}, {2 * scale});
    }
    return trace;
  };
  const Trace whole = scaled_trace("", 1, 1, 1, 1), scaled = scaled_trace("tp=2", 2, 2, 2, 2);
  const Trace wrong = scaled_trace("tp=2", 2, 2, 2, 2, 3);  // a step is wrong as well
  const auto some = possible_scale(with_another(whole, false, 1), with_another(scaled, false, 1));
  const auto all = possible_scale(with_another(whole, false, 1), with_another(scaled, false, 2));
  const auto beside = possible_scale(with_another(whole, false, 1), with_another(wrong, false, 1));
  const auto of_one_loss = possible_scale(with_another(whole, true, 1), with_another(wrong, true, 1));
  REQUIRE((some && all && beside && of_one_loss));
  CHECK(some->microbatches == std::set<MicrobatchKey>{{0, 0}});
  CHECK(all->microbatches.empty());
  CHECK(beside->microbatches == std::set<MicrobatchKey>{{0, 0}});
  CHECK(of_one_loss->microbatches.empty());  // among right ones it is an error
}

namespace {

// A report of outputs that exceed what is allowed by these ratios.
Report exceeding(const std::vector<double>& ratios, bool is_measured) {
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    Finding& finding = findings.emplace_back();
    finding.id = tensor_id(Kind::kOutput, std::to_string(i), 0);
    finding.verdict = Verdict::kFail;
    finding.reason = Reason::kExceedsTolerance;
    finding.allowed = 0.5;
    Difference& difference = finding.difference.emplace();
    difference.reference_square = difference.candidate_square = 1;
    difference.difference_square = 0.25 * ratios[i] * ratios[i];
  }
  Report report;
  if (!is_measured) report.proof.unmeasured = "the default";
  summarize_findings(std::move(findings), report);
  return report;
}

bool asks_for_measurement(Report& report) {
  const std::vector<std::optional<std::size_t>> follows_from(report.findings.size());
  const Alignment none;
  set_questions_aside(report, follows_from, {none, none, {}, {}});
  return std::ranges::all_of(report.findings,
                             [](const Finding& finding) { return finding.reason == Reason::kNearUnmeasured; });
}

}  // namespace

TEST_CASE("what exceeds tolerances that nobody measured by little is a question where nothing explains it") {
  Report report = exceeding({1.1, 2.9}, false);
  CHECK(asks_for_measurement(report));
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
  REQUIRE(report.explanation.questions.size() == 1);
  CHECK(report.explanation.questions[0].tensors == 2);
  CHECK(has(report.explanation.questions[0].sentence, "exceeded by no more than 3 times"));
  Report far = exceeding({1.1, 3.1}, false), measured = exceeding({1.1}, true), known = exceeding({1.1}, false);
  RootCause root;
  root.diagnosis = Cause::kUniformFactor;
  known.explanation.roots = {root};
  for (Report* wrong : {&far, &measured, &known}) {
    CHECK_FALSE(asks_for_measurement(*wrong));
    CHECK(wrong->verdict() == RunVerdict::kDifferent);
  }
}

TEST_CASE("a few numbers that no perturbed run moved are a question where they are off by some roundings") {
  const auto is_asked_about = [](double ratio, double sample, Dtype dtype, std::int64_t elements) {
    Report report = exceeding({ratio}, true);
    const TensorId& id = report.findings[0].id;
    report.findings[0].difference->elements = elements;
    ToleranceFile tolerance;
    tolerance.tensors[{id.kind, id.name}].samples = {0, sample, 0};
    Alignment candidate;
    candidate.tensors[id].dtype = dtype;
    Evidence evidence{candidate, candidate, {}, {}};
    evidence.tolerance = &tolerance;
    set_questions_aside(report, std::vector<std::optional<std::size_t>>(1), evidence);
    return report.verdict() == RunVerdict::kCouldNotLook &&
           has(report.explanation.questions.at(0).sentence, "--estimator modules");
  };
  CHECK(is_asked_about(16, 0, Dtype::kFloat64, 1));
  CHECK(is_asked_about(63, 0, Dtype::kFloat32, 8));
  CHECK_FALSE(is_asked_about(65, 0, Dtype::kFloat64, 1));
  CHECK_FALSE(is_asked_about(16, 1e-16, Dtype::kFloat64, 1));
  CHECK_FALSE(is_asked_about(16, 0, Dtype::kBFloat16, 1));
  CHECK_FALSE(is_asked_about(16, 0, Dtype::kFloat64, 9));
}

TEST_CASE(
    "a gradient that is off by little in most elements is a question: its terms may be added up in another order") {
  const auto is_asked_about = [](Kind kind, double ratio, Dtype dtype, std::int64_t differing) {
    Report report = exceeding({ratio}, true);
    Finding& finding = report.findings[0];
    finding.id.kind = kind;
    finding.allowed = 4 * 0x1p-52;
    finding.difference->difference_square = ratio * ratio * *finding.allowed * *finding.allowed;
    finding.difference->elements = 100;
    finding.difference->differing = differing;
    Alignment candidate;
    candidate.tensors[finding.id].dtype = dtype;
    set_questions_aside(report, std::vector<std::optional<std::size_t>>(1), {candidate, candidate, {}, {}});
    return report.verdict() == RunVerdict::kCouldNotLook &&
           has(report.explanation.questions.at(0).sentence, "`margin: 9` in ttrace.yaml");
  };
  CHECK(is_asked_about(Kind::kMainGrad, 2, Dtype::kFloat64, 90));
  CHECK(is_asked_about(Kind::kParamGrad, 2.9, Dtype::kFloat64, 51));
  CHECK_FALSE(is_asked_about(Kind::kMainGrad, 3.1, Dtype::kFloat64, 90));  // no rounding that the runs would not show
  CHECK_FALSE(is_asked_about(Kind::kMainGrad, 2, Dtype::kFloat64, 1));     // a flipped bit
  CHECK_FALSE(is_asked_about(Kind::kMainGrad, 2, Dtype::kBFloat16, 90));
  CHECK_FALSE(is_asked_about(Kind::kOutput, 2, Dtype::kFloat64, 90));
}

TEST_CASE("rows that have changed places may be of samples in an order that nothing tells") {
  const auto trace_of = [](const char* mesh, const std::vector<std::vector<int>>& rows_of_ranks) {
    Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(rows_of_ranks.size()));
    for (std::size_t rank = 0; rank < rows_of_ranks.size(); ++rank) {
      const auto rows = std::ssize(rows_of_ranks[rank]);
      std::vector<float> values;
      for (const int row : rows_of_ranks[rank]) {
        for (int column = 0; column < 6; ++column) values.push_back(static_cast<float>((row + 1) * (column + 3) % 97));
      }
      add_int64(trace, rank, tensor_id(Kind::kInput, "(model)", 0), {rows},
                std::vector<std::int64_t>(rows_of_ranks[rank].size(), 5));
      add_tensor(trace, rank, tensor_id(Kind::kOutput, "(model)", 0), {rows, 6}, values);
    }
    return trace;
  };
  std::vector<int> all, first, second;
  for (int row = 0; row < 38; ++row) {
    all.push_back(row);
    (row < 3 || row % 2 == 1 ? first : second).push_back(row);
  }
  const Report report = explained(trace_of("", {all}), trace_of("dp=2", {first, second}));
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
  REQUIRE(report.explanation.questions.size() == 1);
  CHECK(has(report.explanation.questions[0].sentence, "of 38 rows have changed places"));
  second[4] = second[5];  // which is no order of the reference's
  CHECK(explained(trace_of("", {all}), trace_of("dp=2", {first, second})).verdict() == RunVerdict::kDifferent);
}
