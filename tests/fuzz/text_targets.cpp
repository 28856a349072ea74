// Targets whose input is a text that the program reads as it is.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "align/shard_mapping.h"
#include "base/annotation.h"
#include "base/error.h"
#include "files/annotation_file.h"
#include "files/calibration_file.h"
#include "files/read_run_file.h"
#include "files/tolerance_file.h"
#include "format/journal.h"
#include "format/mapping_text.h"
#include "format/provenance.h"
#include "format/run_attributes.h"
#include "load/program_words.h"
#include "support/mesh_trace.h"
#include "target.h"

namespace ttrace::fuzz {
namespace {

// Takes the first byte, which says what is done with the rest.
std::uint8_t take_choice(std::string_view& input) {
  if (input.empty()) return 0;
  const auto choice = static_cast<std::uint8_t>(input[0]);
  input.remove_prefix(1);
  return choice;
}

// Four ranks with what annotations speak of: layers, weights, tuples, calls, two micro-batches.
Trace trace_of_four() {
  Trace trace = test::mesh_trace("tp=2,pp=2", 4);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    for (std::int32_t microbatch = 0; microbatch < 2; ++microbatch) {
      test::add_tensor(trace, rank, test::tensor_id(Kind::kInput, "embedding", microbatch), {4, 2}, {1, 2, 3, 4});
      test::add_tensor(trace, rank, test::tensor_id(Kind::kOutput, "layers.0.attention:1", microbatch), {2, 4}, {5, 6});
      test::add_tensor(trace, rank, test::tensor_id(Kind::kOutput, "layers.0.mlp#1", microbatch), {2, 2}, {7, 8});
    }
    test::add_tensor(trace, rank, test::tensor_id(Kind::kParam, "layers.0.mlp.weight"), {4, 4}, {9});
    test::add_tensor(trace, rank, test::tensor_id(Kind::kMainGrad, "layers.0.mlp.weight"), {4, 4}, {0.5});
    test::add_tensor(trace, rank, test::tensor_id(Kind::kScalar, "loss", 0), {}, {2.5});
  }
  return trace;
}

void require_describable(const RunAttributes& attributes) {
  if (const auto run = parse_attributes(attributes)) objection_to_run(*run);
}

}  // namespace

Outcome fuzz_annotations(std::string_view input) {
  static const Trace trace = trace_of_four();
  if (!input.empty() && input[0] == '\1') {  // a pattern and a name
    input.remove_prefix(1);
    const std::size_t end = std::min(input.find('\n'), input.size());
    return matches(input.substr(0, end), input.substr(std::min(end + 1, input.size()))) ? Outcome::kSame
                                                                                        : Outcome::kFound;
  }
  const Annotations annotations = parse_annotations(std::string(input), "fuzz.yaml");
  const Alignment alignment = align(trace, annotations, {});
  return alignment.findings.empty() ? Outcome::kSame : Outcome::kFound;
}

Outcome fuzz_tolerance(std::string_view input) {
  if (!input.empty() && input[0] == '\1') {
    const CalibrationFile file = parse_calibration(std::string(input.substr(1)), "fuzz.yaml");
    if (to_yaml(parse_calibration(to_yaml(file), "again.yaml")) != to_yaml(file)) fail_promise("calibration changed");
    return Outcome::kSame;
  }
  const ToleranceFile file = parse_tolerances(std::string(input), "fuzz.yaml");
  // The text that is written reads back as the same: no name in it escapes its quotes.
  const ToleranceFile again = parse_tolerances(to_yaml(file), "again.yaml");
  if (to_yaml(again) != to_yaml(file)) fail_promise("the tolerances that are read back are others");
  return Outcome::kSame;
}

Outcome fuzz_run_file(std::string_view input) {
  const RunFile file = parse_run_file(std::string(input), "fuzz.yaml");
  for (const Job& job : candidate_jobs(file)) annotations_for(file, job);
  return Outcome::kSame;
}

Outcome fuzz_metadata(std::string_view input) {
  const std::uint8_t choice = take_choice(input);
  const std::string text(input);
  switch (choice % 6) {
    case 0:
      objection_to_mapping(parse_mapping(text), {4, 8});
      return Outcome::kSame;
    case 1:
      read_program_words({{"rank-00000.h5", parse_provenance(text, "fuzz").parallelism}});
      return Outcome::kSame;
    case 2:
      parse_not_seen(text, "fuzz");
      return Outcome::kSame;
    case 3:
      parse_optimizer_steps(text, "fuzz");
      return Outcome::kSame;
    case 4:
      if (const auto attributes = attributes_from_json(text)) {
        require_describable(*attributes);
        return Outcome::kSame;
      }
      return Outcome::kFound;
    default:
      if (const auto journal = parse_journal(text)) {
        require_describable(journal->run);
        return Outcome::kSame;
      }
      return Outcome::kFound;
  }
}

}  // namespace ttrace::fuzz
