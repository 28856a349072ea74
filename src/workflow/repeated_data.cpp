#include "workflow/repeated_data.h"

#include <algorithm>

#include "base/mesh.h"
#include "base/tensor_name.h"
#include "identify/program.h"
#include "identify/resolved_annotations.h"
#include "workflow/annotations.h"

namespace ttrace {
namespace {

using Given = std::map<TensorId, std::uint64_t>;  // checksums of what the model was given

Given given_to(const RankTrace& rank) {
  Given given;
  for (const Entry& entry : rank.entries) {
    const bool is_of_model = entry.id.kind == Kind::kInput && TensorName(entry.id.name).path == kRootModule;
    if (is_of_model) given.emplace(entry.id, entry.checksum);
  }
  return given;
}

// Returns where a rank lies on all axes but those of data, along which ranks may hold parts of the same samples.
Coordinates place_of(const RankTrace& rank, const std::vector<std::string>& of_data) {
  Coordinates place = rank.coordinates;
  std::erase_if(place,
                [&](const auto& at) { return std::find(of_data.begin(), of_data.end(), at.first) != of_data.end(); });
  return place;
}

}  // namespace

std::vector<RepeatedData> DataWatch::look_at(const Trace& trace, const AnnotationSource& annotations) {
  const std::vector<std::string> of_data =
      microbatch_axes(with_program_words(load_annotations(annotations, trace), trace), trace.mesh);
  std::map<std::pair<Coordinates, Given>, std::int32_t> first_with;
  std::map<Coordinates, std::int32_t> ranks_at;
  std::vector<RepeatedData> repeated;
  for (const RankTrace& rank : trace.ranks) {
    const Coordinates place = place_of(rank, of_data);
    const Given given = given_to(rank);
    if (given.empty()) continue;
    ++ranks_at[place];
    const auto [first, is_new] = first_with.emplace(std::pair(place, given), rank.rank);
    if (!is_new) repeated.push_back({first->second, rank.rank, given.begin()->first.name});
  }
  const bool several = std::any_of(ranks_at.begin(), ranks_at.end(), [](const auto& at) { return at.second > 1; });
  if (is_dealt_) return repeated;
  is_dealt_ = several && repeated.empty();
  return {};
}

}  // namespace ttrace
