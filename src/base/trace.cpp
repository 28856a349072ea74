#include "base/trace.h"

#include <fmt/format.h>

#include <array>

namespace ttrace {
namespace {

constexpr std::array<std::string_view, kKindLast> kKindNames = {
    "input",      "output",         "grad_output",     "grad_input", "param",  "param_grad",
    "main_grad",  "param_delta",    "param_after",     "scalar",     "master", "exp_avg",
    "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "step_grad",
};

}  // namespace

std::string_view name_of(Kind kind) { return kKindNames[static_cast<std::size_t>(kind) - kKindFirst]; }

std::string_view name_of(Pass pass) { return pass == Pass::kForward ? "forward" : "recompute"; }

std::optional<Kind> kind_from_name(std::string_view name) {
  for (std::uint8_t value = kKindFirst; value <= kKindLast; ++value) {
    if (kKindNames[value - kKindFirst] == name) return static_cast<Kind>(value);
  }
  return std::nullopt;
}

bool is_parameter_kind(Kind kind) {
  return (kind >= Kind::kParam && kind <= Kind::kParamAfter) || is_optimizer_state(kind);
}

bool is_optimizer_state(Kind kind) { return kind >= Kind::kMaster && kind <= Kind::kStepGrad; }

TensorId TensorId::with_kind(Kind other) const {
  TensorId id = *this;
  id.kind = other;
  return id;
}

std::string to_string(const TensorId& id) {
  std::string text = fmt::format("{} {}, iteration {}", printable(id.name), name_of(id.kind), id.iteration);
  if (id.microbatch != kNoMicrobatch) text += fmt::format(", micro-batch {}", id.microbatch);
  if (id.chunk != 0) text += fmt::format(", chunk {}", id.chunk);
  if (id.pass == Pass::kRecompute) text += ", recompute";
  return text;
}

RecordedAsSketch::RecordedAsSketch(const Entry& entry)
    : InputError(fmt::format("{}: was recorded as a sketch; expected its elements: collect it again with --whole, or "
                             "without --sketch",
                             to_string(entry.id))) {}

void require_elements(const Trace& trace, std::string_view what) {
  for (const RankTrace& rank : trace.ranks) {
    for (const Entry& entry : rank.entries) {
      if (!entry.sketch) continue;
      throw InputError(
          fmt::format("{}: holds the sketch of {}, and {} needs elements; expected a trace that was "
                      "collected without --sketch",
                      trace.directory.string(), to_string(entry.id), what));
    }
  }
}

}  // namespace ttrace
