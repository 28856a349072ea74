#include "diagnose/loss_scales.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "align/recorded_bits.h"
#include "base/axis_names.h"
#include "base/factor.h"
#include "base/lookup.h"
#include "judge/right_elsewhere.h"

namespace ttrace {
namespace {

bool is_gradient(const Finding& finding) {
  const Kind kind = finding.id.kind;
  return kind == Kind::kParamGrad ||
         ((kind == Kind::kGradOutput || kind == Kind::kGradInput) && finding.difference->elements > 1);
}

bool is_number(const Finding& finding) {
  return (finding.id.kind == Kind::kScalar || finding.id.kind == Kind::kOutput) && finding.difference->elements == 1;
}

// What was found of one micro-batch.
struct Batch {
  std::vector<std::size_t> gradients, numbers;    // failed ones
  std::vector<std::size_t> gradients_of_numbers;  // with respect to a single number
  bool some_are_right = false;                    // of the gradients
};

bool are_one_multiple(const Report& report, const std::vector<std::size_t>& findings) {
  const double factor = whole_factor_of(report.findings[findings[0]]);
  return factor != 1 && std::all_of(findings.begin(), findings.end(),
                                    [&](std::size_t i) { return whole_factor_of(report.findings[i]) == factor; });
}

// True where one of the numbers is the one that the gradient is with respect to, and both factors cancel.
bool is_scaled_back(const Report& report, const std::vector<std::size_t>& numbers, const Finding& gradient) {
  return std::any_of(numbers.begin(), numbers.end(), [&](std::size_t i) {
    const Finding& number = report.findings[i];
    return number.id == gradient.id.with_kind(Kind::kOutput) &&
           whole_factor_of(number) * whole_factor_of(gradient) == 1;
  });
}

// Returns what the candidate multiplied the tensor by, beside what is declared of it.
double recorded_factor_of(const Finding& finding, const Evidence& evidence) {
  const LogicalTensor* tensor = find_tensor(evidence.candidate, finding.id);
  return whole_multiple_of(finding) * (tensor == nullptr ? 1 : tensor->scale);
}

// Returns the first axis of this size; nothing where there is none.
std::optional<std::string> axis_of_size(const Mesh& mesh, double size) {
  for (const Axis& axis : all_axes(mesh)) {
    if (static_cast<double>(axis.size) == size) return axis.name;
  }
  return std::nullopt;
}

// The factor as annotations have it: an axis of its size, or a number; or one over these.
std::string word_of(double factor, const Mesh& mesh) {
  const auto word = [&](double number) { return axis_of_size(mesh, number).value_or(fmt::format("{:.0f}", number)); };
  return factor >= 1 ? word(factor) : "1/" + word(1 / factor);
}

// Returns the first of the findings where nothing but a loss scale is in question; null elsewhere.
const Finding* only_scale_in_question(const Report& report) {
  const std::vector<Question>& questions = report.explanation.questions;
  if (questions.size() != 1 || report.verdict() != RunVerdict::kCouldNotLook) return nullptr;
  const Finding& finding = report.findings[questions[0].finding];
  return finding.reason == Reason::kUnknownLossScale ? &finding : nullptr;
}

// Returns the tensor that is wrong first, or a loss that is such a multiple as that is, if a gradient or a number that the
// model returns.
const Finding* loss_behind(const Report& report) {
  const Finding* first = report.first_wrong();
  if (first == nullptr || is_loss(first->id) || !first->difference) return first;
  if (!is_gradient(*first) && !is_number(*first)) return first;
  const auto found = std::ranges::find_if(report.findings, [&](const Finding& other) {
    return is_wrong(other) && is_loss(other.id) && whole_factor_of(other) == whole_factor_of(*first);
  });
  return found == report.findings.end() ? first : &*found;
}

// Returns the loss that is wrong first, where it is a whole multiple, as some of its gradients are, of its micro-batch or
// of those that it is behind as well; else null.
const Finding* loss_that_may_be_scaled(const Report& report) {
  const Finding* first = loss_behind(report);
  if (first == nullptr || !is_loss(first->id) || whole_factor_of(*first) == 1) return nullptr;
  const bool is_in_gradients = std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& other) {
    const bool is_behind = other.id.iteration == first->id.iteration && other.id.microbatch <= first->id.microbatch;
    return other.difference && is_gradient(other) && is_behind && whole_factor_of(other) == whole_factor_of(*first);
  });
  return is_in_gradients ? first : nullptr;
}

