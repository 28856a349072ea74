#include "diagnose/root_causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "align/passed_on.h"
#include "align/recorded_bits.h"
#include "base/describe.h"
#include "base/lookup.h"
#include "base/tensor_name.h"
#include "diagnose/configurations.h"
#include "diagnose/dataflow.h"
#include "diagnose/initialisation.h"
#include "diagnose/left_overs.h"
#include "diagnose/loss_scales.h"
#include "diagnose/losses_by_gradients.h"
#include "diagnose/other_microbatches.h"
#include "diagnose/own_numbers.h"
#include "diagnose/questions.h"
#include "diagnose/rank_scales.h"
#include "diagnose/unlike_samples.h"
#include "tolerance/tolerance.h"

namespace ttrace {
namespace {

constexpr std::size_t kMostExamined = 5;  // roots that are diagnosed, and shown, whatever their size
// Elements of the further roots that are diagnosed: a hypothesis takes a hundredth of a second for so many, and one may
// read every tensor of a shape.
constexpr std::int64_t kMostElements = std::int64_t{1} << 20;

// Returns the larger of the tensor's error and the difference of its copies, in units of what is allowed.
double largest_ratio(const Finding& finding) {
  const std::optional<double> ratio = ratio_of(finding);
  if (!ratio) return is_wrong(finding) ? INFINITY : 0;
  return std::max(*ratio, finding.difference->replica_rel_err() / *finding.allowed);
}

// Every tensor that was compared, once each, in order of execution, with the first finding that calls it wrong.
struct Observed {
  std::vector<Observation> observations;
  std::vector<std::size_t> findings;  // index in `Report::findings`; without meaning for a tensor that agrees
};

Observed collect_observations(const Report& report) {
  std::vector<const Finding*> ordered;
  for (const std::vector<Finding>* findings : {&report.findings, &report.passed}) {
    for (const Finding& finding : *findings) {
      const bool was_compared = finding.verdict != Verdict::kNotSeen;
      if (was_compared && !finding.id.name.empty()) ordered.push_back(&finding);
    }
  }
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const Finding* a, const Finding* b) { return executes_before(*a, *b); });
  Observed observed;
  std::map<TensorId, std::size_t> seen;
  for (const Finding* finding : ordered) {
    const auto [at, is_new] = seen.emplace(finding->id, observed.observations.size());
    if (is_new) {
      observed.observations.push_back({finding->id});
      observed.findings.push_back(0);
    }
    Observation& observation = observed.observations[at->second];
    observation.ratio = std::max(observation.ratio, largest_ratio(*finding));
    const bool is_asked = finding->verdict == Verdict::kUntrusted && finding->reason == Reason::kGuessedPlacement;
    observation.is_open = observation.is_open || is_asked;
    if (!is_wrong(*finding) || !observation.agrees) continue;
    observation.agrees = false;
    observation.of_step = is_of_step(*finding);
    observation.truncated = finding->reason == Reason::kTruncated;
    observed.findings[at->second] = static_cast<std::size_t>(finding - report.findings.data());
  }
  return observed;
}

// Returns the modules that the candidate lacks: the shortest paths of which the reference has tensors and the candidate
// none.
std::vector<std::string> missing_modules(const Report& report) {
  struct Tally {
    std::int64_t missing = 0, findings = 0;
  };
  std::map<std::string, Tally> tallies;
  const auto count = [&](const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) {
      std::string_view path = TensorName(finding.id.name).path;
      for (path = owner_of(path); path != kRootModule; path = owner_of(path)) {
        Tally& tally = tallies[std::string(path)];
        ++tally.findings;
        tally.missing += finding.reason == Reason::kMissingInCandidate;
      }
    }
  };
  count(report.findings);
  count(report.passed);
  std::vector<std::string> modules;  // sorted, so that an outer module comes before those inside it
  for (const auto& [path, tally] : tallies) {
    if (tally.missing < tally.findings) continue;
    const bool inside = std::any_of(modules.begin(), modules.end(),
                                    [&, &inner = path](const auto& outer) { return is_inside(inner, outer); });
    if (!inside) modules.push_back(path);
  }
  return modules;
}

// On whichever ranks they are.
bool have_equal_bits(const LogicalTensor& one, const LogicalTensor& other) {
  const RecordedBits a = recorded_bits_of(one), b = recorded_bits_of(other);
  return !a.empty() &&
         std::ranges::equal(a, b, {}, &RecordedBits::value_type::second, &RecordedBits::value_type::second);
}

