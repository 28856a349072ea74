// The cases of advice. Each says what to do in one situation, or nothing where it does not apply.
#pragma once

#include <optional>
#include <string>

#include "advice/advice.h"

namespace ttrace {

struct Step {
  std::optional<std::string> instead;              // why the findings are not worth reading before it is done
  std::optional<std::string> next;                 // the command that does it
  std::optional<std::string> note = std::nullopt;  // what is lacking, where the findings are worth reading all the same
  std::optional<std::size_t> lacks_activations = std::nullopt;  // as that of `Advice`
};

// Says what a check lacks whose candidate differs, where its findings would be about that alone: lacks.cpp.
// The first also says it of one that may be right: what differs by names alone is in question.
std::optional<Step> lacks_correspondence(const Report& report, const Situation& situation);
// Records whole what was recorded lightly, where the first wrong tensor is one of that and has no cause.
std::optional<Step> lacks_activations(const Report& report, const Situation& situation);
std::optional<Step> lacks_annotations(const Report& report, const Situation& situation);
std::optional<Step> lacks_order_of_microbatches(const Report& report, const Situation& situation);
std::optional<Step> lacks_tolerances(const Report& report, const Situation& situation);
// Says where to get the lines that a guessed placement lacks, of a candidate that may be right.
std::optional<Step> lacks_placement(const Report& report, const Situation& situation);
// Records the iterations in which a family of parameters has other gradients than zeros, of both runs.
std::optional<Step> lacks_iterations(const Report& report, const Situation& situation);
// Measures what the default tolerances leave open, such as steps of an optimizer whose rule is not known.
std::optional<Step> lacks_measurement(const Report& report, const Situation& situation);
// Looks closer at what differs: closer_looks.cpp.
std::optional<Step> second_run(const Report& report, const Situation& situation);
std::optional<Step> without_rounding(const Report& report, const Situation& situation);
std::optional<Step> report_page(const Report& report, const Situation& situation);

}  // namespace ttrace
