#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "text/csv.h"
#include "text/table.h"
#include "ttrace/numeric/convert.h"
#include "ttrace/outcome.h"
#include "ttrace/sdc/report.h"

namespace ttrace {
namespace {

constexpr std::size_t kOriginsShown = 10;

// The first element that differs: its index, and its value and bits on both sides.
struct Element {
  Shape index;
  double healthy = 0, suspect = 0;
  std::string healthy_bits, suspect_bits;  // hexadecimal, most significant first
};

std::string hexadecimal(const std::byte* bytes, std::int64_t size) {
  std::string text = "0x";
  for (std::int64_t i = size; i-- > 0;) text += fmt::format("{:02x}", static_cast<unsigned>(bytes[i]));
  return text;
}

Element first_element(const RecordedPair& pair) {
  const Entry& entry = *pair.healthy;
  Element element;
  element.index = index_at(pair.mismatch.first, entry.shape);
  const std::int64_t size = size_of(entry.dtype), offset = pair.mismatch.first * size;
  const std::byte* healthy = pair.rank->bytes_of(entry) + offset;
  const std::byte* suspect = pair.suspect_rank->bytes_of(*pair.suspect) + offset;
  widen(healthy, entry.dtype, 1, &element.healthy);
  widen(suspect, entry.dtype, 1, &element.suspect);
  element.healthy_bits = hexadecimal(healthy, size);
  element.suspect_bits = hexadecimal(suspect, size);
  return element;
}

std::string describe(const Origin& origin) {
  const Element element = first_element(*origin.pair);
  const Mismatch& mismatch = origin.pair->mismatch;
  return fmt::format("{}, rank {} at {}: healthy {:.6g} ({}), suspect {:.6g} ({}); {} of {} elements{}",
                     to_string(origin.id), origin.rank, to_string(element.index), element.healthy, element.healthy_bits,
                     element.suspect, element.suspect_bits, mismatch.differing, mismatch.elements,
                     origin.ranks > 1 ? fmt::format(", and on {} more ranks", origin.ranks - 1) : std::string());
}

// One type of submodule over all micro-steps: a row of the study's tables 1 and 2.
struct TypeRow {
  std::string type;
  Direction direction = Direction::kForward;
  std::int64_t steps = 0, steps_hit = 0, origins = 0, unbounded = 0;
  double frequency_sum = 0, frequency_max = 0, severity_max = 0;
};

std::vector<TypeRow> rows_by_type(const SdcReport& report) {
  std::vector<TypeRow> rows;  // `submodules` is sorted by type and direction
  for (const SubmoduleStep& step : report.submodules) {
    if (rows.empty() || rows.back().type != step.type || rows.back().direction != step.direction) {
      rows.push_back({.type = step.type, .direction = step.direction});
    }
    TypeRow& row = rows.back();
    ++row.steps;
    row.steps_hit += step.differing > 0;
    row.origins += step.origins;
    row.unbounded += step.unbounded;
    row.frequency_sum += step.frequency;
    row.frequency_max = std::max(row.frequency_max, step.frequency);
    row.severity_max = std::max(row.severity_max, step.severity);
  }
  return rows;
}

std::string table_of_types(const SdcReport& report) {
  std::vector<TypeRow> rows = rows_by_type(report);
  std::erase_if(rows, [](const TypeRow& row) { return row.steps_hit == 0; });
  if (rows.empty()) return {};
  TextTable table({{"submodule"},
                   {"direction"},
                   {"frequency", Justify::kRight},
                   {"largest", Justify::kRight},
                   {"severity", Justify::kRight},
                   {"micro-steps", Justify::kRight},
                   {"origins", Justify::kRight}});
  for (const TypeRow& row : rows) {
    table.add({row.type, std::string(name_of(row.direction)),
               fmt::format("{:.2e}", row.frequency_sum / static_cast<double>(row.steps)),
               fmt::format("{:.2e}", row.frequency_max), fmt::format("{:.3g}", row.severity_max),
               fmt::format("{}/{}", row.steps_hit, row.steps), fmt::format("{}", row.origins)});
  }
  return "\n" + table.text();
}

std::string table_of_steps(const SdcReport& report) {
  if (report.steps.empty()) return {};
  TextTable table({{"iteration", Justify::kRight},
                   {"|g'-g|", Justify::kRight},
                   {"|g'-g|/|g|", Justify::kRight},
                   {"|p'-p|", Justify::kRight},
                   {"|p'-p|/|p|", Justify::kRight}});
  for (const TrainingStep& step : report.steps) {
    TextTable::Row row = {fmt::format("{}", step.iteration)};
    const auto add = [&](const std::optional<double>& difference, const std::optional<double>& norm) {
      row.push_back(difference ? fmt::format("{:.4g}", *difference) : "-");
      row.push_back(difference ? fmt::format("{:.4g}", *norm == 0 ? 0 : *difference / *norm) : "-");
    };
    add(step.gradient_noise, step.gradient_norm);
    add(step.parameter_drift, step.parameter_norm);
    table.add(std::move(row));
  }
  return "\n" + table.text();
}

using Json = nlohmann::ordered_json;

Json number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json to_object(const Origin& origin) {
  const Element element = first_element(*origin.pair);
  const TensorId& id = origin.id;
  return {{"name", id.name},
          {"kind", name_of(id.kind)},
          {"iteration", id.iteration},
          {"microbatch", id.microbatch == kNoMicrobatch ? Json(nullptr) : Json(id.microbatch)},
          {"pass", name_of(id.pass)},
          {"rank", origin.rank},
          {"ranks", origin.ranks},
          {"submodule", origin.type},
          {"index", element.index},
          {"healthy", number(element.healthy)},
          {"suspect", number(element.suspect)},
          {"healthy_bits", element.healthy_bits},
          {"suspect_bits", element.suspect_bits},
          {"differing", origin.pair->mismatch.differing},
          {"elements", origin.pair->mismatch.elements}};
}

std::string optional_number(const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; }

}  // namespace

std::string to_text(const SdcReport& report) {
  std::string text = report.same()
                         ? "same: equal to the bit\n"
                         : fmt::format("different: {} of {} tensors\n", report.differing_tensors, report.tensors);
  if (report.first) text += fmt::format("first: {}\n", describe(*report.first));
  if (!report.origins.empty()) {
    text += fmt::format("\n{} call{} made an error out of equal inputs:\n", report.origins.size(),
                        report.origins.size() == 1 ? "" : "s");
    for (std::size_t i = 0; i < std::min(kOriginsShown, report.origins.size()); ++i) {
      text += fmt::format("  {}\n", describe(report.origins[i]));
    }
    if (report.origins.size() > kOriginsShown) {
      text += fmt::format("  ... and {} more: --json has all\n", report.origins.size() - kOriginsShown);
    }
  }
  text += table_of_types(report);
  text += table_of_steps(report);
  if (const auto worst = report.worst_noise_to_signal()) {
    text += fmt::format("worst-case noise-to-signal of the gradients: {:.4g}\n", *worst);
  }
  for (const std::string& note : report.notes) text += fmt::format("note: {}\n", note);
  return text + fmt::format("\n{} tensors compared\n", report.tensors);
}

std::string to_json(const SdcReport& report) {
  Json json;
  json["schema"] = "ttrace-sdc/2";
  json["verdict"] = name_of(same_or_different(report.same()));
  json["healthy"] = report.healthy;
  json["suspect"] = report.suspect;
  json["tensors"] = report.tensors;
  json["differing_tensors"] = report.differing_tensors;
  json["first"] = report.first ? to_object(*report.first) : Json(nullptr);
  json["origins"] = Json::array();
  for (const Origin& origin : report.origins) json["origins"].push_back(to_object(origin));
  json["submodules"] = Json::array();
  for (const TypeRow& row : rows_by_type(report)) {
    json["submodules"].push_back({{"type", row.type},
                                  {"direction", name_of(row.direction)},
                                  {"frequency_mean", row.frequency_sum / static_cast<double>(row.steps)},
                                  {"frequency_max", row.frequency_max},
                                  {"severity_max", row.severity_max},
                                  {"unbounded", row.unbounded},
                                  {"microsteps", row.steps},
                                  {"microsteps_hit", row.steps_hit},
                                  {"origins", row.origins}});
  }
  json["steps"] = Json::array();
  for (const TrainingStep& step : report.steps) {
    json["steps"].push_back({{"iteration", step.iteration},
                             {"gradient_noise", number(step.gradient_noise)},
                             {"gradient_norm", number(step.gradient_norm)},
                             {"parameter_drift", number(step.parameter_drift)},
                             {"parameter_norm", number(step.parameter_norm)}});
  }
  json["worst_noise_to_signal"] = number(report.worst_noise_to_signal());
  json["notes"] = report.notes;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string submodules_csv(const SdcReport& report) {
  std::string text =
      "submodule,direction,iteration,microbatch,submodules,differing,frequency,severity,unbounded,origins,ranks\n";
  for (const SubmoduleStep& step : report.submodules) {
    std::vector<std::int32_t> ranks;
    for (const auto& [rank, mismatch] : step.ranks) {
      if (mismatch.differing > 0) ranks.push_back(rank);
    }
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", csv_field(step.type), name_of(step.direction),
                        step.iteration, step.microbatch, step.submodules, step.differing, step.frequency, step.severity,
                        step.unbounded, step.origins, fmt::join(ranks, " "));
  }
  return text;
}

std::string ranks_csv(const SdcReport& report) {
  std::string text = "submodule,direction,iteration,microbatch,rank,elements,differing,frequency,severity\n";
  for (const SubmoduleStep& step : report.submodules) {
    for (const auto& [rank, mismatch] : step.ranks) {
      const auto elements = static_cast<double>(mismatch.elements);
      text += fmt::format("{},{},{},{},{},{},{},{},{}\n", csv_field(step.type), name_of(step.direction), step.iteration,
                          step.microbatch, rank, mismatch.elements, mismatch.differing,
                          mismatch.elements == 0 ? 0 : static_cast<double>(mismatch.differing) / elements,
                          mismatch.severity);
    }
  }
  return text;
}

std::string steps_csv(const SdcReport& report) {
  std::string text = "iteration,gradient_noise,gradient_norm,parameter_drift,parameter_norm\n";
  for (const TrainingStep& step : report.steps) {
    text += fmt::format("{},{},{},{},{}\n", step.iteration, optional_number(step.gradient_noise),
                        optional_number(step.gradient_norm), optional_number(step.parameter_drift),
                        optional_number(step.parameter_norm));
  }
  return text;
}

}  // namespace ttrace
