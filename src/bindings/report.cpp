// Checks and their reports, and the tolerances that they need.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "report/render.h"
#include "workflow/check.h"
#include "workflow/estimate_tolerance.h"

namespace nb = nanobind;

namespace ttrace::bindings {
namespace {

// A method without arguments that renders the report.
template <class Render>
auto rendered(Render render) {
  return [render](const Checked& checked) { return text_of(without_lock([&] { return render(checked); })); };
}

Checked check_traces(const CheckOptions& options) {
  return without_lock([&] { return check(options); });
}

std::string estimate_tolerances(const EstimateToleranceOptions& options, const std::string& output) {
  return without_lock([&] {
    const ToleranceFile file = estimate_tolerance(options);
    write_tolerances(file, output);
    return summary_of(file, output);
  });
}

}  // namespace

void bind_reports(nb::module_& module) {
  nb::class_<Checked>(module, "Checked")
      .def("json", rendered([](const Checked& checked) { return to_json(checked.report); }))
      .def("passed_json", rendered([](const Checked& checked) { return to_json(checked.report.passed); }))
      .def("sentence", rendered([](const Checked& checked) { return sentence_of(checked.report); }))
      .def("command", rendered([](const Checked& checked) { return checked.report.advice.all_findings; }))
      .def("html", rendered([](const Checked& checked) { return to_html(checked.report, checked.page); }))
      .def(
          "text",
          [](const Checked& checked, bool all) {
            TextOptions options;
            if (all) options.findings = checked.report.findings.size();
            return text_of(without_lock([&] { return to_text(checked.report, options); }));
          },
          nb::arg("all"));
  module.def(
      "check",
      [](std::string reference, std::string candidate, std::string annotations, std::vector<std::string> settings,
         std::string axes, std::string tolerance, std::string only, bool strict, bool checksums, bool accept_overrides,
         bool allow_same_run, bool pictures, int threads) {
        CheckOptions options;
        options.reference = std::move(reference);
        options.candidate = std::move(candidate);
        options.annotations = {std::move(annotations), std::move(settings), std::move(axes)};
        options.tolerance = std::move(tolerance);
        options.only = std::move(only);
        options.strict = strict;
        options.checksums = checksums;
        options.accept_overrides = accept_overrides;
        options.allow_same_run = allow_same_run;
        options.pictures = pictures;
        options.threads = threads;
        return check_traces(options);
      },
      nb::kw_only(), nb::arg("reference"), nb::arg("candidate"), nb::arg("annotations"), nb::arg("settings"),
      nb::arg("axes"), nb::arg("tolerance"), nb::arg("only"), nb::arg("strict"), nb::arg("checksums"),
      nb::arg("accept_overrides"), nb::arg("allow_same_run"), nb::arg("pictures"), nb::arg("threads"));
  module.def(
      "estimate_tolerance",
      [](std::string reference, const std::vector<std::string>& perturbed, const std::string& rerun,
         std::string annotations, std::vector<std::string> settings, std::string axes, double margin,
         const std::string& output) {
        EstimateToleranceOptions options;
        options.reference = std::move(reference);
        options.perturbed.assign(perturbed.begin(), perturbed.end());
        options.rerun = rerun;
        options.annotations = {std::move(annotations), std::move(settings), std::move(axes)};
        options.margin = margin;
        return estimate_tolerances(options, output);
      },
      nb::kw_only(), nb::arg("reference"), nb::arg("perturbed"), nb::arg("rerun"), nb::arg("annotations"),
      nb::arg("settings"), nb::arg("axes"), nb::arg("margin"), nb::arg("output"));
}

}  // namespace ttrace::bindings