// Returns an earlier micro-batch of the candidate's that was given the same, bit for bit; nothing where none was.
std::optional<std::int32_t> given_before(const TensorId& id, const Alignment& candidate) {
  const LogicalTensor* given = id.kind == Kind::kInput ? find_tensor(candidate, id) : nullptr;
  TensorId other = id;
  for (other.microbatch = 0; given != nullptr && other.microbatch < id.microbatch; ++other.microbatch) {
    const LogicalTensor* before = find_tensor(candidate, other);
    if (before != nullptr && have_equal_bits(*given, *before)) return other.microbatch;
  }
  return std::nullopt;
}

std::string describe_missing(const Report& report, const Finding& finding, const Alignment& candidate) {
  if (finding.reason == Reason::kMissingInReference) {
    const auto before = given_before(finding.id, candidate);
    if (!before) return "the reference has no such tensor";
    return fmt::format(
        "it is what micro-batch {} was given, bit for bit, and the reference has no such tensor: ranks were given the "
        "same samples (is there a DistributedSampler, or do all ranks read with one seed?)",
        *before);
  }
  const std::vector<std::string> modules = missing_modules(report);
  if (modules.empty() && finding.reason == Reason::kOmission && !finding.ranks.empty()) {
    return fmt::format("it is not there on {}", describe_ranks(finding.ranks));
  }
  if (modules.empty()) return "it is not there";
  std::string names;
  for (std::size_t i = 0; i < std::min<std::size_t>(modules.size(), 8); ++i) {
    names += (i == 0 ? "" : ", ") + printable(modules[i]);
  }
  if (modules.size() > 8) names += ", ...";
  return fmt::format("{} {} not there at all", names, modules.size() == 1 ? "is" : "are");
}

std::string describe_tensor(const TensorId& id) {
  std::string text = fmt::format("{}, {}", printable(id.name), name_of(id.kind));
  if (id.pass == Pass::kRecompute) text += " of the recomputation";
  if (id.microbatch != kNoMicrobatch) text += fmt::format(", micro-batch {}", id.microbatch);
  if (id.iteration != 0) text += fmt::format(", iteration {}", id.iteration);
  return text;
}

// Returns the names, with a * for the numbers in them; each pattern once.
std::vector<std::string> patterns_of(const std::vector<std::string>& names) {
  std::vector<std::string> patterns;
  for (const std::string& name : names) {
    const std::string pattern = with_any_number(name);
    if (std::find(patterns.begin(), patterns.end(), pattern) == patterns.end()) patterns.push_back(printable(pattern));
  }
  return patterns;
}

// Returns what the finding's message says beside the tensor's identity, with which it begins.
std::string without_identity(const Finding& finding) {
  const std::string id = to_string(finding.id) + ": ";
  return finding.message.starts_with(id) ? finding.message.substr(id.size()) : finding.message;
}

// A clause about a tensor of other bits, and no other value than rounding makes. `made_here` is that of `Root`.
std::string describe_other_order(const Finding& finding, bool made_here, bool is_first) {
  const std::string units = without_identity(finding);
  const std::string what =
      "it differs as rounding does: a sum in another order (a reduction over ranks or chunks, a "
      "matrix product that is cut otherwise) or another kernel";
  if (made_here) return fmt::format("{}; what it is computed from has equal bits, and {}", units, what);
  if (is_first) return fmt::format("{}; all that was compared before it has equal bits, and {}", units, what);
  return fmt::format("{}; {}", units, what);
}

bool is_of_micro_batch(const Finding& finding, const TensorId& id) {
  return finding.id.iteration == id.iteration && finding.id.microbatch == id.microbatch;
}

// True where all that modules were given and returned in the micro-batch of a loss was compared, and is right.
bool is_forward_right(const TensorId& loss, const Report& report) {
  const auto is_of_forward = [&](const Finding& finding) {
    return (finding.id.kind == Kind::kInput || finding.id.kind == Kind::kOutput) && is_of_micro_batch(finding, loss);
  };
  return std::ranges::any_of(report.passed, is_of_forward) && std::ranges::none_of(report.findings, is_of_forward);
}

// True where the loss of a micro-batch was compared, and is right.
bool is_loss_right(const TensorId& id, const Report& report) {
  const auto is_its_loss = [&](const Finding& finding) {
    return is_loss_of_backward(finding.id) && is_of_micro_batch(finding, id);
  };
  return std::ranges::any_of(report.passed, is_its_loss) && std::ranges::none_of(report.findings, is_its_loss);
}

