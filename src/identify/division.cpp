// Megatron's arithmetic (transformer_layer.get_transformer_layer_offset): with `embedding` and `head` these count
// as layers of an even division; with `first` and `last` those stages' layers are spread over their chunks, and
// the other stages' over theirs. An even division has chunk k of V begin k * (layers / V) layers into the model and
// stage s of S in it s * (layers / S / V) after that; releases that did not check that layers divide rounded both
// down, and lost what is between the parts (Megatron-LM issue 468).
#include "identify/division.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/describe.h"
#include "base/error.h"
#include "identify/numbering.h"

namespace ttrace {
namespace {

[[noreturn]] void refuse(const std::string& at, const std::string& what) {
  throw InputError(fmt::format("{}: {}", at, what));
}

std::string describe_stages(const Division& division) {
  const std::string stages = fmt::format("{} stage{}", division.stages, division.stages == 1 ? "" : "s");
  return division.chunks == 1 ? stages : fmt::format("{} of {} chunks", stages, division.chunks);
}

std::int64_t rounded_layers_per_part(const Division& division) {
  return division.total / division.stages / division.chunks;
}

std::vector<std::int64_t> divide_listed(const PipelineRule& rule, const Division& division, const std::string& at) {
  const std::int64_t parts = division.stages * division.chunks;
  if (static_cast<std::int64_t>(rule.per_stage.size()) != parts) {
    refuse(at, fmt::format("per_stage has {} numbers; expected {} for {}", rule.per_stage.size(), parts,
                           describe_stages(division)));
  }
  const std::int64_t sum = std::accumulate(rule.per_stage.begin(), rule.per_stage.end(), std::int64_t{0});
  if (sum != division.total) {
    refuse(at, fmt::format("per_stage makes {} layers; expected the {} of {}", sum, division.total,
                           printable(division.prefix)));
  }
  return rule.per_stage;
}

// Gives the first and the last stage what is declared, and the other stages equal shares of the rest.
std::vector<std::int64_t> divide_by_ends(const PipelineRule& rule, const Division& division, const std::string& at) {
  const std::int64_t rest = division.total - rule.first.value_or(0) - rule.last.value_or(0);
  const std::int64_t sharing = division.stages - (rule.first ? 1 : 0) - (rule.last ? 1 : 0);
  if (rest < 0 || sharing < 0 || (sharing == 0 && rest > 0) || (sharing > 0 && rest % sharing != 0)) {
    refuse(at, fmt::format("first and last leave {} of the {} layers of {} to {} of {}; expected equal shares", rest,
                           division.total, printable(division.prefix), sharing, describe_stages(division)));
  }
  std::vector<std::int64_t> by_stage(static_cast<std::size_t>(division.stages), sharing > 0 ? rest / sharing : 0);
  if (rule.first) by_stage.front() = *rule.first;
  if (rule.last) by_stage.back() = *rule.last;
  std::vector<std::int64_t> counts;
  for (std::int64_t chunk = 0; chunk < division.chunks; ++chunk) {
    for (const std::int64_t layers : by_stage) {
      if (layers % division.chunks != 0) {
        refuse(at, fmt::format("a stage's {} layers of {} do not divide into its {} chunks; expected a multiple of {}",
                               layers, printable(division.prefix), division.chunks, division.chunks));
      }
      counts.push_back(layers / division.chunks);
    }
  }
  return counts;
}

std::vector<std::int64_t> divide_evenly(const PipelineRule& rule, const Division& division, const std::string& at) {
  const std::int64_t parts = division.stages * division.chunks;
  const std::int64_t extra = (rule.embedding ? 1 : 0) + (rule.head ? 1 : 0);
  if ((division.total + extra) % parts != 0) {
    const std::string_view also = extra == 2       ? " and the embedding and the head"
                                  : rule.embedding ? " and the embedding"
                                  : rule.head      ? " and the head"
                                                   : "";
    refuse(at, fmt::format("{} layers of {}{} do not divide into {}; expected a multiple of {}, or first, last, "
                           "embedding, head or per_stage",
                           division.total, printable(division.prefix), also, describe_stages(division), parts));
  }
  std::vector<std::int64_t> counts(static_cast<std::size_t>(parts), (division.total + extra) / parts);
  if (rule.embedding) --counts.front();
  if (rule.head) --counts.back();
  return counts;
}

}  // namespace

std::vector<std::int64_t> divide(const PipelineRule& rule, const Division& division, const std::string& at) {
  if (!rule.per_stage.empty()) return divide_listed(rule, division, at);
  if (rule.first || rule.last) return divide_by_ends(rule, division, at);
  return divide_evenly(rule, division, at);
}

bool must_round(const PipelineRule& rule, const Division& division) {
  const bool declared = !rule.per_stage.empty() || rule.first || rule.last || rule.embedding || rule.head;
  const std::int64_t parts = division.stages * division.chunks;
  return !declared && division.held < division.total && division.total > parts && division.total % parts != 0;
}

std::vector<std::int64_t> rounded_starts(const Division& division) {
  std::vector<std::int64_t> starts;
  for (std::int64_t chunk = 0; chunk < division.chunks; ++chunk) {
    for (std::int64_t stage = 0; stage < division.stages; ++stage) {
      starts.push_back(chunk * (division.total / division.chunks) + stage * rounded_layers_per_part(division));
    }
  }
  return starts;
}

std::string describe_rounding(const Division& division, const std::string& at) {
  std::vector<std::int64_t> starts = rounded_starts(division);
  starts.push_back(division.total);
  std::vector<std::string> lost;
  for (std::size_t part = 0; part + 1 < starts.size(); ++part) {
    const std::int64_t end = starts[part] + rounded_layers_per_part(division);
    if (end == starts[part + 1]) continue;
    const bool one = end + 1 == starts[part + 1];
    lost.push_back(one ? fmt::format("{}", end) : fmt::format("{} to {}", end, starts[part + 1] - 1));
  }
  return fmt::format(
      "{}: {} layers of {} do not divide into {}, which hold {}: taken to be rounded down to {} on each, "
      "which drops {}; stages that are uneven need first, last, embedding, head or per_stage",
      at, division.total, printable(division.prefix), describe_stages(division), division.held,
      rounded_layers_per_part(division), comma_list(lost));
}

}  // namespace ttrace
