// Tokens at experts: compared by their recorded identity, in whatever order they were dispatched.
#include <doctest/doctest.h>

#include "identify/tokens.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

// Token t has the hidden state (t + 1, -t - 1).
constexpr const char* kRules =
    "mlp:\n  input: {}\n"
    "mlp.router:\n  output: {}\n"
    "experts.*:0:\n  input: {rows: {ids: 'experts.*:1', of: mlp, logits: mlp.router}}\n"
    "experts.*:1:\n  input: local\n"
    "parallelism: {experts: {axis: ep, layers: mlp.experts}}\n";
constexpr std::int64_t kTokens = 4;

struct Row {
  std::int64_t rank, token;  // where it came from
  float value;
};

void add_ids(Trace& trace, std::size_t rank, const std::string& name, const std::vector<Row>& rows,
             std::int32_t batch = 0) {
  std::vector<std::int64_t> ids;
  for (const Row& row : rows) ids.insert(ids.end(), {row.rank, row.token});
  std::vector<float> bits(ids.size() * 2);
  std::memcpy(bits.data(), ids.data(), ids.size() * sizeof(std::int64_t));
  add_tensor(trace, rank, tensor_id(Kind::kInput, name, batch), {static_cast<std::int64_t>(bits.size())}, bits);
  trace.ranks[rank].entries.back().dtype = Dtype::kInt64;
  trace.ranks[rank].entries.back().shape = {static_cast<std::int64_t>(rows.size()), 2};
}

void add_expert(Trace& trace, std::size_t rank, int expert, const std::vector<Row>& rows, std::int32_t batch = 0) {
  const std::string name = "mlp.experts." + std::to_string(expert);
  std::vector<float> values;
  for (const Row& row : rows) values.insert(values.end(), {row.value, -row.value});
  add_tensor(trace, rank, tensor_id(Kind::kInput, name + ":0", batch), {static_cast<std::int64_t>(rows.size()), 2},
             values);
  add_ids(trace, rank, name + ":1", rows, batch);
}

void add_source(Trace& trace, std::size_t rank, std::int32_t local, const std::vector<float>& logits) {
  const auto global = static_cast<float>(10 * static_cast<int>(rank) + 1);
  std::vector<float> hidden;
  for (int t = 0; t < kTokens; ++t) {
    hidden.insert(hidden.end(), {global + static_cast<float>(t), -global - static_cast<float>(t)});
  }
  add_tensor(trace, rank, tensor_id(Kind::kInput, "mlp", local), {kTokens, 1, 2}, hidden);
  add_tensor(trace, rank, tensor_id(Kind::kOutput, "mlp.router", local), {kTokens, 2}, logits);
}

// Of token 1 the two experts are a near tie.
const std::vector<float> kLogits = {1, 0, 0.5f, 0.4999f, 0, 1, 0, 1};

// One process: tokens 0 and 1 go to expert 0, 2 and 3 to expert 1.
Trace reference() {
  Trace trace = mesh_trace("", 1);
  add_source(trace, 0, 0, kLogits);
  add_expert(trace, 0, 0, {{0, 0, 1}, {0, 1, 2}});
  add_expert(trace, 0, 1, {{0, 2, 3}, {0, 3, 4}});
  return trace;
}

// The same on two ranks, each of which has an expert and half of the experts' tokens come the other way round.
Trace candidate(const std::vector<Row>& first, const std::vector<Row>& second) {
  Trace trace = mesh_trace("ep=2", 2);
  for (const std::size_t rank : {0, 1}) add_source(trace, rank, 0, kLogits);
  // Both ranks hold the same tokens: copies.
  auto& bytes =
      std::const_pointer_cast<MemoryFile>(std::static_pointer_cast<const MemoryFile>(trace.ranks[1].file))->bytes;
  std::memcpy(bytes.data(), trace.ranks[0].file->data(), 8 * sizeof(float));
  add_expert(trace, 0, 0, first);
  add_expert(trace, 1, 0, second);
  return trace;
}

ToleranceFile tolerances(double of_logits) {
  ToleranceFile file;
  file.tensors[{Kind::kOutput, "mlp.router"}].allowed = of_logits;
  return file;
}

Report judged(const Trace& candidate_trace, double of_logits, const Trace& reference_trace = reference()) {
  const Alignment a = align(reference_trace, annotations(kRules), {});
  const Alignment b = align(candidate_trace, annotations(kRules), layout_of(a));
  REQUIRE(a.findings.empty());
  const Matching matching = match(a, b);
  const ToleranceFile file = tolerances(of_logits);
  return judge_all(a, matching, compare(matching.pairs, {1, {}, false}), &file);
}

}  // namespace