// True where what the module of a gradient was given and returned in that call is right, and so is what came back to it:
// the gradient of its output, or of a module without a module behind it the loss.
bool is_backward_wrong_alone(const TensorId& gradient, const Report& report) {
  if (gradient.kind != Kind::kGradInput) return false;
  const TensorName name(gradient.name.get());
  const auto is_of_call = [&](const Finding& finding, Kind kind) {
    const TensorName other(finding.id.name.get());
    return finding.id.kind == kind && is_of_micro_batch(finding, gradient) && finding.id.chunk == gradient.chunk &&
           other.path == name.path && other.call == name.call;
  };
  const auto is_right = [&](Kind kind) {
    const auto is_it = [&](const Finding& finding) { return is_of_call(finding, kind); };
    return std::ranges::any_of(report.passed, is_it) && std::ranges::none_of(report.findings, is_it);
  };
  const auto comes_back_wrong = [&](const Finding& finding) { return is_of_call(finding, Kind::kGradOutput); };
  return is_right(Kind::kInput) && is_right(Kind::kOutput) &&
         (is_right(Kind::kGradOutput) ||
          (std::ranges::none_of(report.findings, comes_back_wrong) && is_loss_right(gradient, report)));
}

// What models return that are called without gradients alone, and are not recorded; empty where there are none.
std::string describe_models_without_grad(const Evidence& evidence) {
  const auto models =
      evidence.candidate_trace == nullptr ? std::vector<std::string>() : models_without_grad(*evidence.candidate_trace);
  if (models.empty()) return "";
  return fmt::format(
      "what {} return{}, called without gradients and not recorded (`ttrace collect --no-grad` records such calls)",
      comma_list(models), models.size() == 1 ? "s" : "");
}

// What a loss may be made of beside what was compared.
std::string describe_unrecorded(const Evidence& evidence) {
  const std::string models = describe_models_without_grad(evidence);
  return models.empty() ? "or of labels, weights and the like that no module is given"
                        : "or of labels, weights and " + models;
}

// Returns the first buffer of the module whose output the finding is that was asked about, and that the module may have
// computed with; null where there is none.
const Finding* buffer_in_question(const Finding& finding, const Report& report) {
  if (finding.id.kind != Kind::kOutput) return nullptr;
  const auto found = std::ranges::find_if(report.findings, [&](const Finding& other) {
    return is_buffer_kind(other.id.kind) && other.verdict == Verdict::kUntrusted &&
           (other.reason == Reason::kOwnNumbers || other.reason == Reason::kOwnStatistics) &&
           other.id.iteration <= finding.id.iteration &&
           owner_of(TensorName(other.id.name.get()).path) == TensorName(finding.id.name.get()).path;
  });
  return found == report.findings.end() ? nullptr : &*found;
}

using KnownOtherSamples = std::map<std::int32_t, std::optional<OtherSamples>>;  // by iteration: they are read once

// How wrong the tensor is, and on which ranks; empty where nothing was measured.
std::string describe_extent(const Finding& finding) {
  if (!finding.difference || finding.ranks.empty()) return "";
  std::string extent = "on " + describe_ranks(finding.ranks);
  const double rel_err = finding.difference->rel_err();
  if (std::isinf(rel_err)) {
    extent = "the reference is zero, " + extent;
  } else if (finding.reason == Reason::kExceedsTolerance) {
    const std::string_view whole = finding.difference->elements == 1 ? "value" : "norm";
    extent = fmt::format("{:.2g} of its {}, {}", rel_err, whole, extent);
  }
  return fmt::format(" ({})", extent);
}

