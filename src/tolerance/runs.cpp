#include <fmt/format.h>

#include <map>

#include "base/error.h"
#include "merge/rewritten.h"
#include "tolerance/estimate.h"

namespace ttrace {
namespace {

void require_unperturbed(const Trace& trace, std::string_view role) {
  if (!trace.provenance.perturb_seed) return;
  throw InputError(fmt::format("{}: perturbed with seed {}; expected an unperturbed run as the {}",
                               trace.directory.string(), *trace.provenance.perturb_seed, role));
}

void require_perturbed(const Trace& trace) {
  if (trace.provenance.perturb_seed) return;
  throw InputError(
      fmt::format("{}: not perturbed; expected a run collected with --perturb SEED", trace.directory.string()));
}

// Refuses a run that is given twice: its difference from itself is 0, and that would look measured.
class DistinctRuns {
 public:
  void add(const Trace& trace) {
    const auto [found, is_new] = seen_.emplace(trace.run_id, trace.directory.string());
    if (is_new) return;
    throw InputError(fmt::format("{}: holds the same run as {} ({}); expected each run once", trace.directory.string(),
                                 found->second, trace.run_id));
  }

 private:
  std::map<std::string, std::string> seen_;
};

void require_same_dtype(const Trace& reference, const Trace& trace) {
  if (trace.compute_dtype == reference.compute_dtype) return;
  throw InputError(fmt::format("{}: computes in '{}'; expected '{}', as the reference {}", trace.directory.string(),
                               trace.compute_dtype, reference.compute_dtype, reference.directory.string()));
}

void identify_rerun(const Trace& reference, const Trace& rerun, DistinctRuns& runs, ToleranceFile& file) {
  runs.add(rerun);
  require_unperturbed(rerun, "rerun");
  require_same_dtype(reference, rerun);
  require_same_values(reference, rerun);
  file.rerun = rerun.run_id;
}

}  // namespace

void identify_runs(const Trace& reference, std::span<const Trace> perturbed, const Trace* rerun, ToleranceFile& file) {
  DistinctRuns runs;
  runs.add(reference);
  require_unperturbed(reference, "reference");
  file.reference_run = reference.run_id;
  std::map<std::uint64_t, std::string> seeds;
  for (const Trace& trace : perturbed) {
    runs.add(trace);
    require_same_dtype(reference, trace);
    require_perturbed(trace);
    const std::uint64_t seed = *trace.provenance.perturb_seed;
    const Estimator estimator = trace.provenance.perturb_at;
    const auto [found, is_new] = seeds.emplace(seed, trace.directory.string());
    if (!is_new) {
      throw InputError(fmt::format("{}: perturbed with seed {}, as {} was; expected another seed for each run",
                                   trace.directory.string(), seed, found->second));
    }
    if (file.seeds.empty()) file.estimator = estimator;
    if (file.estimator != estimator) {
      throw InputError(fmt::format("{}: perturbed at the {}, and {} at the {}; expected runs perturbed alike",
                                   trace.directory.string(), name_of(estimator), perturbed[0].directory.string(),
                                   name_of(file.estimator)));
    }
    require_same_values(reference, trace);
    file.perturbed_runs.push_back(trace.run_id);
    file.seeds.push_back(seed);
  }
  if (rerun != nullptr) identify_rerun(reference, *rerun, runs, file);
}

void identify_anchor(const Trace& reference, const Trace& anchor, const Trace* rerun, ToleranceFile& file) {
  DistinctRuns runs;
  runs.add(reference);
  require_unperturbed(reference, "reference");
  runs.add(anchor);
  require_unperturbed(anchor, "anchor");
  const auto dtype = dtype_from_name(reference.compute_dtype), of_anchor = dtype_from_name(anchor.compute_dtype);
  if (!dtype || !of_anchor || !is_floating(*of_anchor) || epsilon_of(*of_anchor) >= epsilon_of(*dtype)) {
    throw InputError(fmt::format("{}: computes in '{}'; expected a wider dtype than '{}', that of the reference {}",
                                 anchor.directory.string(), anchor.compute_dtype, reference.compute_dtype,
                                 reference.directory.string()));
  }
  require_same_values(reference, anchor);
  file.reference_run = reference.run_id;
  file.perturbed_runs = {anchor.run_id};
  if (rerun != nullptr) identify_rerun(reference, *rerun, runs, file);
}

}  // namespace ttrace