TEST_SUITE_BEGIN("align");

TEST_CASE("tokens that were dispatched in another order, from another rank, are the same") {
  const Report report = judged(candidate({{1, 1, 2}, {0, 0, 1}}, {{0, 3, 4}, {1, 2, 3}}), 1e-6);
  CHECK(findings_in(report).empty());
  CHECK(report.totals.counts.pass == 4);  // two experts' inputs, the layer's input, the logits
  CHECK(report.totals.coverage == 1);
  CHECK(report.totals.waived == 2);  // the identities
}

TEST_CASE("the tokens of a later micro-batch come after what its router made") {
  Trace trace = mesh_trace("", 1);
  for (const std::int32_t batch : {0, 1, 2}) {
    add_source(trace, 0, batch, kLogits);
    add_expert(trace, 0, 0, {{0, 0, 1}, {0, 1, 2}}, batch);
  }
  const Alignment aligned = align(trace, annotations(kRules), {});
  for (const std::int32_t batch : {0, 1, 2}) {
    CAPTURE(batch);
    CHECK(aligned.tensors.at(tensor_id(Kind::kInput, "mlp.experts.0:0", batch)).order >
          aligned.tensors.at(tensor_id(Kind::kOutput, "mlp.router", batch)).order);
  }
}

TEST_CASE("the tokens of a second call are those of the second call around it") {
  CHECK(is_nearer("mlp.experts.0:0#1", "mlp#1", "mlp"));
  CHECK_FALSE(is_nearer("mlp.experts.0:0#1", "mlp", "mlp#1"));
  CHECK_FALSE(is_nearer("layers.1.mlp#1", "layers.0.mlp#1", "layers.1.mlp"));
}

TEST_CASE("a token with another's value is found at the expert that got it") {
  CHECK(findings_in(judged(candidate({{0, 0, 1}, {0, 1, 9}}, {{0, 2, 3}, {0, 3, 4}}), 1e-6)) ==
        std::vector<std::string>{"mlp.experts.0:0 input: no-tolerance"});
}

TEST_CASE("a near tie is noted and is no failure") {
  const Report report = judged(candidate({{0, 0, 1}}, {{0, 1, 2}, {0, 2, 3}, {0, 3, 4}}), 1e-3);
  CHECK(findings_in(report).empty());
  CHECK(report.same());
  REQUIRE_FALSE(report.notes.empty());
  CHECK(std::any_of(report.notes.begin(), report.notes.end(), [](const std::string& note) {
    return note.starts_with("re-routed by a near tie, compared no further: 1 tokens: token 1 of mlp.router");
  }));
}

TEST_CASE("a token that went elsewhere without a near tie is a failure") {
  // The logits may move by 1e-6, and would have to by 1e-4.
  const Report report = judged(candidate({{0, 0, 1}}, {{0, 1, 2}, {0, 2, 3}, {0, 3, 4}}), 1e-6);
  CHECK(findings_in(report) == std::vector<std::string>{"mlp.router output: routing-differs"});
  CHECK(report.findings[0].message.find("token 1 to 1 instead of 0") != std::string::npos);
  CHECK_FALSE(report.same());
  // A token that no expert got is none, whatever the tolerance.
  CHECK_FALSE(judged(candidate({{0, 0, 1}}, {{0, 2, 3}, {0, 3, 4}}), 0.5).same());
}

TEST_CASE("a token that the candidate alone sent where its logits are highest is a failure") {
  // The reference chooses among groups of experts, and the candidate forgets them: token 0 has the logits 1 and 0.
  Trace by_groups = mesh_trace("", 1);
  add_source(by_groups, 0, 0, kLogits);
  add_expert(by_groups, 0, 0, {{0, 1, 2}});
  add_expert(by_groups, 0, 1, {{0, 0, 1}, {0, 2, 3}, {0, 3, 4}});
  const Trace by_logits = candidate({{0, 0, 1}, {0, 1, 2}}, {{0, 2, 3}, {0, 3, 4}});
  const Report report = judged(by_logits, 1e-3, by_groups);
  CHECK(findings_in(report) == std::vector<std::string>{"mlp.router output: routing-differs"});
  CHECK(report.findings[0].message.find("token 0 to 0 instead of 1") != std::string::npos);
}