// A clause about an error that no hypothesis explains.
std::string describe_unexplained(const Finding& finding, const RootCause& root, const Report& report,
                                 const Evidence& evidence, KnownOtherSamples& others) {
  if (finding.exceeded == Statistic::kCoherence) {
    return "the same small factor is in every layer, too near to 1 to be seen in any one of them";
  }
  if (finding.reason == Reason::kRoutingDiffers) {
    return "by it tokens went to other experts than the reference's, which was no near tie";
  }
  if (finding.reason == Reason::kTruncated) {
    return fmt::format("{} {} given the beginnings of {} samples alone", describe_ranks(finding.ranks),
                       finding.ranks.size() == 1 ? "is" : "are", finding.ranks.size() == 1 ? "its" : "their");
  }
  if (!root.examined) return "its error was not looked into";
  const bool is_gradient = finding.id.kind == Kind::kMainGrad || finding.id.kind == Kind::kParamGrad;
  const bool is_rounding = finding.difference && finding.allowed && finding.difference->rel_err() <= *finding.allowed;
  if (finding.reason == Reason::kReplicasDisagree && is_gradient && is_rounding) {
    return "each rank's copy is the reference's but for rounding, and they are not equal: nothing keeps them so, and "
           "the ranks' parameters drift apart (an all-reduce or a broadcast makes them equal)";
  }
  if (const std::string dealt = describe_samples_along_tensor_axis(evidence, finding.id.iteration); !dealt.empty()) {
    return dealt;
  }
  if (finding.reason == Reason::kReplicasDisagree && is_gradient) {
    return "ranks hold values of their own where they are to agree, and nothing known explains these";
  }
  const std::string extent = describe_extent(finding);
  if (is_loss_of_backward(finding.id) && is_forward_right(finding.id, report)) {
    return fmt::format(
        "nothing known explains the error{}; all that modules were given and returned in its micro-batch is right, so "
        "that the loss is made otherwise of it, {}",
        extent, describe_unrecorded(evidence));
  }
  if (is_backward_wrong_alone(finding.id, report)) {
    return fmt::format(
        "nothing known explains the error{}; what {} was given and returned is right, and what came back to it, so "
        "that its backward is wrong by itself: as where a gather or a reduction in it is one that autograd does not "
        "see",
        extent, printable(TensorName(finding.id.name.get()).path));
  }
  if (finding.id.kind == Kind::kGradOutput && is_loss_right(finding.id, report) &&
      is_forward_right(finding.id, report)) {
    return fmt::format(
        "nothing known explains the error{}; the loss is right, and all that modules were given and returned in its "
        "micro-batch, so that what computes the loss of it passes back another gradient: as where a gather or a "
        "reduction in it is one that autograd does not see",
        extent);
  }
  if (const Finding* buffer = buffer_in_question(finding, report)) {
    return fmt::format("the module keeps {}, which is in question; nothing else known explains the error",
                       describe_tensor(buffer->id));
  }
  if (finding.id.kind == Kind::kInput || finding.id.kind == Kind::kMainGrad) {
    if (const std::string batch = describe_other_batch(evidence, finding.id.iteration); !batch.empty()) return batch;
  }
  if (finding.id.kind == Kind::kMainGrad) {
    const std::int32_t iteration = finding.id.iteration;
    if (!others.contains(iteration)) others[iteration] = other_samples(evidence, iteration);
    if (const auto& found = others[iteration]) return found->sentence();
  }
  if (finding.id.kind == Kind::kInput && finding.floating) {
    if (const std::string what = describe_models_without_grad(evidence); !what.empty()) {
      return fmt::format("nothing known explains the error{}; it may come from {}", extent, what);
    }
  }
  return "nothing known explains the error" + extent;
}

constexpr std::size_t kMostPatterns = 8;  // of names that stand for several tensors: they read as one line

std::string describe_root(const TensorId& id, const RootCause& root, const std::string& what) {
  std::string text = fmt::format("{}: {}", describe_tensor(id), what);
  if (root.repeated > 0) {
    text += fmt::format("; the same in {} more micro-batch{} or iteration{}", root.repeated,
                        root.repeated == 1 ? "" : "es", root.repeated == 1 ? "" : "s");
  }
  if (!root.alike.empty()) {
    const std::vector<std::string> patterns = patterns_of(root.alike);
    const std::size_t shown = std::min(patterns.size(), kMostPatterns);
    text += fmt::format("; the same in {} more tensor{}{}{}", root.alike.size(), root.alike.size() == 1 ? "" : "s",
                        shown < patterns.size() ? ", such as " : ": ", comma_list(std::span(patterns).first(shown)));
  }
  if (root.explained > 0) {
    text += fmt::format("; {} later difference{} follow{} from it", root.explained, root.explained == 1 ? "" : "s",
                        root.explained == 1 ? "s" : "");
  }
  return text + ".";
}

// Removes the digits from a name, so that layers, experts and members of tuples get one name.
std::string name_without_digits(const std::string& name) {
  std::string text;
  for (const char c : name) {
    if (c < '0' || c > '9') text += c;
  }
  return text;
}

