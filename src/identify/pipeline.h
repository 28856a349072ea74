// Makes stage-local layer numbers global, by arithmetic on the coordinates.
//
// A rank may run several model chunks (Megatron's interleaving). Chunk k of stage s is virtual stage
// k * stages + s: the model's layers lie on the virtual stages in that order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/alignment.h"
#include "identify/census.h"
#include "identify/numbering.h"
#include "identify/ranks.h"
#include "identify/resolved_annotations.h"

namespace ttrace {

struct Pipeline {
  int axis = -1;  // the stages' axis, an index into the table's axes; -1 where it has none
  std::int64_t stages = 1, chunks = 1;
  bool ruled = false;  // a rule numbers the layers; without one each chunk is a model of its own
  Numbering layers;    // its parts are the virtual stages; empty where there is only one
  std::set<std::string, std::less<>> spanning;  // modules that hold layers on several of them: "decoder", "(model)"
  std::set<std::int64_t> undivided;             // chunks that are models of their own, each on one of several stages
  std::set<std::string, std::less<>> divided;   // with global names: what precedes the numbers of their layers
  // Of a module that several virtual stages hold and the reference calls as often as all of them do together, the
  // number of calls before each one's first: the embedding, which multi-token prediction calls again on the last stage.
  std::map<std::string, std::vector<std::int64_t>, std::less<>> calls_before;
  std::vector<Finding> findings;   // ranks that lack a chunk
  std::vector<std::string> notes;  // divisions that had to be rounded

  std::int64_t last_stage = 0;  // the virtual stage that holds the model's end

  std::int64_t virtual_stages() const { return stages * chunks; }
};

// The number of layers comes from the reference's layout; where that has no such layers, it is the sum of what the
// stages hold. Throws InputError when the declared division does not fit it. An even division that does not fit is
// rounded where the ranks hold fewer layers, as the program must have done; the layers it lost are then missing.
Pipeline pipeline_of(const RankTable& table, const Census& census, const ResolvedAnnotations& annotations,
                     const ModelLayout& layout);

// Sets `calls_before`, of a candidate.
void number_calls(const Census& census, const ModelLayout& layout, Pipeline& pipeline);

// The name with the number of its call in the whole model.
std::string with_global_call(const Pipeline& pipeline, const std::string& text, std::int64_t virtual_stage);

// The virtual stage that recorded the entry; the stage alone where no rule numbers layers.
std::int64_t virtual_stage(const Pipeline& pipeline, const PresentRank& rank, const Entry& entry);

std::string describe_stage(const Pipeline& pipeline, std::int64_t virtual_stage);  // `stage 1`, `stage 1, chunk 0`

}  // namespace ttrace
