#include <fmt/format.h>

#include "base/count_of.h"
#include "base/outcome.h"
#include "sdc/report.h"
#include "sdc/tables.h"
#include "text/csv.h"
#include "text/table.h"

namespace ttrace {
namespace {

constexpr std::size_t kOriginsShown = 10;

std::string describe(const Origin& origin) {
  const Element element = first_element(*origin.pair);
  const Mismatch& mismatch = origin.pair->mismatch;
  return fmt::format("{}, rank {} at {}: healthy {:.6g} ({}), suspect {:.6g} ({}); {} of {} elements{}",
                     to_string(origin.id), origin.rank, to_string(element.index), element.healthy, element.healthy_bits,
                     element.suspect, element.suspect_bits, mismatch.differing, mismatch.elements,
                     origin.ranks > 1 ? fmt::format(", and on {} more ranks", origin.ranks - 1) : std::string());
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
      row.push_back(difference ? fmt::format("{:.4g}", noise_to_signal(*difference, *norm)) : "-");
    };
    add(step.gradient_noise, step.gradient_norm);
    add(step.parameter_drift, step.parameter_norm);
    table.add(std::move(row));
  }
  return "\n" + table.text();
}

std::string list_of_faulty_copies(const SdcReport& report) {
  if (report.faulty_copies.empty()) return {};
  std::string text = "\ncopies of one tensor that disagree:\n";
  for (std::size_t i = 0; i < std::min(kOriginsShown, report.faulty_copies.size()); ++i) {
    const FaultyCopies& faulty = report.faulty_copies[i];
    text += fmt::format("  {}: wrong on rank{} {}, {} of {} copies\n", to_string(faulty.id),
                        faulty.ranks.size() == 1 ? "" : "s", fmt::join(faulty.ranks, ", "), faulty.ranks.size(),
                        faulty.copies);
  }
  if (report.faulty_copies.size() > kOriginsShown) {
    text += fmt::format("  ... and {} more: --json has all\n", report.faulty_copies.size() - kOriginsShown);
  }
  return text;
}

std::string optional_number(const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; }

}  // namespace

std::string sentence_of(const SdcReport& report) {
  if (report.same()) return "equal to the bit";
  return fmt::format("{} of {} tensors", report.differing_tensors, report.tensors);
}

std::string to_text(const SdcReport& report) {
  std::string text = fmt::format("{}: {}\n", name_of(same_or_different(report.same())), sentence_of(report));
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
  text += list_of_faulty_copies(report);
  if (const auto worst = report.worst_noise_to_signal()) {
    text += fmt::format("worst-case noise-to-signal of the gradients: {:.4g}\n", *worst);
  }
  for (const std::string& note : report.notes) text += fmt::format("note: {}\n", note);
  return text + fmt::format("\n{} compared\n", count_of(report.tensors, "tensor"));
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
  std::string text =
      "iteration,gradient_noise,gradient_norm,parameter_drift,parameter_norm,gradient_nonfinite,"
      "parameter_nonfinite\n";
  for (const TrainingStep& step : report.steps) {
    text += fmt::format("{},{},{},{},{},{},{}\n", step.iteration, optional_number(step.gradient_noise),
                        optional_number(step.gradient_norm), optional_number(step.parameter_drift),
                        optional_number(step.parameter_norm), step.gradient_nonfinite, step.parameter_nonfinite);
  }
  return text;
}

}  // namespace ttrace
