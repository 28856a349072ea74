// Parses the JSON text that a rank file holds as `provenance`.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/provenance.h"
#include "base/random_draws.h"
#include "base/trace.h"

namespace ttrace {

// A field of another type than `ttrace collect` writes counts as unknown. Three fields decide which runs may be
// compared, and must be as it writes them: `perturb_seed`, `perturb_at` (of a perturbed run; "input" where it is
// absent) and `rewritten`. Throws InputError for these, and where the text is no JSON object; `where` says what held
// the text.
Provenance parse_provenance(std::string text, std::string_view where);

// Returns what `torch.get_float32_matmul_precision()` was in the run, at its coarsest; empty where it is not known.
std::string matmul_precision_of(const std::string& provenance);

// Returns what the rank says that it could not record: the list `not_seen`, whose grammar is in base/trace.h. Throws
// InputError where it is malformed, holds what can't be a tensor's name, or is too long.
std::vector<NotSeen> parse_not_seen(const std::string& provenance, std::string_view where);

// The names of all steps of a rank, counted for each step, may be no more: a step's are written as one number.
inline constexpr std::size_t kMaxNamesInSteps = 1'000'000;

// Returns what the rank says of its optimizers' steps: `optimizer_steps`, whose grammar is in base/trace.h. Throws
// InputError where it is malformed, holds what can't be a tensor's name, or names too many.
std::vector<OptimizerStep> parse_optimizer_steps(const std::string& provenance, std::string_view where);

// The same of its optimizers that took none.
std::vector<UnsteppedOptimizer> parse_unstepped(const std::string& provenance, std::string_view where);

// The same of the parameters that want gradients.
std::vector<TrainedGroup> parse_trained(const std::string& provenance, std::string_view where);

// Returns what the rank says that it keeps beside its models: `kept`, whose grammar is in base/trace.h; none where it says
// nothing. Throws InputError where it is malformed.
std::optional<KeptModels> parse_kept(const std::string& provenance, std::string_view where);

// Returns what the rank says of calls that trained nothing: `rehearsals`, whose grammar is in base/trace.h. Throws
// InputError where it is malformed, or a number in it is negative.
Rehearsals parse_rehearsals(const std::string& provenance, std::string_view where);

// Returns what the rank says of iterations beyond those that it was asked for: `further`, whose grammar is in
// base/trace.h; none where it says nothing. Throws InputError where it is malformed.
std::optional<FurtherIterations> parse_further(const std::string& provenance, std::string_view where);

// Returns what the rank says of where its modules are: `sources`, whose grammar is in base/module_source.h; null
// where it says nothing. Throws InputError where it is malformed.
std::shared_ptr<const ModuleSources> parse_sources(const std::string& provenance, std::string_view where);

// Returns what the rank says of how its modules are configured: `configurations`, whose grammar is in
// base/configuration.h; null where it says nothing, or too much. Throws InputError where it is something else.
std::shared_ptr<const ModuleConfigurations> parse_configurations(const std::string& provenance, std::string_view where);

// Returns what the rank says of the random numbers that it drew: `draws`, whose grammar is in base/random_draws.h; null
// where it says nothing. Throws InputError where it is malformed.
std::shared_ptr<const RandomDraws> parse_draws(const std::string& provenance, std::string_view where);

// Returns what the rank says of the surroundings of its computation: `surroundings`, an object of texts; empty where it
// says nothing. What is no text is left out.
std::map<std::string, std::string> parse_surroundings(const std::string& provenance);

// Says of what another program had saved a trace was made: `imported`, an object of `ttrace import`.
struct Imported {
  std::string format;
  std::vector<std::string> left_out;  // "3 tensors of other parts, such as optimizer.m"
};

// Returns nothing where the trace was recorded.
std::optional<Imported> parse_imported(const std::string& provenance);

// Returns a provenance that says so.
std::string describe_imported(const std::string& format, const std::vector<std::string>& sources);

}  // namespace ttrace
