// Targets that forge the files of a trace and have the program read them.

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include "forgery.h"
#include "load/trace_reader.h"
#include "numeric/xxh3.h"
#include "support/temporary_directory.h"
#include "support/trace_builder.h"
#include "target.h"
#include "workflow/check.h"

namespace ttrace::fuzz {
namespace {

namespace fs = std::filesystem;
using test::TraceBuilder;

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_bytes(const fs::path& path, std::string_view bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// Different in every element, so that a part that lies elsewhere is another value.
double value_at(std::int64_t i) { return 1 + 0.25 * static_cast<double>((i * 37 + 11) % 101); }

// Fills the run; each rank holds its rows or columns. `ranks` is 1 in the reference.
void fill(TraceBuilder& run, int ranks, const std::string& run_id) {
  const auto part = [ranks](std::int64_t cols, int dim) {
    return [=](std::int32_t rank, std::int64_t i) {
      if (ranks == 1) return value_at(i);
      if (dim == 0) return value_at(rank * 4 * cols + i);
      const std::int64_t width = cols / 2;
      return value_at(i / width * cols + rank * width + i % width);
    };
  };
  const auto whole = [](std::int32_t, std::int64_t i) { return value_at(i); };
  const auto axis = [&](const std::string& placement) {
    return ranks == 1 ? "" : R"({"axes": [{"axis": "tp", "size": 2, "placement": )" + placement + "}]}";
  };
  const std::string rows = axis(R"("shard", "dim": 0)"), columns = axis(R"("shard", "dim": 1)"),
                    replicate = axis(R"("replicate")");
  const std::int64_t half = ranks == 1 ? 1 : 2;
  run.run_id(run_id).compute_dtype("float32");
  if (ranks == 2) run.axes("tp=2");
  const auto add = [&](const std::string& name, Kind kind, std::int32_t microbatch, Dtype dtype, const Shape& shape,
                       const test::ElementValue& values, const std::string& mapping) {
    test::TensorSpec spec;
    spec.id = {0, microbatch, 0, Pass::kForward, kind, name};
    spec.dtype = dtype;
    spec.shape = shape;
    spec.values = values;
    spec.mapping = mapping;
    run.tensor(std::move(spec));
  };
  const Dtype fp32 = Dtype::kFloat32;
  add("layers.0.mlp.weight", Kind::kParam, kNoMicrobatch, Dtype::kBFloat16, {8 / half, 4}, part(4, 0), rows);
  add("layers.0", Kind::kInput, 0, Dtype::kInt64, {4}, whole, replicate);
  add("layers.0.mlp", Kind::kOutput, 0, fp32, {4, 8 / half}, part(8, 1), columns);
  add("layers.0.norm:1#1", Kind::kOutput, 0, fp32, {3}, whole, replicate);
  add("loss", Kind::kScalar, 0, fp32, {}, whole, replicate);
  add("layers.0.mlp", Kind::kGradOutput, 0, fp32, {4, 8 / half}, part(8, 1), columns);
  add("layers.0.mlp.weight", Kind::kMainGrad, kNoMicrobatch, fp32, {8 / half, 4}, part(4, 0), rows);
}

// A file that is forged, and what it was.
struct Original {
  fs::path path;
  std::string bytes;
  Forgery forgery;
  std::map<Identity, Content> contents;

  explicit Original(const fs::path& file)
      : path(file), bytes(read_bytes(file)), forgery(bytes), contents(contents_of(bytes)) {}
};

struct Traces {
  TraceBuilder reference_builder, candidate_builder;
  fs::path reference, candidate;
  std::vector<Original> files;

  Traces() {
    fill(reference_builder, 1, "reference");
    fill(candidate_builder, 2, "candidate");
    reference = reference_builder.write();
    candidate = candidate_builder.write();
    for (const fs::path& path :
         {reference / "rank-00000.h5", candidate / "rank-00000.h5", candidate / "rank-00001.h5"}) {
      files.emplace_back(path);
    }
  }
};

Report check_both(const Traces& traces) {
  CheckOptions options;
  options.reference = traces.reference;
  options.candidate = traces.candidate;
  options.threads = 1;
  return check(options).report;
}

const Traces& traces() {
  static const Traces both;
  static const bool same = check_both(both).verdict() == RunVerdict::kSame;
  if (!same) fail_promise("the traces that inputs change are not the same as they are");
  return both;
}

// Says what is another value in `now` though a check called the two the same; empty where nothing is. `unseen` tensors
// may not be there.
std::string difference_of(const std::map<Identity, Content>& before, const std::map<Identity, Content>& now,
                          std::int64_t unseen) {
  for (const auto& [identity, content] : before) {
    const auto found = now.find(identity);
    const std::string& name = std::get<4>(identity);
    if (found == now.end() && --unseen < 0) return name + " is not there";
    if (found != now.end() && !(found->second == content)) return name + " differs";
  }
  return "";
}

// Returns how many tensors a report says were not compared: a statement in the trace may be of any number of them.
std::int64_t not_compared(const Report& report) {
  return report.totals.counts.not_seen > 0 ? std::numeric_limits<std::int64_t>::max() : report.totals.waived;
}

std::string forge(const Original& original, FuzzedDataProvider& input, const Original& other) {
  Forgery forgery = original.forgery;
  const auto how = input.ConsumeIntegral<std::uint8_t>();
  for (int edits = how % 4; edits >= 0 && input.remaining_bytes() > 0; --edits) forgery.edit(input, other.forgery);
  std::string file = how & 4 && how & 8 ? original.bytes : forgery.file(/*honest=*/(how & 16) == 0);
  if (how & 8) edit_bytes(file, input);
  return file;
}

// A record of a journal, framed and summed as the writer does.
std::string framed(std::string_view payload) {
  const auto length = static_cast<std::uint32_t>(payload.size());
  const std::uint64_t checksum = XXH3_64bits(payload.data(), payload.size());
  std::string record(reinterpret_cast<const char*>(&length), sizeof length);
  record.append(reinterpret_cast<const char*>(&checksum), sizeof checksum);
  return record.append(payload);
}

// Holds what a rank leaves that is killed: its data, no header, and a journal.
struct Killed {
  TraceBuilder builder;
  std::string data;
  std::vector<std::string> payloads;

  Killed() {
    fill(builder, 1, "killed");
    const fs::path directory = builder.crashed_rank(0).write();
    data = read_bytes(directory / "rank-00000.h5");
    const std::string journal = read_bytes(directory / "rank-00000.journal");
    for (std::size_t at = 0; at + 12 <= journal.size();) {
      std::uint32_t length = 0;
      std::memcpy(&length, journal.data() + at, sizeof length);
      payloads.push_back(journal.substr(at + 12, length));
      at += 12 + length;
    }
  }
};

std::string forged_journal(const Killed& killed, FuzzedDataProvider& input) {
  std::vector<std::string> payloads = killed.payloads;
  for (int edits = input.ConsumeIntegral<std::uint8_t>() % 4; edits >= 0 && !payloads.empty(); --edits) {
    std::string& payload = payloads[input.ConsumeIntegral<std::uint8_t>() % payloads.size()];
    const std::string bytes = input.ConsumeRandomLengthString(100);
    const std::size_t at = payload.empty() ? 0 : input.ConsumeIntegral<std::uint16_t>() % payload.size();
    payload.replace(at, input.ConsumeBool() ? bytes.size() : 0, bytes);
  }
  std::string journal;
  for (const std::string& payload : payloads) journal += framed(payload);
  if (input.ConsumeBool()) edit_bytes(journal, input);
  return journal;
}

}  // namespace

Outcome fuzz_reader(std::string_view bytes) {
  static const test::TemporaryDirectory directory;
  static const Original original = [] {
    write_bytes(directory.path() / "rank-00000.h5", traces().files[0].bytes);
    return Original(directory.path() / "rank-00000.h5");
  }();
  static const Killed killed;
  FuzzedDataProvider input(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  const fs::path journal = fs::path(original.path).replace_extension(".journal");
  const bool from_journal = input.ConsumeIntegral<std::uint8_t>() >= 192;
  const std::string file = from_journal ? killed.data : forge(original, input, traces().files[1]);
  write_bytes(original.path, file);
  if (from_journal) write_bytes(journal, forged_journal(killed, input));
  if (!from_journal) fs::remove(journal);

  const Trace trace = read_trace(original.path.parent_path());
  bool whole = true;
  for (const RankTrace& rank : trace.ranks) {
    if (from_journal && rank.complete) fail_silent_pass("a rank that was killed is called complete");
    for (const Entry& entry : rank.entries) whole = verify_checksum(rank, entry) && whole;
  }
  digest_of(trace);
  const bool same = whole && contents_of(file) == original.contents;
  return same ? Outcome::kSame : Outcome::kFound;
}

Outcome fuzz_check(std::string_view bytes) {
  const Traces& both = traces();
  FuzzedDataProvider input(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  const std::size_t which = input.ConsumeIntegral<std::uint8_t>() % both.files.size();
  const Original& original = both.files[which];
  const std::string file = forge(original, input, both.files[(which + 1) % both.files.size()]);
  write_bytes(original.path, file);
  struct Restore {
    const Original& original;
    ~Restore() { write_bytes(original.path, original.bytes); }
  } const restore{original};
  const Report report = check_both(both);
  if (report.verdict() != RunVerdict::kSame) return Outcome::kFound;
  const std::string difference = difference_of(original.contents, contents_of(file), not_compared(report));
  if (!difference.empty()) fail_silent_pass(difference);
  return Outcome::kSame;
}

}  // namespace ttrace::fuzz