// Returns the indices of the roots. One bug often shows in every layer, so roots that are not alike come first.
std::vector<std::size_t> unlike_first(const Report& report) {
  std::set<std::tuple<Kind, Pass, std::string>> seen;
  std::vector<std::size_t> first, rest;
  for (std::size_t i = 0; i < report.explanation.roots.size(); ++i) {
    const TensorId& id = report.findings[report.explanation.roots[i].finding].id;
    const bool is_new = seen.emplace(id.kind, id.pass, name_without_digits(id.name)).second;
    (is_new ? first : rest).push_back(i);
  }
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

// Marks the roots that text shows.
void choose_examined(Report& report) {
  const std::vector<std::size_t> order = unlike_first(report);
  for (std::size_t i = 0; i < std::min(order.size(), kMostExamined); ++i)
    report.explanation.roots[order[i]].examined = true;
}

// Marks what a rewritten run's module only passes on: it is recorded as it came to it.
void mark_passed_on(std::vector<Observation>& observations, const Evidence& evidence) {
  for (Observation& observation : observations) {
    if (observation.agrees) continue;
    observation.passed_on =
        is_passed_on(evidence.reference, observation.id) && is_passed_on(evidence.candidate, observation.id);
  }
}

bool is_left_out(const Finding& finding, const Evidence& evidence) {
  const bool lacks = finding.reason == Reason::kMissingInCandidate || finding.reason == Reason::kOmission;
  return finding.verdict == Verdict::kMissing && lacks && is_of_other_model(evidence.reference, finding.id);
}

void mark_left_out(Observed& observed, const Report& report, const Evidence& evidence) {
  for (std::size_t i = 0; i < observed.observations.size(); ++i) {
    Observation& observation = observed.observations[i];
    if (observation.agrees) continue;
    const Finding& finding = report.findings[observed.findings[i]];
    observation.left_out = is_left_out(finding, evidence) || finding.reason == Reason::kStepCountDiffers;
  }
}

// A clause about an update that the candidate, or some of its ranks, leave out.
std::string describe_left_out(const Finding& finding) {
  if (finding.reason != Reason::kOmission || finding.ranks.empty()) return without_identity(finding);
  return fmt::format("not updated on {}; the reference updates it", describe_ranks(finding.ranks));
}

// What a module is given: its micro-batch, and the checksums on each rank.
using Given = std::pair<MicrobatchKey, RecordedBits>;

std::optional<Given> given_as(const Alignment& alignment, const TensorId& input) {
  const LogicalTensor* tensor = find_tensor(alignment, input);
  if (tensor == nullptr) return std::nullopt;
  return Given{{input.iteration, input.microbatch}, recorded_bits_of(*tensor)};
}

// Sets `shared` of wrong gradients of inputs: in both runs the modules are given the same bytes.
void mark_shared(std::vector<Observation>& observations, const Evidence& evidence) {
  const auto is_wrong_gradient = [](const Observation& observation) {
    return !observation.agrees && observation.id.kind == Kind::kGradInput;
  };
  if (std::ranges::none_of(observations, is_wrong_gradient)) return;
  std::map<Given, std::vector<TensorId>> given;
  for (const auto& [id, tensor] : evidence.candidate.tensors) {
    if (id.kind != Kind::kInput || id.pass != Pass::kForward) continue;
    given[{{id.iteration, id.microbatch}, recorded_bits_of(tensor)}].push_back(id);
  }
  for (Observation& observation : observations) {
    if (!is_wrong_gradient(observation)) continue;
    const TensorId input = observation.id.with_kind(Kind::kInput);
    const auto what = given_as(evidence.candidate, input);
    const auto in_reference = given_as(evidence.reference, input);
    if (!what || !in_reference) continue;
    for (const TensorId& other : given[*what]) {
      const bool is_same = other != input && given_as(evidence.reference, other) == in_reference;
      if (is_same) observation.shared.push_back(other);
    }
  }
}

// Returns a root of the tensor that the report's finding is about; its sentence is still empty.
RootCause root_at(const Report& report, std::size_t finding) {
  const TensorId& id = report.findings[finding].id;
  RootCause cause;
  cause.finding = finding;
  cause.module = is_parameter_kind(id.kind) ? std::string(owner_of(id.name)) : TensorName(id.name).without_member();
  return cause;
}

// Diagnoses roots, those first that are not alike: five of them, and more while they are small. Whether one is rounded
// to a narrower dtype, as all of a converted checkpoint are, is asked of each.
std::vector<std::optional<Diagnosis>> diagnose_roots(const Report& report, const std::vector<bool>& made_here,
                                                     const Evidence& evidence) {
  std::vector<std::optional<Diagnosis>> diagnoses(report.explanation.roots.size());
  std::int64_t elements = 0;
  std::size_t diagnosed = 0;
  for (const std::size_t i : unlike_first(report)) {
    const Finding& finding = report.findings[report.explanation.roots[i].finding];
    if (is_of_step(finding)) {
      diagnoses[i] = Diagnosis{Cause::kOptimizerStep, 0, without_identity(finding)};
      continue;
    }
    if (is_left_out(finding, evidence)) {
      diagnoses[i] = Diagnosis{Cause::kNeverUpdated, 0, describe_left_out(finding)};
      continue;
    }
    if (is_rounding(finding, evidence)) continue;
    elements += finding.difference ? finding.difference->elements : 0;
    if (diagnosed++ < kMostExamined || elements <= kMostElements) {
      diagnoses[i] = diagnose(finding, made_here[i], evidence);
    } else {
      diagnoses[i] = diagnose_rounding(finding, evidence);
    }
  }
  if (const auto words = describe_other_initialisation(report, evidence.reference)) {
    for (std::size_t i = 0; i < report.explanation.roots.size(); ++i) {
      const TensorId& id = report.findings[report.explanation.roots[i].finding].id;
      const bool is_open = !diagnoses[i] || diagnoses[i]->cause == Cause::kRegion;
      if (id.kind == Kind::kParam && id.iteration == evidence.reference.tensors.begin()->first.iteration && is_open) {
        diagnoses[i] = Diagnosis{Cause::kOtherInitialisation, 0, *words};
      }
    }
  }
  return diagnoses;
}

// Says of roots whose module is configured otherwise how it is. A hypothesis about the error that holds says more, and
// stands first.
void add_configurations(const Report& report, const Evidence& evidence,
                        std::vector<std::optional<Diagnosis>>& diagnoses) {
  if (evidence.configured == nullptr) return;
  for (std::size_t i = 0; i < diagnoses.size(); ++i) {
    const Finding& finding = report.findings[report.explanation.roots[i].finding];
    const std::string others = configured_otherwise(finding.id, *evidence.configured);
    if (others.empty() || finding.verdict == Verdict::kMissing || is_of_step(finding)) continue;
    std::string what = "its module is configured otherwise: " + others;
    const bool is_open = !diagnoses[i] || diagnoses[i]->cause == Cause::kRegion;
    diagnoses[i] = is_open ? Diagnosis{Cause::kConfiguredOtherwise, 0, std::move(what)}
                           : Diagnosis{diagnoses[i]->cause,
                                       diagnoses[i]->residual,
                                       fmt::format("{}; {}", diagnoses[i]->what, what),
                                       {},
                                       diagnoses[i]->placement};
  }
}

// Says of losses that nothing else explains how models are configured otherwise that are called without gradients.
void add_configurations_without_grad(const Report& report, const Evidence& evidence,
                                     std::vector<std::optional<Diagnosis>>& diagnoses) {
  if (evidence.configured == nullptr || evidence.candidate_trace == nullptr) return;
  const std::string others = configured_otherwise_without_grad(*evidence.configured, *evidence.candidate_trace);
  for (std::size_t i = 0; i < diagnoses.size() && !others.empty(); ++i) {
    const Finding& finding = report.findings[report.explanation.roots[i].finding];
    const bool is_open = !diagnoses[i] || diagnoses[i]->cause == Cause::kRegion;
    if (!is_open || !is_loss_of_backward(finding.id)) continue;
    diagnoses[i] = Diagnosis{Cause::kConfiguredOtherwise, 0,
                             "a model that is called without gradients is configured otherwise: " + others};
  }
}

// Says of roots that come after other draws than the reference's how these are others, where no hypothesis about the
// error holds.
void add_draws(const Report& report, const Evidence& evidence, std::vector<std::optional<Diagnosis>>& diagnoses) {
  for (std::size_t i = 0; i < diagnoses.size(); ++i) {
    if (diagnoses[i] && diagnoses[i]->cause != Cause::kRegion) continue;
    const Finding& finding = report.findings[report.explanation.roots[i].finding];
    std::string what = drawn_otherwise(finding, evidence);
    if (!what.empty()) diagnoses[i] = Diagnosis{Cause::kDrawnOtherwise, 0, std::move(what)};
  }
}

// How often the gradients were clipped by a norm, by iteration.
std::map<std::int32_t, std::int64_t> count_clips(const Alignment& alignment) {
  std::map<std::int32_t, std::int64_t> clips;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (is_gradient_norm({id.kind, id.name})) ++clips[id.iteration];
  }
  return clips;
}

