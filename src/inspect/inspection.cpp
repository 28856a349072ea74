#include "inspect/inspection.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/annotation.h"
#include "base/error.h"
#include "base/mesh.h"
#include "compare/compare.h"
#include "load/trace_reader.h"
#include "text/readable.h"
#include "text/table.h"

namespace ttrace {
namespace {

std::vector<std::int32_t> missing_ranks(const Trace& trace) {
  std::set<std::int32_t> present;
  for (const RankTrace& rank : trace.ranks) present.insert(rank.rank);
  std::vector<std::int32_t> missing;
  for (std::int32_t rank = 0; rank < trace.world_size; ++rank) {
    if (!present.contains(rank)) missing.push_back(rank);
  }
  return missing;
}

std::string microbatch_text(const TensorId& id) {
  return id.microbatch == kNoMicrobatch ? "-" : fmt::format("{}", id.microbatch);
}

std::string kind_text(const TensorId& id) {
  return fmt::format("{}{}", name_of(id.kind), id.pass == Pass::kRecompute ? " (recompute)" : "");
}

std::string name_text(const TensorId& id) {
  return id.chunk == 0 ? id.name.get() : fmt::format("{} [chunk {}]", id.name, id.chunk);
}

TensorStatistics statistics_and_release(const RankTrace& rank, const Entry& entry) {
  const TensorStatistics statistics = statistics_of(rank.bytes_of(entry), entry.dtype, element_count(entry.shape));
  rank.file->release(rank.bytes_of(entry), entry.bytes);
  return statistics;
}

bool verify_and_release(const RankTrace& rank, const Entry& entry) {
  const bool verified = verify_checksum(rank, entry);
  rank.file->release(rank.stored_bytes_of(entry), entry.bytes);
  return verified;
}

void print_provenance(const Trace& trace, std::FILE* out) {
  const auto facts = nlohmann::json::parse(trace.provenance.text);
  for (const auto& [key, value] : facts.items()) {
    if (key == "optimizer_steps") continue;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    fmt::print(out, "{:<18}{}\n", printable(key), printable(text));
  }
}

// Prints what the lowest rank says of its optimizers, a line for each step with each group of parameters.
void print_optimizer_steps(const RankTrace& rank, std::FILE* out) {
  for (const OptimizerStep& step : rank.optimizer_steps) {
    std::string text = fmt::format("iteration {}: {}, {} parameter{}", step.iteration,
                                   step.optimizer.empty() ? "in no optimizer" : printable(step.optimizer),
                                   step.parameters.size(), step.parameters.size() == 1 ? "" : "s");
    if (step.chunk != 0) text += fmt::format(" of chunk {}", step.chunk);
    if (!step.optimizer.empty() && step.calls != 1) text += fmt::format(", {} calls", step.calls);
    if (step.step) text += fmt::format(", step {}", *step.step);
    if (step.clip_factor) text += fmt::format(", gradients times {:.6g}", *step.clip_factor);
    if (!step.master.empty()) text += fmt::format(", {} masters", step.master);
    if (step.changed_after) text += ", changed after the step";
    for (const auto& [option, value] : step.options) text += fmt::format(", {} {}", printable(option), value);
    fmt::print(out, "{:<18}{}\n", "optimizer", text);
  }
}

std::string coordinates_text(const RankTrace& rank) {
  std::string text;
  for (const auto& [axis, coordinate] : rank.coordinates) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis, coordinate);
  }
  return text.empty() ? "" : fmt::format(" ({})", text);
}

std::string_view state_of(const RankTrace& rank) {
  if (rank.complete) return "";
  return rank.job_failed ? ", whole, and the job failed afterwards" : ", INCOMPLETE: it crashed, or is still running";
}

std::string shape_text(const Entry& entry) {
  if (!entry.sketch) return to_string(entry.shape);
  return fmt::format("{}, a sketch in cells of {}", to_string(entry.shape), to_string(entry.sketch->edges));
}

TextTable::Row row_of(const RankTrace& rank, const Entry& entry) {
  return {fmt::format("{}", rank.rank),
          fmt::format("{}", entry.id.iteration),
          microbatch_text(entry.id),
          kind_text(entry.id),
          name_text(entry.id),
          std::string(name_of(entry.dtype)),
          shape_text(entry)};
}

TextTable::Row row_of(const TensorStatistics& statistics) {
  const auto number = [](double value) { return fmt::format("{:.5g}", value); };
  return {number(statistics.norm), number(statistics.min), number(statistics.max), fmt::format("{}", statistics.nan),
          fmt::format("{}", statistics.inf)};
}

constexpr std::size_t kNumberWidth = 11,
                      kCountWidth = 6;  // of statistics, which are not known when the columns are fitted