// Returns the first gradient of the micro-batch whose loss is wrong first, or another number that the model returns, where
// the gradient is a whole multiple, and the number has a part that is wrong otherwise; else null.
const Finding* gradient_that_may_be_scaled(const Report& report) {
  const Finding* first = report.first_wrong();
  if (first == nullptr || !first->difference || !(is_loss(first->id) || is_number(*first))) return nullptr;
  const auto found = std::ranges::find_if(report.findings, [&](const Finding& other) {
    return is_wrong(other) && other.difference && is_gradient(other) && other.id.iteration == first->id.iteration &&
           other.id.microbatch == first->id.microbatch;
  });
  const bool is_multiple = found != report.findings.end() && whole_factor_of(*found) != 1;
  return is_multiple && found->id.kind == Kind::kGradOutput ? &*found : nullptr;
}

// Returns the gradient that is wrong first, a whole multiple, where no loss was recorded: the program takes gradients of its
// losses by themselves, and calls no backward(). Null elsewhere.
const Finding* gradient_of_no_loss(const Report& report) {
  const Finding* first = report.first_wrong();
  if (first == nullptr || !first->difference || first->id.kind != Kind::kGradOutput) return nullptr;
  const auto is_of_loss = [](const Finding& finding) { return is_loss(finding.id); };
  const bool is_some_recorded =
      std::ranges::any_of(report.findings, is_of_loss) || std::ranges::any_of(report.passed, is_of_loss);
  return !is_some_recorded && whole_factor_of(*first) != 1 ? first : nullptr;
}

// Returns the first tensor of which the loss scale is in question already; null where there is none.
const Finding* scaled_in_question(const Report& report) {
  const auto found = std::ranges::find(report.findings, Reason::kUnknownLossScale, &Finding::reason);
  return found == report.findings.end() ? nullptr : &*found;
}

// True where it was recorded what the model's parameters are stepped with.
bool are_steps_seen(const Report& report) { return report.totals.steps && report.totals.steps->parameters > 0; }

// True where a gradient is this multiple that steps of the model's parameters would take: a scale that nobody undoes is
// an error.
bool is_left_for_steps(const Report& report, double factor) {
  return std::ranges::any_of(report.findings, [&](const Finding& finding) {
    return finding.id.kind == Kind::kMainGrad && whole_multiple_of(finding) == factor;
  });
}

// True where more gradients that steps take are right than wrong; of steps with other tensors than the model's, more
// parameters that they made.
bool steps_mostly_right(const Report& report) {
  const Kind kind = are_steps_seen(report) ? Kind::kMainGrad : Kind::kParamAfter;
  const auto is_of_kind = [kind](const Finding& finding) { return finding.id.kind == kind; };
  return std::ranges::count_if(report.passed, is_of_kind) > std::ranges::count_if(report.findings, is_of_kind);
}

// True where a parameter's gradient is this multiple and what its step takes of it is right, and no step takes such a
// multiple: what the loss was multiplied by is undone, however many steps another error spoils.
bool steps_undo(const Report& report, double factor) {
  if (is_left_for_steps(report, factor)) return false;
  std::set<TensorId> multiples;  // the gradients that steps would take, of those that are the multiple before
  for (const Finding& finding : report.findings) {
    if (finding.id.kind != Kind::kParamGrad || whole_multiple_of(finding) != factor) continue;
    TensorId taken = finding.id.with_kind(Kind::kMainGrad);
    taken.microbatch = kNoMicrobatch;
    multiples.insert(taken);
  }
  return std::ranges::any_of(report.passed, [&](const Finding& finding) { return multiples.contains(finding.id); });
}