// Says of main gradients that nothing else explains that they were clipped more often: what is recorded is what they are
// before the first time, which comes too early where it is between the micro-batches.
void add_clips(const Report& report, const Evidence& evidence, std::vector<std::optional<Diagnosis>>& diagnoses) {
  const auto wanted = count_clips(evidence.reference), counted = count_clips(evidence.candidate);
  for (std::size_t i = 0; i < diagnoses.size(); ++i) {
    const TensorId& id = report.findings[report.explanation.roots[i].finding].id;
    if (diagnoses[i] || id.kind != Kind::kMainGrad) continue;
    const auto right = wanted.find(id.iteration), clips = counted.find(id.iteration);
    if (right == wanted.end() || clips == counted.end() || clips->second <= right->second) continue;
    diagnoses[i] =
        Diagnosis{Cause::kConfiguredOtherwise, 0,
                  fmt::format("gradients are clipped {} times in the iteration, in the reference {}: by each "
                              "micro-batch's, where all of them are not yet added up and reduced?",
                              clips->second, right->second == 1 ? "once" : fmt::format("{} times", right->second))};
  }
}

// Tells what is known of a root beside the others. Initial values are computed from nothing that is recorded.
Apart apart_of(const Finding& finding, bool made_here, const Alignment& candidate) {
  const bool is_initial = (finding.id.kind == Kind::kParam || finding.id.kind == Kind::kBuffer) &&
                          !candidate.tensors.empty() &&
                          finding.id.iteration == candidate.tensors.begin()->first.iteration;
  if (is_of_step(finding) || is_initial) return Apart::kByItself;
  return made_here ? Apart::kSourcesAgree : Apart::kUnknown;
}