TEST_CASE("identities that are not there, or of tokens that there are not, are findings") {
  Trace trace = candidate({{0, 0, 1}, {0, 1, 2}}, {{0, 2, 3}, {0, 3, 4}});
  trace.ranks[1].entries.pop_back();
  const ModelLayout layout{{{"mlp.experts", 2}}};
  CHECK(
      only_finding(align(trace, annotations(kRules), layout)).message ==
      "mlp.experts.1:0 input, iteration 0, micro-batch 0: rank 1 has recorded no 'experts.*:1' that says which tokens "
      "these are");
  const Trace strange = candidate({{0, 0, 1}, {7, 1, 2}}, {{0, 2, 3}, {0, 3, 4}});
  CHECK(only_finding(align(strange, annotations(kRules), layout)).message ==
        "mlp.experts.0:0 input, iteration 0, micro-batch 0: row 1 on rank 0 is "
        "said to be row 1 of 'mlp' on rank 7, which there is not");
}

namespace {

// No identities are recorded but what the routers chose, and whose tokens came to a rank.
constexpr const char* kRoutedRules =
    "mlp:\n  input: {}\n"
    "mlp.router:0:\n  output: {}\n"
    "mlp.router:1:\n  output: local\n"
    "experts.*:0:\n  input: {rows: &rows {routing: 'mlp.router:1', sources: 'all:sources', of: mlp, "
    "logits: 'mlp.router:0'}}\n"
    "mlp.all:0:\n  input: {rows: *rows}\n"
    "mlp.all:sources:\n  input: local\n"
    "parallelism: {experts: {axis: ep, layers: mlp.experts}}\n";
// Tokens 0 and 1 go to expert 0, tokens 1 to 3 to expert 1.
const std::vector<char> kMap = {1, 0, 1, 1, 0, 1, 0, 1};
const std::vector<std::int64_t> kChoices = {0, 0, 1, 0, 1, 1, 1, 1};

// Adds a tensor of another type than float.
template <typename Value>
void add_values(Trace& trace, std::size_t rank, TensorId id, Dtype dtype, const Shape& shape,
                const std::vector<Value>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  std::vector<float> bits((bytes.size() + sizeof(float) - 1) / sizeof(float));
  std::ranges::copy(bytes, std::as_writable_bytes(std::span(bits)).begin());
  add_tensor(trace, rank, std::move(id), {static_cast<std::int64_t>(bits.size())}, bits);
  trace.ranks[rank].entries.back().dtype = dtype;
  trace.ranks[rank].entries.back().shape = shape;
}

// Adds the rows of tokens, whose hidden states are (first, 0), (first + 1, 0) and so on.
void add_rows(Trace& trace, std::size_t rank, std::int32_t local, const std::string& name,
              const std::vector<float>& tokens) {
  std::vector<float> values;
  for (const float token : tokens) values.insert(values.end(), {token, 0});
  add_tensor(trace, rank, tensor_id(Kind::kInput, name, local), {static_cast<std::int64_t>(tokens.size()), 2}, values);
}

// Adds a micro-batch's router, with the tokens from `first` on.
void add_router(Trace& trace, std::size_t rank, std::int32_t local, float first,
                const std::vector<std::int64_t>& sources, bool as_choices = false) {
  add_rows(trace, rank, local, "mlp", {first, first + 1, first + 2, first + 3});
  add_tensor(trace, rank, tensor_id(Kind::kOutput, "mlp.router:0", local), {kTokens, 2}, kLogits);
  const TensorId id = tensor_id(Kind::kOutput, "mlp.router:1", local);
  if (as_choices) {
    add_values(trace, rank, id, Dtype::kInt64, {kTokens, 2}, kChoices);
  } else {
    add_values(trace, rank, id, Dtype::kBool, {kTokens, 2}, kMap);
  }
  if (sources.empty()) return;
  add_values(trace, rank, tensor_id(Kind::kInput, "mlp.all:sources", local), Dtype::kInt64,
             {static_cast<std::int64_t>(sources.size())}, sources);
}

// One process, two micro-batches: tokens 1 to 4, and 11 to 14.
Trace routed_reference() {
  Trace trace = mesh_trace("", 1);
  for (const int microbatch : {0, 1}) {
    const float first = 10 * static_cast<float>(microbatch) + 1;
    add_router(trace, 0, microbatch, first, {0});
    add_rows(trace, 0, microbatch, "mlp.all:0", {first, first + 1, first + 1, first + 2, first + 3});
    add_rows(trace, 0, microbatch, "mlp.experts.0:0", {first, first + 1});
    add_rows(trace, 0, microbatch, "mlp.experts.1:0", {first + 1, first + 2, first + 3});
  }
  return trace;
}

// Two ranks with a micro-batch and an expert each, to which the tokens of both come in the order of `sources`.
Trace routed_candidate(const std::vector<std::int64_t>& sources, const std::vector<float>& first,
                       const std::vector<float>& second) {
  Trace trace = mesh_trace("dp=2/ep=2,edp=1", 2);
  for (const std::size_t rank : {0, 1}) {
    add_router(trace, rank, 0, 10 * static_cast<float>(rank) + 1, sources);
    add_rows(trace, rank, 0, "mlp.all:0", rank == 0 ? first : second);
    add_rows(trace, rank, 0, "mlp.experts.0:0", rank == 0 ? first : second);
  }
  return trace;
}

}  // namespace