// True where some rank says that an optimizer has stepped the gradient's parameter, and where nothing is known.
bool is_stepped_by_optimizer(const TensorId& gradient, const Evidence& evidence) {
  const LogicalTensor* tensor = find_tensor(evidence.candidate, gradient);
  if (tensor == nullptr || evidence.candidate_trace == nullptr) return true;
  const std::vector<Piece> pieces = tensor->pieces();
  return std::ranges::any_of(evidence.candidate_trace->ranks, [&](const RankTrace& rank) {
    return std::ranges::any_of(rank.optimizer_steps, [&](const OptimizerStep& step) {
      return !step.optimizer.empty() && step.iteration == gradient.iteration &&
             std::ranges::any_of(pieces, [&](const Piece& piece) {
               return piece.rank == rank.rank && piece.entry->id.chunk == step.chunk &&
                      std::ranges::find(step.parameters, piece.entry->id.name.get()) != step.parameters.end();
             });
    });
  });
}

MicrobatchKey microbatch_of(const TensorId& id) { return {id.iteration, id.microbatch}; }

// Returns the micro-batches with tensors that are this multiple, where gradients of others are right: else none.
std::set<MicrobatchKey> microbatches_scaled(const Report& report, double multiple) {
  std::set<MicrobatchKey> scaled;
  for (const Finding& finding : report.findings) {
    if (finding.id.microbatch >= 0 && whole_multiple_of(finding) == multiple) scaled.insert(microbatch_of(finding.id));
  }
  const bool are_others_right = std::ranges::any_of(report.passed, [&](const Finding& finding) {
    return finding.difference && finding.floating && finding.id.microbatch >= 0 && is_gradient(finding) &&
           !scaled.contains(microbatch_of(finding.id));
  });
  return are_others_right ? scaled : std::set<MicrobatchKey>();
}

// True where the reference's steps take the gradients of other micro-batches alone, to the bit: those of this one, such
// as an attack's on the inputs, were zeroed, and its loss may have a scale of its own.
bool is_left_out_of_steps(const Alignment& reference, const MicrobatchKey& microbatch) {
  std::map<std::string, std::map<std::int32_t, const LogicalTensor*>> gradients;  // by parameter and micro-batch
  for (const auto& [id, tensor] : reference.tensors) {
    if (id.kind == Kind::kParamGrad && id.iteration == microbatch.first) gradients[id.name][id.microbatch] = &tensor;
  }
  bool are_some_taken = false;
  for (const auto& [id, taken] : reference.tensors) {
    if (id.kind != Kind::kMainGrad || id.iteration != microbatch.first) continue;
    const auto& of_parameter = gradients[id.name];
    const auto own = of_parameter.find(microbatch.second);
    if (own == of_parameter.end() || have_same_recorded_bits(*own->second, taken)) return false;
    const bool is_of_other = std::ranges::any_of(
        of_parameter, [&](const auto& gradient) { return have_same_recorded_bits(*gradient.second, taken); });
    if (!is_of_other) return false;
    are_some_taken = true;
  }
  return are_some_taken;
}

// Returns the micro-batches of this number in all iterations.
std::set<MicrobatchKey> in_all_iterations(const Alignment& reference, std::int32_t number) {
  std::set<MicrobatchKey> found;
  for (const auto& [id, tensor] : reference.tensors) {
    if (id.microbatch == number) found.insert(microbatch_of(id));
  }
  return found;
}

}  // namespace

double whole_factor_of(const Finding& finding) {
  return finding.reason == Reason::kExceedsTolerance ? whole_multiple_of(finding) : 1;
}