// Joins roots of one kind and pass that have the same diagnosis to the first of them.
void join_alike(Report& report, std::vector<std::optional<Diagnosis>>& diagnoses) {
  std::map<std::tuple<Kind, Pass, Cause, std::string>, std::size_t> first;
  std::vector<RootCause> roots;
  std::vector<std::optional<Diagnosis>> kept;
  for (std::size_t i = 0; i < report.explanation.roots.size(); ++i) {
    const TensorId& id = report.findings[report.explanation.roots[i].finding].id;
    if (diagnoses[i] && diagnoses[i]->cause != Cause::kMissing) {
      const std::string& group = diagnoses[i]->group.empty() ? diagnoses[i]->what : diagnoses[i]->group;
      const auto [at, is_new] = first.emplace(std::tuple(id.kind, id.pass, diagnoses[i]->cause, group), roots.size());
      if (!is_new) {
        RootCause& one = roots[at->second];
        one.alike.push_back(id.name);
        one.explained += report.explanation.roots[i].explained;
        continue;
      }
    }
    roots.push_back(std::move(report.explanation.roots[i]));
    kept.push_back(std::move(diagnoses[i]));
  }
  report.explanation.roots = std::move(roots);
  diagnoses = std::move(kept);
}

}  // namespace

void add_root_of_each_module(Report& report) {
  std::map<std::string, std::size_t> of_module;                        // index into `report.explanation.roots`
  std::map<std::tuple<Kind, Reason, std::string>, std::size_t> alike;  // by the name without its numbers
  for (std::size_t i = 0; i < report.findings.size(); ++i) {
    const Finding& finding = report.findings[i];
    if (!is_wrong(finding) || finding.id.name.empty()) continue;
    if (finding.reason == Reason::kReplicasDisagree && !report.explanation.roots.empty()) continue;
    RootCause root = root_at(report, i);
    if (const auto known = of_module.find(root.module); known != of_module.end()) {
      RootCause& cause = report.explanation.roots[known->second];
      const TensorId& id = report.findings[cause.finding].id;
      cause.repeated +=
          std::tie(finding.id.name, finding.id.kind, finding.id.pass) == std::tie(id.name, id.kind, id.pass);
      continue;
    }
    const auto [at, is_new] =
        alike.emplace(std::tuple(finding.id.kind, finding.reason, name_without_digits(finding.id.name)),
                      report.explanation.roots.size());
    of_module.emplace(root.module, at->second);
    if (is_new) {
      report.explanation.roots.push_back(std::move(root));
    } else {
      report.explanation.roots[at->second].alike.push_back(finding.id.name);
    }
  }
  choose_examined(report);
  for (RootCause& root : report.explanation.roots) {
    const Finding& finding = report.findings[root.finding];
    root.sentence = describe_root(finding.id, root, without_identity(finding));
  }
}