TEST_CASE("without identities an expert's rows are the tokens that the sources' routers sent there") {
  const Report report =
      checked(routed_reference(), routed_candidate({1, 0}, {11, 12, 1, 2}, {12, 13, 14, 2, 3, 4}), kRoutedRules);
  CHECK(findings_in(report).empty());
  CHECK(report.totals.counts.pass ==
        10);  // in two micro-batches two experts' inputs, both at once, the layer's, the logits
  CHECK(report.totals.coverage == 1);
}

TEST_CASE("a row that is not the token which the router sent there is found at the expert") {
  const Report report =
      checked(routed_reference(), routed_candidate({0, 1}, {1, 2, 11, 12}, {2, 4, 3, 12, 13, 14}), kRoutedRules);
  CHECK(findings_in(report) ==
        std::vector<std::string>{"mlp.all:0 input: exceeds-tolerance", "mlp.experts.1:0 input: exceeds-tolerance"});
}

TEST_CASE("an expert that has lost a token of those that the routers sent there is a finding") {
  const Trace trace = routed_candidate({0, 1}, {1, 2, 11}, {2, 3, 4, 12, 13, 14});
  const Alignment alignment = align(trace, annotations(kRoutedRules), {{{"mlp.experts", 2}}});
  REQUIRE(alignment.findings.size() == 4);  // of two tensors, in two micro-batches
  CHECK(
      alignment.findings[2].message ==
      "mlp.experts.0:0 input, iteration 0, micro-batch 0: rank 0 has 3 rows here, and by 'mlp.router:1' of ranks 0, 1 "
      "it should have got 4");
}

TEST_CASE("rows that nobody has told apart are not seen, and no failure") {
  const auto without_sources = [](Trace trace) {
    for (RankTrace& rank : trace.ranks) {
      std::erase_if(rank.entries, [](const Entry& entry) { return entry.id.name == "mlp.all:sources"; });
    }
    return trace;
  };
  const Trace candidate = without_sources(routed_candidate({0, 1}, {1, 2, 11, 12}, {2, 3, 4, 12, 13, 14}));
  const Report report = checked(routed_reference(), candidate, kRoutedRules);
  CHECK(report.totals.counts.not_seen == 6);
  CHECK(report.totals.counts.fail + report.totals.counts.missing == 0);
  CHECK(report.totals.counts.pass == 4);
}

TEST_CASE("a router may say its choices as numbers, and without sources a rank's experts get its own tokens") {
  const std::string own =
      "mlp.router:1:\n  output: local\nmlp.router:0:\n  output: {}\nmlp:\n  input: {}\n"
      "mlp.all:0:\n  input: {rows: {routing: 'mlp.router:1', of: mlp, logits: 'mlp.router:0'}}\n";
  Trace trace = mesh_trace("", 1);
  add_router(trace, 0, 0, 1, {}, true);
  add_rows(trace, 0, 0, "mlp.all:0", {1, 2, 2, 3, 4});
  const Alignment alignment = align(trace, annotations(own), {});
  REQUIRE(alignment.findings.empty());
  const LogicalTensor& tensor = alignment.tensors.at(tensor_id(Kind::kInput, "mlp.all:0", 0));
  CHECK(tensor.shape == Shape{kTokens * 2, 2});
  CHECK(tensor.rows == std::vector<std::int64_t>{0, 2, 3, 5, 7});  // token * 2 + expert
}

TEST_SUITE_END();