std::optional<PossibleLossScale> possible_loss_scale(const Report& report, const Evidence& evidence) {
  if (const Finding* scaled = only_scale_in_question(report)) {
    // Where nothing else is wrong, it holds if the run is the same with it.
    return PossibleLossScale{word_of(recorded_factor_of(*scaled, evidence), evidence.mesh),
                             microbatches_scaled(report, whole_multiple_of(*scaled)), true};
  }
  const Finding* scaled = scaled_in_question(report);
  if (scaled == nullptr) scaled = loss_that_may_be_scaled(report);
  if (scaled == nullptr) scaled = gradient_that_may_be_scaled(report);
  const bool is_of_no_loss = scaled == nullptr;
  if (scaled == nullptr) scaled = gradient_of_no_loss(report);
  if (scaled == nullptr) return std::nullopt;
  const double factor = recorded_factor_of(*scaled, evidence);
  const double multiple = whole_multiple_of(*scaled);
  const bool is_undone = steps_mostly_right(report) || steps_undo(report, multiple);
  std::optional<std::string> word = factor == 1 ? "1" : axis_of_size(evidence.mesh, factor);
  // An axis times what the program says, such as a pipeline's number of micro-batches.
  if (!word && is_undone && axis_of_size(evidence.mesh, multiple)) word = word_of(factor, evidence.mesh);
  if (!word) return std::nullopt;
  if (is_of_no_loss && !is_undone) return std::nullopt;
  const bool is_said = multiple != factor;
  const bool may_be_mean = !is_said && std::ranges::find(kDataAxes, *word) != kDataAxes.end();
  if (!may_be_mean && !is_undone && are_steps_seen(report) && is_left_for_steps(report, multiple)) return std::nullopt;
  const auto is_left_out = [&](const Finding& finding) {
    return is_left_out_of_steps(evidence.reference, microbatch_of(finding.id));
  };
  if (is_left_out(*scaled)) {
    return PossibleLossScale{*word, in_all_iterations(evidence.reference, scaled->id.microbatch), is_undone};
  }
  // One loss among right ones that is a multiple is an error, however right all is with it.
  const bool is_some_loss_right = std::ranges::any_of(
      report.passed, [&](const Finding& finding) { return is_loss(finding.id) && !is_left_out(finding); });
  const auto microbatches = is_some_loss_right ? std::set<MicrobatchKey>() : microbatches_scaled(report, multiple);
  return PossibleLossScale{*word, microbatches, is_undone};
}

std::vector<std::size_t> find_divided_in_step(const Report& report, const Evidence& evidence) {
  std::set<double> factors;  // with which a parameter is right behind its step
  std::vector<std::size_t> multiples;
  for (std::size_t i = 0; i < report.findings.size(); ++i) {
    const Finding& finding = report.findings[i];
    if (finding.verdict != Verdict::kFail || finding.id.kind != Kind::kMainGrad || whole_factor_of(finding) == 1)
      continue;
    if (is_stepped_by_optimizer(finding.id, evidence)) continue;
    multiples.push_back(i);
    const TensorId after = finding.id.with_kind(Kind::kParamAfter);
    const bool is_right = std::ranges::any_of(report.passed, [&](const Finding& other) { return other.id == after; });
    if (is_right) factors.insert(whole_factor_of(finding));
  }
  std::erase_if(multiples, [&](std::size_t i) { return !factors.contains(whole_factor_of(report.findings[i])); });
  return multiples;
}

std::string loss_scale_line(const Finding& finding, const Evidence& evidence) {
  return fmt::format("parallelism: {{loss_scale: {}}}", word_of(recorded_factor_of(finding, evidence), evidence.mesh));
}

bool is_of_numbers_alone(const Finding& finding, const Report& report) {
  const auto is_of_batch = [&](const Finding& other) { return microbatch_of(other.id) == microbatch_of(finding.id); };
  const auto is_gradient_of_many = [](const Finding& other) {
    return other.id.microbatch >= 0 && other.difference && other.floating && is_gradient(other);
  };
  const bool is_in_gradients = std::ranges::any_of(report.findings, [&](const Finding& other) {
    return is_of_batch(other) && is_gradient_of_many(other) && whole_multiple_of(other) != 1;
  });
  return !is_in_gradients && std::ranges::any_of(report.passed, is_gradient_of_many);
}