TextTable table_for(const std::vector<RankSelection>& selection, bool with_statistics) {
  std::vector<TableColumn> columns = {{"rank", Justify::kRight},
                                      {"iter", Justify::kRight},
                                      {"micro-batch", Justify::kRight},
                                      {"kind"},
                                      {"name"},
                                      {"dtype"},
                                      {"shape"}};
  const std::vector<TableColumn> statistics = {{"norm", Justify::kRight, kNumberWidth},
                                               {"min", Justify::kRight, kNumberWidth},
                                               {"max", Justify::kRight, kNumberWidth},
                                               {"NaN", Justify::kRight, kCountWidth},
                                               {"Inf", Justify::kRight, kCountWidth}};
  if (with_statistics) columns.insert(columns.end(), statistics.begin(), statistics.end());
  TextTable table(columns);
  for (const auto& [rank, entries] : selection) {
    for (const Entry* entry : entries) {
      TextTable::Row row = row_of(*rank, *entry);
      row.resize(columns.size());
      table.fit(row);
    }
  }
  return table;
}

nlohmann::ordered_json json_of(const TensorStatistics& statistics) {
  return {{"norm", statistics.norm}, {"min", statistics.min}, {"max", statistics.max},  {"mean", statistics.mean},
          {"nan", statistics.nan},   {"inf", statistics.inf}, {"zero", statistics.zero}};
}

std::string_view placement_word(const AxisPlacement& axis) {
  if (axis.placement == Placement::kPartial) return axis.mean ? "mean" : "partial";
  return axis.placement == Placement::kShard ? "shard" : "replicate";
}

// Writes the mapping in the grammar of recording programs (base/mapping.h).
nlohmann::ordered_json json_of(const RecordedMapping& mapping) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (mapping.axes) {
    auto& axes = json["axes"] = nlohmann::ordered_json::array();
    for (const auto& [axis, size] : *mapping.axes) {
      axes.push_back({{"axis", axis.axis}, {"size", size}, {"placement", placement_word(axis)}});
      if (axis.placement == Placement::kShard) axes.back()["dim"] = axis.dim;
      if (axis.layout == "contiguous") continue;
      axes.back()["layout"] = axis.layout;
      for (const auto& [name, numbers] : axis.options) axes.back()[name] = numbers;
    }
  }
  if (mapping.shape) json["shape"] = *mapping.shape;
  if (!mapping.fragment) return json;
  auto& fragment = json["fragment"] = {{"whole", mapping.fragment->whole}};
  if (const auto& range = mapping.fragment->range) fragment["range"] = {range->begin, range->end};
  for (const Slice& slice : mapping.fragment->slices) {
    fragment["slices"].push_back(
        {{"local", slice.local.start}, {"start", slice.whole.start}, {"size", slice.whole.size}});
  }
  return json;
}

nlohmann::ordered_json json_of(const Entry& entry) {
  nlohmann::ordered_json json = {{"iteration", entry.id.iteration},
                                 {"microbatch", nullptr},
                                 {"chunk", entry.id.chunk},
                                 {"pass", name_of(entry.id.pass)},
                                 {"kind", name_of(entry.id.kind)},
                                 {"name", entry.id.name},
                                 {"dtype", name_of(entry.dtype)},
                                 {"shape", entry.shape},
                                 {"bytes", entry.bytes},
                                 {"order", entry.order},
                                 {"module", entry.module_class.get()}};
  if (entry.id.microbatch != kNoMicrobatch) json["microbatch"] = entry.id.microbatch;
  if (entry.mapping) json["mapping"] = json_of(*entry.mapping);
  if (entry.sketch) json["sketch"] = {{"edges", entry.sketch->edges}};
  return json;
}

nlohmann::ordered_json json_of(const Axes& axes) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Axis& axis : axes) json.push_back({axis.name, axis.size});
  return json;
}

nlohmann::ordered_json header_json(const Trace& trace) {
  nlohmann::ordered_json views = nlohmann::ordered_json::array();
  for (const Axes& factoring : trace.mesh.further_factorings) views.push_back(json_of(factoring));
  nlohmann::ordered_json aliases = nlohmann::ordered_json::object();
  for (const auto& [name, axis] : trace.mesh.aliases) aliases[name] = axis;
  return {{"schema", "ttrace-inspect/1"},
          {"directory", trace.directory.string()},
          {"run_id", trace.run_id},
          {"world_size", trace.world_size},
          {"missing_ranks", missing_ranks(trace)},
          {"axes", json_of(trace.mesh.axes)},
          {"views", views},
          {"aliases", aliases},
          {"compute_dtype", trace.compute_dtype},
          {"provenance", nlohmann::ordered_json::parse(trace.provenance.text)}};
}

}  // namespace

std::vector<RankSelection> select_tensors(const Trace& trace, const std::string& pattern) {
  std::vector<RankSelection> selection;
  std::size_t tensors = 0;
  for (const RankTrace& rank : trace.ranks) {
    RankSelection selected{&rank, {}};
    for (const Entry& entry : rank.entries) {
      if (pattern.empty() || matches(pattern, entry.id.name)) selected.entries.push_back(&entry);
    }
    tensors += selected.entries.size();
    selection.push_back(std::move(selected));
  }
  if (tensors == 0 && !pattern.empty()) {
    throw InputError(fmt::format("--tensor '{}': matches no tensor of {}; expected a name or a pattern of one", pattern,
                                 trace.directory.string()));
  }
  return selection;
}

