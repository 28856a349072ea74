// `ttrace localize`: which of the modules that a check has named are wrong by themselves?
#include "workflow/localize.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "terminal/report_files.h"
#include "ttrace/diagnose/localization.h"
#include "ttrace/error.h"
#include "ttrace/load/trace_reader.h"
#include "ttrace/mesh.h"
#include "workflow/collect.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// What the candidate's trace says of its own collection.
class Origin {
 public:
  explicit Origin(const Trace& trace)
      : trace_(trace), provenance_(Json::parse(trace.provenance, nullptr, /*allow_exceptions=*/false)) {}

  std::vector<std::string> command() const {
    const Json words = field("command");
    std::vector<std::string> command;
    for (const Json& word : words) {
      if (word.is_string()) command.push_back(word.get<std::string>());
    }
    if (!command.empty() && command.size() == words.size()) return command;
    throw InputError(fmt::format("{}: does not say by what command it was collected; expected one after --",
                                 trace_.directory.string()));
  }

  // As --axes had them; empty where the framework itself has told.
  std::string axes() const {
    const Json axes = field("axes");
    return axes.is_string() ? axes.get<std::string>() : to_string(trace_.mesh);
  }

  fs::path directory() const {
    const Json directory = field("directory");
    return directory.is_string() ? directory.get<std::string>() : std::string();
  }

 private:
  Json field(const char* key) const { return provenance_.is_object() ? provenance_.value(key, Json()) : Json(); }

  const Trace& trace_;
  const Json provenance_;
};

}  // namespace

std::optional<CollectOptions> second_run_of(const CheckOptions& check, const Report& first, std::string& reason) {
  const SecondPass plan = plan_second_pass(first);
  reason = plan.reason;
  if (!plan.modules) return std::nullopt;
  const Trace candidate = read_trace(check.candidate);
  const Origin origin(candidate);
  CollectOptions run;
  run.annotations = check.annotations;
  run.iterations = iterations_of(candidate);
  run.axes = origin.axes();
  run.command = origin.command();
  run.working_directory = origin.directory();
  run.stdout_to_stderr = true;  // where ours has the report
  run.rewrite.inject = check.reference;
  run.rewrite.layout = check.candidate;
  if (plan.parameters) run.rewrite.inject_params = check.reference;
  return run;
}

void add_second_run(Report& report, const CheckOptions& check, const fs::path& trace) {
  CheckOptions again = check;
  again.candidate = trace.string();
  add_second_run(report, ttrace::check(again).report);
}

}  // namespace ttrace