bool is_of_some_alone(const Finding& finding, const Report& report) {
  return is_gradient(finding) && std::ranges::any_of(report.passed, [&](const Finding& other) {
           return other.difference && other.floating && is_gradient(other) &&
                  microbatch_of(other.id) == microbatch_of(finding.id);
         });
}

std::optional<std::string> describe_possible_scale(const Report& report, const Evidence& evidence) {
  const Finding* first = loss_that_may_be_scaled(report);
  if (first == nullptr) return std::nullopt;
  // What parameters get of it tells that the whole factor is not the loss scale.
  const bool is_other_of_parameters = std::ranges::any_of(report.findings, [&](const Finding& other) {
    const double multiple = other.id.kind == Kind::kParamGrad ? whole_multiple_of(other) : 1;
    return multiple != 1 && multiple != whole_multiple_of(*first);
  });
  if (is_other_of_parameters) return std::nullopt;
  return fmt::format(
      "where the program multiplies its loss so, say it in the annotations, {}, and what is wrong beside "
      "that comes first",
      loss_scale_line(*first, evidence));
}

std::vector<std::size_t> find_scaled(const Report& report) {
  std::map<MicrobatchKey, Batch> batches;
  for (std::size_t i = 0; i < report.findings.size(); ++i) {
    const Finding& finding = report.findings[i];
    if (finding.verdict != Verdict::kFail || finding.id.microbatch < 0 || !finding.difference) continue;
    Batch& batch = batches[microbatch_of(finding.id)];
    if (is_gradient(finding)) batch.gradients.push_back(i);
    if (is_number(finding)) batch.numbers.push_back(i);
    const bool is_of_number = finding.id.kind == Kind::kGradOutput && finding.difference->elements == 1;
    if (is_of_number) batch.gradients_of_numbers.push_back(i);
  }
  for (const Finding& finding : report.passed) {
    if (!finding.difference || !finding.floating || !is_gradient(finding)) continue;
    const auto batch = batches.find(microbatch_of(finding.id));
    if (batch != batches.end()) batch->second.some_are_right = true;
  }
  std::vector<std::size_t> scaled;
  const RightElsewhere right_elsewhere(report.passed);
  const auto is_right_elsewhere = [&](std::size_t i) { return right_elsewhere.contains(report.findings[i].id); };
  for (auto& [id, batch] : batches) {
    if (batch.some_are_right) {
      // A factor of some gradients, or of numbers alone, is in how the program is written.
      std::erase_if(batch.numbers, is_right_elsewhere);
      if (std::ranges::any_of(batch.gradients, is_right_elsewhere)) continue;
    }
    std::erase_if(batch.numbers, [&](std::size_t i) { return whole_factor_of(report.findings[i]) == 1; });
    double factor = 1;
    if (!batch.gradients.empty()) {
      const bool may_be_some = batch.numbers.empty();
      if ((batch.some_are_right && !may_be_some) || !are_one_multiple(report, batch.gradients)) continue;
      factor = whole_factor_of(report.findings[batch.gradients[0]]);
      std::erase_if(batch.numbers, [&](std::size_t i) { return whole_factor_of(report.findings[i]) != factor; });
    }
    scaled.insert(scaled.end(), batch.gradients.begin(), batch.gradients.end());
    scaled.insert(scaled.end(), batch.numbers.begin(), batch.numbers.end());
    // Those with respect to single numbers are the same multiple, too; or the inverse one, of a number that is scaled back
    // before backward() is called.
    std::copy_if(batch.gradients_of_numbers.begin(), batch.gradients_of_numbers.end(), std::back_inserter(scaled),
                 [&, &numbers = batch.numbers](std::size_t gradient) {
                   const Finding& finding = report.findings[gradient];
                   return (factor != 1 && whole_factor_of(finding) == factor) ||
                          is_scaled_back(report, numbers, finding);
                 });
  }
  return scaled;
}

}  // namespace ttrace
