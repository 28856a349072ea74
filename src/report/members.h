// The one description of the report: the members of each of its objects, what each means, and where its value comes
// from. The JSON is written by it (json.cpp). Its schema is made from it, and from the schema the types of the page and
// of the Python package, and the manual's tables (tools/report_types).
//
// `describe(object, value)` calls `object.is` with the name of the object's type and what it is, and then `object.has`
// for each member in order. A member is a bool, an integer, a double (null where it is not finite), a text, an
// enumerator with a vocabulary, an optional (null where there is none), a vector, set or map, `Keyed`, `IfAny`, or
// another object that is described here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/outcome.h"

namespace ttrace::report {

// A member that is absent where there is no value.
template <typename T>
struct IfAny {
  std::optional<T> value;
};
template <typename T>
IfAny(std::optional<T>) -> IfAny<T>;

// A list that is absent where it is empty.
template <typename T>
IfAny<std::vector<T>> if_some(const std::vector<T>& items) {
  return {items.empty() ? std::nullopt : std::optional(items)};
}

// The name of the schema, with its version.
struct Version {
  std::string text;
};

// A JSON object with a value for each word of an enumeration that it has, in this order.
template <typename Enum, typename T>
using Keyed = std::vector<std::pair<Enum, T>>;

// Parts of the report as its JSON has them.
struct Worst {
  std::vector<std::int64_t> index, local_index;
  std::int32_t rank = 0;
  double reference = 0, candidate = 0, abs = 0;
};
struct Statistic {
  double measured = 0, allowed = 0;
};
struct JudgedProof {
  KindProof proof;
  bool is_enough = false;
};
struct Lone {
  std::int64_t tensors = 0;
  std::vector<std::string> names;
};
struct Root {
  TensorId id;
  RootCause cause;
};
struct OpenQuestion {
  TensorId id;
  Question question;
};
struct FirstWrong {
  Finding finding;
  std::optional<RootCause> cause;  // none: it is about ranks, which are not diagnosed
};

std::optional<Worst> worst_of(const Finding& finding);
std::optional<double> rel_err_of(const Finding& finding);
Keyed<ttrace::Statistic, Statistic> statistics_of(const Finding& finding);
std::optional<Keyed<Kind, JudgedProof>> proof_of(const Report& report);
std::vector<Root> roots_of(const Report& report);
std::vector<OpenQuestion> questions_of(const Report& report);
std::optional<FirstWrong> first_wrong_of(const Report& report);
std::int64_t count_tests(const Report& report);

void describe(auto& object, const Counts& counts) {
  object.is("Counts", "Tensors by verdict; each counts once, by the worst of its findings.");
  object.has("compared", counts.compared, "pass + fail + untrusted");
  object.has("pass", counts.pass, "");
  object.has("fail", counts.fail, "");
  object.has("untrusted", counts.untrusted, "");
  object.has("missing", counts.missing, "");
  object.has("not_seen", counts.not_seen, "");
}

void describe(auto& object, const JudgedProof& judged) {
  object.is("Proof", "How many floating-point tensors of a kind prove something.");
  object.has("compared", judged.proof.compared, "floating-point tensors");
  object.has("proved", judged.proof.proved, "of these");
  object.has("others", judged.proof.others, "those that prove nothing, by reason, `override` or `waiver`");
  object.has("enough", judged.is_enough, "");
}

void describe(auto& object, const ZeroGradients& zero) {
  object.is("ZeroGradients", "Families of parameters of whose gradients nothing but zeros was compared.");
  object.has("families", zero.families, "with `#` for numbers: each once for all layers");
  object.has("first", zero.first, "iteration that was compared");
  object.has("last", zero.last, "iteration that was compared");
}

void describe(auto& object, const OverrideUse& use) {
  object.is("Override", "An override of the tolerance file, and what it did.");
  object.has("where", use.where, "file and line");
  object.has("pattern", use.pattern, "of the tensors' names");
  object.has("kind", use.kind, "null: all");
  object.has("allowed", use.allowed, "");
  object.has("reason", use.reason, "");
  object.has("covered", use.covered, "tensors that it gave their tolerance");
  object.has("excused", use.excused, "of these, those that are not wrong by it alone");
}

void describe(auto& object, const Lone& lone) {
  object.is("LoneTensors", "Tensors of one implementation that the other has no counterpart of.");
  object.has("tensors", lone.tensors, "how many");
  object.has("names", lone.names, "with `#` for numbers: each once for all layers");
}

void describe(auto& object, const WithoutCounterpart& without) {
  object.is("WithoutCounterpart", "Tensors of two programs that correspond to nothing in the other.");
  object.has("reference", Lone{without.reference, without.names_of_reference}, "");
  object.has("candidate", Lone{without.candidate, without.names_of_candidate}, "");
}

void describe(auto& object, const Worst& worst) {
  object.is("Worst", "The element of a tensor that differs most.");
  object.has("index", worst.index, "in the logical tensor");
  object.has("rank", worst.rank, "of the candidate, which holds it");
  object.has("local_index", worst.local_index, "there");
  object.has("reference", worst.reference, "");
  object.has("candidate", worst.candidate, "");
  object.has("abs", worst.abs, "");
}

void describe(auto& object, const Statistic& statistic) {
  object.is("Statistic", "A statistic beside rel_err, and what it may be.");
  object.has("measured", statistic.measured, "");
  object.has("allowed", statistic.allowed, "");
}

// The identity of a tensor, or of none: a finding about ranks.
void add_identity(auto& object, const TensorId& id) {
  const bool is_tensor = !id.name.empty();
  const auto if_tensor = [&](auto value) { return is_tensor ? std::optional(value) : std::nullopt; };
  object.has("name", static_cast<const std::string&>(id.name), "empty: about ranks");
  object.has("kind", if_tensor(id.kind), "");
  object.has("iteration", if_tensor(id.iteration), "");
  object.has("microbatch", id.microbatch == kNoMicrobatch ? std::nullopt : if_tensor(id.microbatch), "");
  object.has("pass", if_tensor(id.pass), "");
}

void add_finding(auto& object, const Finding& finding) {
  add_identity(object, finding.id);
  object.has("verdict", finding.verdict, "");
  object.has("reason", finding.reason, "");
  object.has("rel_err", rel_err_of(finding), "null: not compared, or not finite");
  object.has("allowed", finding.allowed, "of rel_err");
  object.has("ratio", ratio_of(finding),
             "measured over allowed, of the statistic that exceeds its tolerance or else of rel_err");
  object.has("exceeded", finding.reason == Reason::kExceedsTolerance ? std::optional(finding.exceeded) : std::nullopt,
             "that statistic; null: the reason is another");
  object.has("statistics", statistics_of(finding), "those beside rel_err that were judged");
  object.has("worst", worst_of(finding), "");
  object.has("ranks", finding.ranks, "of the candidate, that hold the error");
  object.has("message", finding.message,
             "complete in itself: what, where, exact ranges and ranks, numbers that are not finite");
}

void describe(auto& object, const Finding& finding) {
  object.is("Finding", "A tensor, its verdict and its reason; or, without a name, a finding about ranks.");
  add_finding(object, finding);
}

void describe(auto& object, const CodeLine& line) {
  object.is("SourceLine", "A line of the program.");
  object.has("file", line.file, "relative to the top of the program's repository, where it lies in one");
  object.has("line", line.line, "");
}

void describe(auto& object, const ModuleSource& source) {
  object.is("Source", "Where a module is in the program's source, as far as the trace says it.");
  object.has("forward", source.forward, "of the module's class");
  object.has("call", source.call, "of the module");
  object.has("variable", source.variable, "by which the program holds the model, where it has several");
}

void add_diagnosis(auto& object, const RootCause& cause) {
  object.has("module", cause.module, "at which it was seen");
  object.has("repeated", cause.repeated, "in how many further micro-batches and iterations it is a root as well");
  object.has("alike", cause.alike,
             "names of further roots with the same diagnosis, which are not listed by themselves");
  object.has("explained", cause.explained,
             "wrong tensors that follow from it, as far as names and order of execution tell");
  object.has("diagnosis", cause.diagnosis, "null: nothing known explains the error, or it was not looked into");
  object.has("diagnosis_residual", cause.diagnosis ? std::optional(cause.residual) : std::nullopt,
             "‖candidate - expected‖ / ‖expected‖ of the diagnosis");
  object.has("sentence", cause.sentence, "");
  object.has("standing", cause.standing, "null: there was no second run");
  object.has("source", cause.source, "of the module");
}

void describe(auto& object, const Root& root) {
  object.is("Root", "A wrong tensor that nothing wrong explains, and what its error looks like.");
  add_identity(object, root.id);
  add_diagnosis(object, root.cause);
}

void describe(auto& object, const OtherAttribute& other) {
  object.is("OtherAttribute",
            "An attribute of modules that the candidate has configured otherwise than the reference.");
  object.has("module", other.module, "the first of them");
  object.has("modules", other.modules, "how many");
  object.has("attribute", other.attribute, "behind a dot, that of an object which the module has");
  object.has("reference", other.reference, "as Python writes it");
  object.has("candidate", other.candidate, "as Python writes it");
  object.has("ranks", other.ranks, "of the candidate that have it so; empty: all that have the module");
}

void describe(auto& object, const OtherSurrounding& other) {
  object.is("OtherSurrounding",
            "What surrounds the runs otherwise: a version, a setting, the environment, the command.");
  object.has("what", other.what, "");
  object.has("reference", other.reference, "empty: not there");
  object.has("candidate", other.candidate, "empty: not there");
}

void describe(auto& object, const OpenQuestion& open) {
  object.is("Question", "What would have to be said before tensors that differ can be called wrong.");
  add_identity(object, open.id);
  object.has("tensors", open.question.tensors, "that it is about; this is the first of them");
  object.has("sentence", open.question.sentence, "what differs, what is not known, and what to write or to do");
}

// Passes the members of a root on, as absent ones where there is none.
template <typename Object>
struct IfRoot {
  Object& object;
  bool is_root;

