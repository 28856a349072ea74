#include "workflow/rewriting.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "align/aligned_trace.h"
#include "base/error.h"
#include "judge/match.h"
#include "load/trace_reader.h"
#include "merge/rewrite.h"
#include "record/trace_writer.h"
#include "text/readable.h"
#include "workflow/annotations.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kGeneratedSeed = 1;  // the same for all runs, so that they are given the same values

fs::path source_trace(const RewriteOptions& options) {
  fs::path source;
  for (const fs::path& given : {options.inject, options.rewrite, options.inject_params, options.consistent_init}) {
    if (given.empty()) continue;
    if (!source.empty() && given != source) {
      throw InputError(
          fmt::format("{}: the values come from {} as well; expected one trace", given.string(), source.string()));
    }
    source = given;
  }
  if (source.empty() && !options.layout.empty()) {
    throw InputError(
        "--layout: nothing is rewritten; expected --inject, --rewrite, --inject-params or "
        "--consistent-init with it");
  }
  return source;
}

Rewriting rewriting_of(const RewriteOptions& options, std::optional<std::uint64_t> perturb) {
  Rewriting rewriting;
  if (!options.inject.empty()) rewriting.activations = RewriteValues::kRecorded;
  if (!options.rewrite.empty()) rewriting.activations = RewriteValues::kGenerated;
  if (!options.inject_params.empty()) rewriting.parameters = RewriteValues::kRecorded;
  if (!options.consistent_init.empty()) rewriting.parameters = RewriteValues::kGenerated;
  rewriting.integers = !options.consistent_init.empty();
  rewriting.seed = kGeneratedSeed;
  rewriting.perturb = perturb;
  return rewriting;
}

nlohmann::json provenance_word(const std::optional<RewriteValues>& values) {
  if (!values) return nullptr;
  return *values == RewriteValues::kRecorded ? "recorded" : "generated";
}

bool generates(const Rewriting& rewriting) {
  return rewriting.activations == RewriteValues::kGenerated || rewriting.parameters == RewriteValues::kGenerated;
}

// A trace that is written with the shards that each rank needs.
class ScatteredTrace {
 public:
  ScatteredTrace(const fs::path& directory, const Trace& layout) {
    fs::create_directories(directory);
    for (const RankTrace& rank : layout.ranks) {
      RunDescription run;
      run.run_id = layout.run_id;
      run.rank = rank.rank;
      run.world_size = layout.world_size;
      run.mesh = layout.mesh;
      run.coordinates = rank.coordinates;
      writers_.emplace(rank.rank, std::make_unique<TraceWriter>(directory, std::move(run)));
    }
  }

  void add(const std::vector<RewrittenShard>& shards) {
    for (const RewrittenShard& shard : shards) {
      const Entry& entry = *shard.entry;
      writers_.at(shard.rank)->record(entry.id, "", {shard.bytes.data(), entry.dtype, entry.shape, {}});
    }
  }

  void close() {
    for (const auto& [rank, writer] : writers_) writer->close(/*complete=*/true);
  }

 private:
  std::map<std::int32_t, std::unique_ptr<TraceWriter>> writers_;
};

// Says why the reference's tensor cannot be cut into the shards of the run; empty where it can.
std::string objection_to(const LogicalTensor* reference, const LogicalTensor& layout) {
  if (reference == nullptr) return "the trace to take values from has no such tensor";
  if (reference->rows || layout.rows) return "which rows there are depends on routing";
  if (layout.shape != reference->shape) return "the run held them in another shape";
  if (is_floating(layout.dtype) != is_floating(reference->dtype)) return "the run held them in another dtype";
  return "";
}