namespace {

// As `add_root_causes`, of all that is wrong.
std::vector<std::optional<std::size_t>> add_all_roots(Report& report, const Evidence& evidence) {
  std::vector<std::optional<std::size_t>> follows_from(report.findings.size());
  Observed observed = collect_observations(report);
  if (evidence.rewritten) mark_passed_on(observed.observations, evidence);
  if (!evidence.rewritten) mark_shared(observed.observations, evidence);
  mark_left_out(observed, report, evidence);
  std::map<std::tuple<Kind, Pass, std::string>, std::size_t>
      first;  // kind, pass and name -> index in `report.explanation.roots`
  std::vector<bool> made_here;
  for (const Root& root : find_roots(observed.observations, evidence.tied, evidence.rewritten)) {
    const TensorId& id = observed.observations[root.observation].id;
    const std::size_t origin = observed.findings[root.observation];
    follows_from[origin] = origin;
    for (const std::size_t explained : root.explained) follows_from[observed.findings[explained]] = origin;
    const auto [at, is_new] = first.emplace(std::tuple(id.kind, id.pass, id.name), report.explanation.roots.size());
    if (is_new) {
      report.explanation.roots.push_back(root_at(report, origin));
      made_here.push_back(root.made_here);
    }
    RootCause& cause = report.explanation.roots[at->second];
    cause.repeated += !is_new;
    cause.explained += static_cast<std::int64_t>(root.explained.size());
  }
  std::vector<std::optional<Diagnosis>> diagnoses = diagnose_roots(report, made_here, evidence);
  add_configurations(report, evidence, diagnoses);
  add_draws(report, evidence, diagnoses);
  add_left_overs(report, evidence, diagnoses);
  add_rank_scales(report, evidence, diagnoses);
  add_gradients_of_losses(report, evidence, diagnoses);
  add_configurations_without_grad(report, evidence, diagnoses);
  add_clips(report, evidence, diagnoses);
  std::set<std::size_t> all_made_here;  // indices into the report's findings
  for (std::size_t i = 0; i < made_here.size(); ++i) {
    if (made_here[i]) all_made_here.insert(report.explanation.roots[i].finding);
  }
  join_alike(report, diagnoses);
  choose_examined(report);
  KnownOtherSamples others;
  for (std::size_t i = 0; i < report.explanation.roots.size(); ++i) {
    RootCause& cause = report.explanation.roots[i];
    const Finding& finding = report.findings[cause.finding];
    std::string what;
    if (diagnoses[i]) {
      cause.diagnosis = diagnoses[i]->cause;
      cause.residual = diagnoses[i]->residual;
      cause.placement = diagnoses[i]->placement;
      what = cause.diagnosis == Cause::kMissing ? describe_missing(report, finding, evidence.candidate)
                                                : diagnoses[i]->what;
      if (is_dealt_along_tensor_axis(finding.id, evidence)) {
        what += "; " + describe_samples_along_tensor_axis(evidence, finding.id.iteration);
      }
    } else if (is_rounding(finding, evidence)) {
      what = describe_other_order(finding, all_made_here.contains(cause.finding), i == 0);
    } else {
      what = describe_unexplained(finding, cause, report, evidence, others);
    }
    cause.apart = apart_of(finding, all_made_here.contains(cause.finding), evidence.candidate);
    cause.sentence = describe_root(finding.id, cause, what);
  }
  return follows_from;
}

}  // namespace

std::vector<std::optional<std::size_t>> add_root_causes(Report& report, const Evidence& evidence) {
  auto follows_from = add_all_roots(report, evidence);
  while (set_questions_aside(report, follows_from, evidence)) {
    report.explanation.roots.clear();
    follows_from = add_all_roots(report, evidence);
  }
  if (auto note = describe_possible_scale(report, evidence)) report.notes.push_back(*std::move(note));
  return follows_from;
}

}  // namespace ttrace
