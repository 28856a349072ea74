#include "workflow/page_facts.h"

#include <algorithm>

#include "host/shell_words.h"

namespace ttrace {

RunFacts facts_of(const Trace& trace, const std::string& directory) {
  const Provenance& provenance = trace.provenance;
  RunFacts facts;
  facts.directory = directory;
  facts.run_id = trace.run_id;
  facts.command = shell_line(provenance.command);
  facts.started = provenance.started;
  facts.git_commit = provenance.git_commit;
  facts.python = provenance.python;
  facts.torch = provenance.torch;
  facts.device = provenance.device;
  facts.compute_dtype = trace.compute_dtype;
  facts.world_size = trace.world_size;
  facts.mesh = trace.mesh;
  return facts;
}

ToleranceFacts facts_of(const ToleranceFile& tolerance) {
  ToleranceFacts facts;
  facts.file = tolerance.path;
  facts.estimator = name_of(tolerance.estimator);
  facts.compute_dtype = tolerance.compute_dtype;
  facts.margin = tolerance.margin;
  facts.epsilon = tolerance.epsilon;
  facts.perturbed_runs = tolerance.perturbed_runs.size();
  facts.notes = tolerance.notes;
  for (const auto& [key, one] : tolerance.tensors) facts.estimates[key] = std::max(one.estimate, one.floor);
  return facts;
}

}  // namespace ttrace
