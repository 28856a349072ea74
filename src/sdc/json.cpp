#include "sdc/json.h"

#include <cmath>

#include "base/outcome.h"
#include "sdc/tables.h"

namespace ttrace {
namespace {

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

Json to_object(const FaultyCopies& faulty) {
  return {{"name", faulty.id.name},
          {"kind", name_of(faulty.id.kind)},
          {"iteration", faulty.id.iteration},
          {"ranks", faulty.ranks},
          {"copies", faulty.copies}};
}

}  // namespace

Json to_object(const SdcReport& report) {
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
                             {"parameter_norm", number(step.parameter_norm)},
                             {"gradient_nonfinite", step.gradient_nonfinite},
                             {"parameter_nonfinite", step.parameter_nonfinite}});
  }
  json["faulty_copies"] = Json::array();
  for (const FaultyCopies& faulty : report.faulty_copies) json["faulty_copies"].push_back(to_object(faulty));
  const std::optional<double> worst = report.worst_noise_to_signal();
  json["worst_noise_to_signal"] = number(worst);
  json["worst_noise_is_infinite"] = worst && !std::isfinite(*worst);
  json["lock_step"] = report.lock_step;
  json["notes"] = report.notes;
  return json;
}

std::string to_json(const SdcReport& report) {
  return to_object(report).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ttrace
