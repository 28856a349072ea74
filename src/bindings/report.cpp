// Checks and their reports, and the tolerances that they need.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "report/render.h"
#include "workflow/check.h"
#include "workflow/estimate_tolerance.h"
#include "workflow/options.h"

namespace nb = nanobind;

namespace ttrace::bindings {
namespace {

// A method without arguments that renders the report.
template <class Render>
auto rendered(Render render) {
  return [render](const Checked& checked) { return text_of(without_lock([&] { return render(checked); })); };
}

// Takes what the caller has set from keywords, each by the name that the table of options gives it.
class FromKeywords {
 public:
  explicit FromKeywords(const nb::kwargs& keywords) : keywords_(nb::cast<nb::dict>(keywords.attr("copy")())) {}

  template <class Member>
  void operator()(const Option& option, Member& member) {
    take(keyword_of(option), member);
  }

  void operator()(const Option& option, std::set<std::int32_t>& member) {
    std::vector<std::int32_t> values;
    take(keyword_of(option), values);
    member = {values.begin(), values.end()};
  }

  template <class Member>
  void take(const std::string& keyword, Member& member) {
    if (!keywords_.contains(keyword.c_str())) return;
    if (!nb::try_cast(keywords_[keyword.c_str()], member)) {
      throw nb::type_error(("check() has another type for the argument '" + keyword + "'").c_str());
    }
    nb::del(keywords_[keyword.c_str()]);
  }

  void require_all_taken() const {
    for (const auto& [keyword, value] : keywords_) {
      throw nb::type_error(
          ("check() got an unexpected keyword argument '" + nb::cast<std::string>(keyword) + "'").c_str());
    }
  }

 private:
  nb::dict keywords_;
};

Checked check_traces(const nb::kwargs& keywords) {
  CheckOptions options;
  FromKeywords from(keywords);
  visit_options(options, from);
  from.take("pictures", options.pictures);
  from.require_all_taken();
  return without_lock([&] { return check(options); });
}

// Returns the keywords of `check` that the table of options gives it, with what each means.
std::vector<std::pair<std::string, std::string>> check_keywords() {
  std::vector<std::pair<std::string, std::string>> keywords;
  const CheckOptions defaults;
  visit_options(defaults,
                [&](const Option& option, const auto&) { keywords.emplace_back(keyword_of(option), option.help); });
  return keywords;
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
  module.def("check", check_traces, nb::sig("def check(**options: object) -> Checked"));
  module.def("check_keywords", check_keywords);
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