void print_summary(const Trace& trace, std::FILE* out) {
  const std::string axes = to_string(trace.mesh);
  fmt::print(out, "{:<18}{}\n", "trace", printable(trace.directory.string()));
  fmt::print(out, "{:<18}{}\n", "run", printable(trace.run_id));
  const std::string_view unknown = trace.world_size == 1 ? "" : ": axes unknown";
  fmt::print(out, "{:<18}{}{}{}\n", "ranks", trace.world_size, axes.empty() ? unknown : ": ", axes);
  fmt::print(out, "{:<18}{}\n", "compute dtype", trace.compute_dtype.empty() ? "not known" : trace.compute_dtype);
  print_provenance(trace, out);
  if (!trace.ranks.empty()) print_optimizer_steps(trace.ranks.front(), out);
  for (const RankTrace& rank : trace.ranks) {
    std::uint64_t bytes = 0, sketches = 0;
    for (const Entry& entry : rank.entries) {
      bytes += entry.bytes;
      sketches += entry.sketch != nullptr;
    }
    const std::string of_them = sketches == 0 ? "" : fmt::format(", {} as sketches", readable_count(sketches));
    // Tensors may share their bytes.
    const std::string in_file =
        rank.file->size() < bytes ? fmt::format(" ({} in the file)", readable_bytes(rank.file->size())) : "";
    fmt::print(out, "{:<18}{} tensor{}{}, {}{}{}{}\n", fmt::format("rank {}", rank.rank),
               readable_count(rank.entries.size()), rank.entries.size() == 1 ? "" : "s", of_them, readable_bytes(bytes),
               in_file, coordinates_text(rank), state_of(rank));
  }
  // The list is cut, so that a thousand missing ranks fit on one line.
  const std::vector<std::int32_t> missing = missing_ranks(trace);
  if (missing.empty()) return;
  const std::size_t shown = std::min<std::size_t>(missing.size(), 16);
  fmt::print(out, "{:<18}{}{}\n", "MISSING ranks", fmt::join(std::span(missing).first(shown), ", "),
             missing.size() > shown ? fmt::format(" and {} more", missing.size() - shown) : "");
}

void print_table(const std::vector<RankSelection>& selection, bool with_statistics, bool with_mappings,
                 std::FILE* out) {
  const TextTable table = table_for(selection, with_statistics);
  fmt::print(out, "{}", table.titles());
  for (const auto& [rank, entries] : selection) {
    for (const Entry* entry : entries) {
      TextTable::Row row = row_of(*rank, *entry);
      if (with_statistics) {
        const TextTable::Row statistics = row_of(statistics_and_release(*rank, *entry));
        row.insert(row.end(), statistics.begin(), statistics.end());
      }
      fmt::print(out, "{}", table.line(row));
      if (with_mappings && entry->mapping) fmt::print(out, "      mapping {}\n", json_of(*entry->mapping).dump());
    }
  }
}

ChecksumCounts verify_checksums(const std::vector<RankSelection>& selection,
                                const std::function<void(const RankTrace&, const Entry&)>& report) {
  ChecksumCounts counts;
  for (const auto& [rank, entries] : selection) {
    for (const Entry* entry : entries) {
      ++counts.tensors;
      counts.bytes += entry->bytes;
      if (verify_and_release(*rank, *entry)) continue;
      ++counts.mismatches;
      report(*rank, *entry);
    }
  }
  return counts;
}

std::int64_t print_json(const Trace& trace, const std::vector<RankSelection>& selection, bool with_statistics,
                        bool with_checksums, std::FILE* out) {
  std::int64_t mismatches = 0;
  nlohmann::ordered_json json = header_json(trace);
  nlohmann::ordered_json& ranks = json["ranks"] = nlohmann::ordered_json::array();
  for (const auto& [rank, entries] : selection) {
    nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
    for (const Entry* entry : entries) {
      nlohmann::ordered_json tensor = json_of(*entry);
      if (with_statistics) tensor["statistics"] = json_of(statistics_and_release(*rank, *entry));
      if (with_checksums) {
        const bool verified = verify_and_release(*rank, *entry);
        tensor["checksum_ok"] = verified;
        mismatches += !verified;
      }
      tensors.push_back(std::move(tensor));
    }
    nlohmann::ordered_json coordinates = nlohmann::ordered_json::object();
    for (const auto& [axis, coordinate] : rank->coordinates) coordinates[axis] = coordinate;
    ranks.push_back({{"rank", rank->rank},
                     {"file", rank->path.filename().string()},
                     {"complete", rank->complete},
                     {"coordinates", std::move(coordinates)},
                     {"tensors", std::move(tensors)}});
  }
  // The name of the directory may be no UTF-8.
  fmt::print(out, "{}\n", json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  return mismatches;
}

}  // namespace ttrace
