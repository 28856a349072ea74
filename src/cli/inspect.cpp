// `ttrace inspect`: what is in a trace?
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <system_error>

#include "base/error.h"
#include "cli/commands.h"
#include "inspect/inspection.h"
#include "text/readable.h"
#include "workflow/saved.h"

namespace ttrace::cli {
namespace {

struct InspectOptions {
  std::string trace, python;
  std::string tensor;
  bool stats = false;
  bool verify = false;
  bool json = false;
};

int print_verification(const std::vector<RankSelection>& selection) {
  const ChecksumCounts result = verify_checksums(selection, [](const RankTrace& rank, const Entry& entry) {
    fmt::print("{}: {}: the bytes are not those that were recorded\n", printable(rank.path.string()),
               to_string(entry.id));
  });
  fmt::print(
      "\n{} tensor{} read, {}: {}\n", readable_count(static_cast<std::uint64_t>(result.tensors)),
      result.tensors == 1 ? "" : "s", readable_bytes(result.bytes),
      result.mismatches == 0 ? "every checksum agrees" : fmt::format("{} of them not as recorded", result.mismatches));
  return result.mismatches == 0 ? kExitSame : kExitDifferent;
}

int print_trace(const InspectOptions& options) {
  const Trace trace = read_run_as_it_is(options.trace, {options.python});
  const std::vector<RankSelection> selection = select_tensors(trace, options.tensor);
  if (options.json) {
    return print_json(trace, selection, options.stats, options.verify, stdout) == 0 ? kExitSame : kExitDifferent;
  }
  print_summary(trace, stdout);
  if (options.verify && !options.stats) return print_verification(selection);
  fmt::print("\n");
  print_table(selection, options.stats, /*with_mappings=*/!options.tensor.empty(), stdout);
  return options.verify ? print_verification(selection) : kExitSame;
}

int run(const InspectOptions& options) {
  int code = kExitCouldNotLook;
  bool written = true;
  try {
    code = print_trace(options);
  } catch (const std::system_error&) {
    written = false;  // fmt's way of saying it
  }
  written = std::fflush(stdout) == 0 && written;
  // A reader that has seen enough (`| head`) is no failure, where SIGPIPE has not ended us already.
  if (!written && errno != EPIPE) throw InputError("standard output: can't be written; expected room for the listing");
  return code;
}

}  // namespace

void add_inspect(CLI::App& app, Run& run_out) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* inspect = app.add_subcommand("inspect", "Show what is in a trace");
  inspect->add_option("TRACE", options->trace, "Directory of the trace, or a checkpoint")->required();
  inspect
      ->add_option("--tensor", options->tensor,
                   "Only tensors whose name matches this glob or dotted suffix, with their recorded mappings")
      ->type_name("PATTERN");
  inspect->add_flag("--stats", options->stats, "Norm, min, max and counts of NaN and Inf of each tensor");
  inspect->add_flag("--verify", options->verify,
                    "Read every tensor and compare its checksum; lists what differs, not the tensors");
  inspect->add_flag("--json", options->json, "JSON on stdout");
  add_option(*inspect, option::kPython, options->python);
  inspect->footer(R"(Examples:
  ttrace inspect reference
  ttrace inspect candidate --stats --tensor 'layers.0.**'
  ttrace inspect candidate --verify

JSON: {"schema": "ttrace-inspect/1", "directory", "run_id", "world_size",
"missing_ranks": [], "axes": [["tp", 2]], "views": [], "aliases": {"sp": "tp"},
"compute_dtype", "provenance": {}, "ranks": [{"rank", "file", "complete",
"coordinates": {"tp": 0}, "tensors": [{"iteration", "microbatch" (null where
there is none), "chunk", "pass", "kind", "name", "dtype", "shape": [], "bytes",
"order", "module", where one was recorded "mapping" (src/base/mapping.h),
where it is a sketch "sketch": {"edges": []} (of its cells; "bytes" are the
sketch's), with --stats "statistics": {"norm", "min", "max", "mean", "nan",
"inf", "zero"}, and with --verify "checksum_ok"}]}]}

Exit codes: 0 done, 1 a checksum differs (--verify), 2 the trace can't be read.)");
  inspect->callback([options, &run_out] { run_out = [options] { return run(*options); }; });
}

}  // namespace ttrace::cli