// Throws InputError where a rank would be given nothing in an iteration: such a run would fail.
void scatter_all(const Alignment& reference, const Alignment& layout, const Rewriting& rewriting,
                 ScatteredTrace& scattered) {
  using RankAndIteration = std::pair<std::int32_t, std::int32_t>;
  std::map<std::string, std::int64_t> left_out;
  std::map<RankAndIteration, std::string> objections;  // the first of each
  std::set<RankAndIteration> written;
  for (const auto& [id, held] : layout.tensors) {
    if (!is_rewritten(held, rewriting)) continue;
    const LogicalTensor* values = counterpart(reference, id);
    if (const std::string objection = objection_to(values, held); !objection.empty()) {
      ++left_out[objection];
      for (const Piece& piece : held.pieces()) objections.try_emplace({piece.rank, id.iteration}, objection);
      continue;
    }
    const std::vector<RewrittenShard> shards = rewritten_shards(*values, held, rewriting);
    for (const RewrittenShard& shard : shards) written.emplace(shard.rank, id.iteration);
    scattered.add(shards);
  }
  if (written.empty()) throw InputError("nothing could be rewritten; expected traces of one model");
  for (const auto& [where, objection] : objections) {
    if (written.contains(where)) continue;
    throw InputError(
        fmt::format("nothing could be rewritten on rank {} in iteration {}: {}", where.first, where.second, objection));
  }
  for (const auto& [objection, count] : left_out) {
    spdlog::warn("{} tensors are not rewritten: {}", readable_count(count), objection);
  }
}

void scatter_trace(Trace source, const RewriteOptions& options, const AnnotationSource& annotation_source,
                   const Rewriting& rewriting, const fs::path& scratch) {
  std::optional<Trace> earlier;
  if (!options.layout.empty()) earlier = read_trace(options.layout);
  Annotations annotations = load_annotations(annotation_source, earlier ? *earlier : source);
  const AlignedTrace reference = align_whole(std::move(source), annotations);
  std::optional<AlignedTrace> layout;
  if (options.loss_scale) annotations.loss_scale = options.loss_scale;
  if (earlier) layout = align_trace(std::move(*earlier), annotations, layout_of(reference.alignment));
  const AlignedTrace& held = layout ? *layout : reference;
  try {
    ScatteredTrace scattered(scratch, *held.trace);
    scatter_all(reference.alignment, held.alignment, rewriting, scattered);
    scattered.close();
  } catch (const RecordError& error) {
    throw InputError(fmt::format("{}: {}; expected room for a trace", scratch.string(), error.what()));
  }
}

}  // namespace

PreparedValues prepare_values(const RewriteOptions& options, const AnnotationSource& annotations,
                              std::optional<std::uint64_t> perturb, const fs::path& scratch) {
  const fs::path source_path = source_trace(options);
  if (source_path.empty()) return {};
  if (!options.inject_params.empty() && !options.consistent_init.empty()) {
    throw InputError("--inject-params, --consistent-init: both say what parameters are; expected one");
  }
  if (!options.inject.empty() && !options.rewrite.empty()) {
    throw InputError("--inject, --rewrite: both say what modules are given; expected one");
  }
  Trace source = read_trace(source_path);
  require_elements(source, "a run that is given its values");
  const std::string source_run = source.run_id;
  const Rewriting rewriting = rewriting_of(options, perturb);
  const bool as_recorded = options.layout.empty() && !generates(rewriting) && !perturb;
  if (!as_recorded) scatter_trace(std::move(source), options, annotations, rewriting, scratch);

  PreparedValues prepared;
  prepared.for_ranks = {{"directory", fs::absolute(as_recorded ? source_path : scratch).string()},
                        {"activations", rewriting.activations.has_value()},
                        {"parameters", rewriting.parameters.has_value()},
                        {"integers", rewriting.integers}};
  prepared.provenance = {{"source", source_run},
                         {"activations", provenance_word(rewriting.activations)},
                         {"parameters", provenance_word(rewriting.parameters)},
                         {"seed", generates(rewriting) ? nlohmann::json(kGeneratedSeed) : nlohmann::json(nullptr)}};
  return prepared;
}

}  // namespace ttrace