  template <typename T>
  void has(const char* name, const T& value, const char* meaning) {
    object.has(name, IfAny<T>{is_root ? std::optional<T>(std::in_place, value) : std::nullopt}, meaning);
  }
};

void describe(auto& object, const FirstWrong& first) {
  object.is("FirstWrong", "The first wrong finding, with what is known of it as a root.");
  add_finding(object, first.finding);
  IfRoot<std::remove_reference_t<decltype(object)>> if_root{object, first.cause.has_value()};
  add_diagnosis(if_root, first.cause.value_or(RootCause()));
}

void describe(auto& object, const StepCoverage& steps) {
  object.is("OptimizerSteps", "What was checked of the optimizer's steps.");
  object.has("trained", steps.trained, "parameters that want gradients, used or not; 0: the trace does not say");
  object.has("parameters", steps.parameters, "that have updates");
  object.has("parameters_checked", steps.parameters_checked, "all of whose updates were checked");
  object.has("updates", steps.updates, "");
  object.has("updates_checked", steps.updates_checked, "");
  object.has("copies_checked", steps.copies_checked, "of what the optimizer made, to the parameter");
  object.has("iterations", steps.iterations, "with a checked update");
  object.has("optimizers", steps.optimizers, "the classes that made those");
  object.has("worst", steps.worst, "the largest error of a right update, in units of what rounding explains");
  object.has("updates_regressed", steps.updates_regressed, "checked by regression on the reference's");
  object.has("regressed_optimizers", steps.regressed_optimizers, "the classes that made those");
  object.has("worst_regressed", steps.worst_regressed,
             "the largest error of a right one, in units of what correct runs explain");
  object.has("not_checkable", steps.not_checkable, "why updates were not checked, and how many");
  object.has("untrained", steps.untrained, "those of the parameters that want gradients, and why");
}

void describe(auto& object, const Report& report) {
  object.is("Report", "The report of ttrace check, localize and abft.");
  object.has("schema", Version{"ttrace-report/5"}, "");
  object.has("verdict", report.verdict(), "");
  object.has("strict", report.strict, "untrusted counts as failed, and not-seen as could-not-look");
  object.has("reference", report.runs.reference, "its directory");
  object.has("candidate", report.runs.candidate, "its directory");
  object.has("counts", report.totals.counts, "");
  object.has("tests", count_tests(report), "statistics that were held against a tolerance");
  object.has("waived", report.totals.waived,
             "not compared: recomputed in the reference only, declared local, or accepted by a waiver of `ttrace run`");
  object.has("placed_by_shape", report.totals.placed_by_shape,
             "of those compared: no rule placed them, their shapes did");
  object.has("coverage", report.totals.coverage,
             "share of the reference's tensors that were compared; of `abft`: of the trace's that were checked");
  object.has("without_counterpart", IfAny{report.runs.without_counterpart}, "absent: no correspondence file");
  object.has("proof", proof_of(report), "by kind; null: `abft`");
  object.has("zero_gradients", IfAny{report.proof.zero_gradients},
             "parameters of which nothing but gradients of zero was compared, which proves nothing; absent: none");
  object.has(
      "unproved_steps", if_some(report.proof.unproved_steps),
      "parameters of whose steps nothing is proved: by `-t default`, as no rule is known for them, or as no optimizer "
      "of the program has them, and the parameters after it may differ by as much as they changed; absent: none");
  object.has("unstepped", IfAny{report.proof.unstepped},
             "optimizers that took no step in what was recorded, though others did; absent: none");
  object.has("overrides", report.proof.overrides, "of the tolerance file");
  object.has(
      "partial", IfAny{report.runs.partial},
      "of a trace that holds less by design (`import --partial`): which, and what is not in it; absent: neither does");
  object.has("sketched", IfAny{report.runs.sketched},
             "of tensors that were judged by their sketches: how many, and what these cannot show");
  object.has("failed", IfAny{report.runs.failed},
             "how the candidate's job failed, after it had recorded all; absent: it did not");
  object.has("unmeasured", IfAny{report.proof.unmeasured},
             "of `-t default`: what the tolerances are; absent: measured, or none");
  object.has("margin", IfAny{report.proof.margin},
             "of the tolerances, where it is another than that of `estimate-tolerance` by default; absent: it is not");
  object.has("instead", report.advice.instead, "what the check lacks (-t, -a)");
  object.has("next", report.advice.next, "the command that makes what it lacks, or looks closer at what differs");
  object.has("first_wrong", first_wrong_of(report), "the first in order of execution that is fail or missing");
  object.has("root_cause", first_wrong_of(report), "deprecated: the same as `first_wrong`, which is no root cause");
  object.has("roots", roots_of(report), "wrong tensors that nothing wrong explains");
  object.has("questions", questions_of(report),
             "about tensors that differ where a placement was guessed, or by numbers of each rank's own");
  object.has("configured_otherwise", if_some(report.explanation.configured),
             "attributes of modules, where they may not differ as they do; absent: none");
  object.has("surroundings", if_some(report.runs.surroundings),
             "of the runs, as far as both traces say them, where they differ; absent: nowhere");
  object.has("wrong_in_second_run", report.explanation.wrong_in_second_run,
             "wrong tensors of a second run; null: there was none");
  object.has("optimizer_steps", IfAny{report.totals.steps}, "what was checked of them; absent: none recorded");
  object.has("findings", report.findings, "all but pass, in order of execution");
  object.has("notes", report.notes, "");
}

}  // namespace ttrace::report
