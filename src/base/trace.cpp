#include "base/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ttrace {
namespace {

constexpr auto kKindWords = std::to_array<Word<Kind>>({
    {Kind::kInput, "input", "a tensor that a module was given"},
    {Kind::kOutput, "output", "a tensor that a module returned"},
    {Kind::kGradOutput, "grad_output", "the gradient of the loss with respect to a module's output"},
    {Kind::kGradInput, "grad_input", "the gradient of the loss with respect to a module's input"},
    {Kind::kParam, "param", "a parameter before the iteration"},
    {Kind::kParamGrad, "param_grad", "what one micro-batch's backward adds to the parameter's gradient"},
    {Kind::kMainGrad, "main_grad", "the gradient that the optimizer uses: accumulated, reduced, not yet clipped"},
    {Kind::kParamDelta, "param_delta",
     "what the optimizer's steps of the iteration added, to the fp32 master where there is one"},
    {Kind::kParamAfter, "param_after", "the parameter as the next iteration sees it"},
    {Kind::kScalar, "scalar", "loss, grad_norm, token counts: the name says which"},
    {Kind::kMaster, "master", "the value that the optimizer updates, where it is not the parameter itself"},
    {Kind::kExpAvg, "exp_avg", "Adam's first moment before the step"},
    {Kind::kExpAvgSq, "exp_avg_sq", "Adam's second moment before the step"},
    {Kind::kMaxExpAvgSq, "max_exp_avg_sq", "the largest second moments so far (amsgrad)"},
    {Kind::kMomentumBuffer, "momentum_buffer", "the momentum of SGD before the step"},
    {Kind::kStepGrad, "step_grad",
     "the gradient that the optimizer was given, where it is not main_grad times one number"},
    {Kind::kBuffer, "buffer", "what a module keeps beside its parameters, before the iteration"},
    {Kind::kBufferAfter, "buffer_after",
     "the same, or a model that no optimizer updates, as the next iteration sees it"},
});
static_assert(has_every_enumerator<kKindWords>());
static_assert(kKindWords.size() == kKindLast);

constexpr auto kPassWords = std::to_array<Word<Pass>>({
    {Pass::kForward, "forward", "the forward pass"},
    {Pass::kRecompute, "recompute", "the forward that activation checkpointing runs a second time"},
});
static_assert(has_every_enumerator<kPassWords>());

}  // namespace

Vocabulary<Kind> vocabulary_of(Kind) { return {"Kind", kKindWords}; }
Vocabulary<Pass> vocabulary_of(Pass) { return {"Pass", kPassWords}; }

std::string_view name_of(Kind kind) { return word_in<Kind>(kKindWords, kind); }
std::string_view name_of(Pass pass) { return word_in<Pass>(kPassWords, pass); }

std::optional<Kind> kind_from_name(std::string_view name) {
  const auto found =
      std::find_if(kKindWords.begin(), kKindWords.end(), [&](const Word<Kind>& word) { return word.word == name; });
  return found == kKindWords.end() ? std::nullopt : std::optional(found->value);
}

bool is_parameter_kind(Kind kind) {
  return (kind >= Kind::kParam && kind <= Kind::kParamAfter) || is_optimizer_state(kind) || is_buffer_kind(kind);
}

bool is_optimizer_state(Kind kind) { return kind >= Kind::kMaster && kind <= Kind::kStepGrad; }

bool is_buffer_kind(Kind kind) { return kind == Kind::kBuffer || kind == Kind::kBufferAfter; }

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
