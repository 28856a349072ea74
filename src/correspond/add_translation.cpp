#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/describe.h"
#include "base/tensor_name.h"
#include "correspond/translate.h"

namespace ttrace {
namespace {

constexpr const char* kNoCounterpart = "no counterpart";

// Each tensor once, whatever its layer and micro-batch.
std::vector<std::string> names_of(const std::vector<LoneTensor>& tensors) {
  std::set<std::string> names;
  for (const LoneTensor& tensor : tensors) names.insert(printable(without_numbers(tensor.id.name)));
  return {names.begin(), names.end()};
}

void note_alone(const std::string& side, std::int64_t tensors, const std::vector<std::string>& names, Report& report) {
  if (tensors == 0) return;
  report.notes.push_back(fmt::format("{} tensors of the {} have no counterpart, and were not compared: {}", tensors,
                                     side, comma_list(names)));
}

std::string recorded_names(const std::vector<TensorId>& sources) {
  std::vector<std::string> names;
  for (const TensorId& source : sources) {
    if (std::string name(printable(source.name)); std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(std::move(name));
    }
  }
  return comma_list(names);
}

}  // namespace

void add_translation(const Translation& translation, Report& report) {
  WithoutCounterpart without;
  without.reference = static_cast<std::int64_t>(translation.only_reference.size());
  without.candidate = static_cast<std::int64_t>(translation.only_candidate.size());
  without.names_of_reference = names_of(translation.only_reference);
  without.names_of_candidate = names_of(translation.only_candidate);
  note_alone("reference", without.reference, without.names_of_reference, report);
  note_alone("candidate", without.candidate, without.names_of_candidate, report);
  report.runs.without_counterpart = std::move(without);
  report.notes.insert(report.notes.end(), translation.notes.begin(), translation.notes.end());

  if (report.proof.by_kind) {
    Proofs unproved;
    for (const auto* tensors : {&translation.only_reference, &translation.only_candidate}) {
      for (const auto& [id, floating] : *tensors) {
        if (!floating) continue;
        const bool compared = report.proof.by_kind->contains(id.kind) && report.proof.by_kind->at(id.kind).compared > 0;
        const bool counts = is_parameter_kind(id.kind) ? tensors == &translation.only_reference &&
                                                             !is_optimizer_state(id.kind) && !is_buffer_kind(id.kind)
                                                       : !compared;
        if (!counts) continue;
        KindProof& proof = unproved[id.kind];
        ++proof.compared;
        ++proof.others[kNoCounterpart];
      }
    }
    for (const auto& [kind, proof] : unproved) {
      KindProof& of_report = (*report.proof.by_kind)[kind];
      of_report.compared += proof.compared;
      of_report.others[kNoCounterpart] += proof.others.at(kNoCounterpart);
    }
  }
  for (Finding& finding : report.findings) {
    const auto recorded = translation.recorded_as.find(finding.id);
    // Reports leave out the tensor's name where the message begins with it.
    const std::string id = to_string(finding.id) + ": ";
    if (recorded == translation.recorded_as.end() || !finding.message.starts_with(id)) continue;
    finding.message = fmt::format("{}the candidate's {}: {}", id, recorded_names(recorded->second),
                                  finding.message.substr(id.size()));
  }
}

}  // namespace ttrace
