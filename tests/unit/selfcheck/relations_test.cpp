// Reductions over ranks, bags of embeddings, products of integers.
#include <doctest/doctest.h>

#include <cstring>

#include "selfcheck/selfcheck.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("selfcheck");

namespace {

using Values = std::vector<float>;

void add_float(Trace& trace, std::size_t rank, Kind kind, const std::string& name, Shape shape, Values values,
               const std::string& module = "Module") {
  add_tensor(trace, rank, tensor_id(kind, name, is_parameter_kind(kind) ? kNoMicrobatch : 0), std::move(shape),
             std::move(values));
  trace.ranks[rank].entries.back().module_class = module;
}

template <class T>
void add_integers(Trace& trace, Kind kind, const std::string& name, Dtype dtype, Shape shape,
                  const std::vector<T>& values, const std::string& module = "Module") {
  const Values room(values.size());  // at least as many bytes
  add_float(trace, 0, kind, name, std::move(shape), room, module);
  Entry& entry = trace.ranks[0].entries.back();
  entry.dtype = dtype;
  entry.bytes = values.size() * sizeof(T);
  auto file = std::const_pointer_cast<MemoryFile>(std::static_pointer_cast<const MemoryFile>(trace.ranks[0].file));
  std::memcpy(file->bytes.data() + entry.offset, values.data(), entry.bytes);
}

Report checked(const Trace& trace, const std::string& rules) {
  return self_check(align(trace, rules.empty() ? Annotations() : annotations(rules), {}), {.threads = 1});
}

std::string first_message(const Report& report) {
  return report.findings.empty() ? "" : report.findings.front().message;
}

// `proj.matmul` leaves the terms of a sum on two ranks; `proj` sums them and adds its bias.
Report reduced(float second_sum, float added = 0) {
  Trace trace = mesh_trace("tp=2", 2);
  for (const std::size_t rank : {0, 1}) {
    add_float(trace, rank, Kind::kParam, "proj.bias", {2}, {10, 20});
    add_float(trace, rank, Kind::kOutput, "proj.matmul", {2, 2}, rank == 0 ? Values{1, 2, 3, 4} : Values{5, 6, 7, 8});
    add_float(trace, rank, Kind::kOutput, "proj", {2, 2}, {16 + added, second_sum + added, 20 + added, 32 + added});
  }
  return checked(trace, "proj.matmul:\n  output: {tp: partial}\nproj:\n  output: {}\nproj.bias: {tp: replicate}\n");
}

// Two calls of `proj`, which calls `proj.matmul` twice itself: the second of these is what it sums.
Report reduced_twice(float second_sum) {
  Trace trace = mesh_trace("tp=2", 2);
  for (const std::size_t rank : {0, 1}) {
    const float sign = rank == 0 ? 1 : -1;
    add_float(trace, rank, Kind::kOutput, "proj.matmul", {2, 2}, {9, 9, 9, 9});
    add_float(trace, rank, Kind::kOutput, "proj.matmul#1", {2, 2}, {sign + 1, sign + 2, sign + 3, sign + 4});
    add_float(trace, rank, Kind::kOutput, "proj", {2, 2}, {2, 4, 6, 8});
    add_float(trace, rank, Kind::kOutput, "proj.matmul#2", {2, 2}, {9, 9, 9, 9});
    add_float(trace, rank, Kind::kOutput, "proj.matmul#3", {2, 2}, {sign + 5, sign + 6, sign + 7, sign + 8});
    add_float(trace, rank, Kind::kOutput, "proj#1", {2, 2}, {10, 12, 14, second_sum});
  }
  return checked(trace, "proj.matmul:\n  output: {tp: partial}\nproj:\n  output: {}\n");
}

// `first` and `last`: what the second call found for ids 2, the last of the table, and 0.
Report looked_up_twice(float first, float last) {
  Trace trace = mesh_trace("tp=1", 1);
  add_float(trace, 0, Kind::kParam, "words.weight", {3, 2}, {1, 2, 3, 4, 5, 6});
  for (const std::string call : {"words", "words#1"}) {
    add_integers<std::int32_t>(trace, Kind::kInput, call, Dtype::kInt32, {2}, {2, 0});
    const Values rows = call == "words" ? Values{5, 6, 1, 2} : Values{first, 6, 1, last};
    add_float(trace, 0, Kind::kOutput, call, {2, 2}, rows, "torch.nn.modules.sparse.Embedding");
  }
  return checked(trace, "");
}

struct BagProgram {
  std::vector<std::int32_t> indices = {0, 2, 2, 1, 3, 2}, offsets = {0, 2, 3};
  Values output = {6, 8, 5, 6, 15, 18};  // [3, 2], sums

  Report checked() const {
    Trace trace = mesh_trace("tp=1", 1);
    add_float(trace, 0, Kind::kParam, "bag.weight", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    const auto count = static_cast<std::int64_t>(indices.size());
    add_integers(trace, Kind::kInput, "bag:0", Dtype::kInt32, {count}, indices);
    add_integers(trace, Kind::kInput, "bag:1", Dtype::kInt32, {static_cast<std::int64_t>(offsets.size())}, offsets);
    add_float(trace, 0, Kind::kOutput, "bag", {3, 2}, output, "torch.nn.modules.sparse.EmbeddingBag");
    return ::checked(trace, "");
  }
};

Report integer_product(std::int32_t last, const std::string& call = "fc") {
  Trace trace = mesh_trace("tp=1", 1);
  add_integers<std::int8_t>(trace, Kind::kParam, "fc.weight", Dtype::kInt8, {2, 3}, {1, -2, 3, -4, 5, -128});
  add_integers<std::int8_t>(trace, Kind::kInput, call, Dtype::kInt8, {2, 3}, {7, -8, 9, -128, 127, 0});
  add_integers<std::int32_t>(trace, Kind::kOutput, call, Dtype::kInt32, {2, 2}, {50, -1220, -382, last});
  return checked(trace, "");
}

}  // namespace

TEST_CASE("what an all-reduce returns is the sum of what the ranks gave it") {
  CHECK(reduced(28).findings.empty());
  const Report wrong = reduced(29);
  CHECK_FALSE(wrong.same());
  CHECK(has(first_message(wrong),
            "is not the sum over ranks of proj.matmul output, iteration 0, micro-batch 0: 1 of 4 "
            "elements differ; the first is number 1, 29, not 28"));
}

TEST_CASE("a sum over ranks is that of the terms of its own call") {
  CHECK(reduced_twice(16).totals.counts.fail == 0);
  const Report wrong = reduced_twice(17);
  REQUIRE(wrong.totals.counts.fail == 1);
  CHECK(has(wrong.first_wrong()->message,
            "proj#1 output, iteration 0, micro-batch 0: is not the sum over ranks of "
            "proj.matmul#3 output, iteration 0, micro-batch 0: 1 of 4 elements differ"));
}

TEST_CASE("an embedding is looked up in its weight at every call") {
  CHECK(looked_up_twice(5, 2).findings.empty());
  for (const Report& report : {looked_up_twice(5, 102), looked_up_twice(105, 2)}) {
    CHECK(has(first_message(report), "words#1 output, iteration 0, micro-batch 0: 1 of 2 rows are not"));
  }
}

TEST_CASE("a module that does more than add the terms is not called wrong, nor right") {
  const Report report = reduced(28, 0.5f);
  CHECK(report.totals.counts.fail == 0);
  CHECK(has(first_message(report), "is more than the sum over ranks of proj.matmul output"));
}

TEST_CASE("bags of embeddings are sums, means or the largest of the rows that they name") {
  CHECK(BagProgram{}.checked().findings.empty());
  CHECK(BagProgram{.output = {3, 4, 5, 6, 5, 6}}.checked().findings.empty());    // means
  CHECK(BagProgram{.output = {5, 6, 5, 6, 7, 8}}.checked().findings.empty());    // the largest
  CHECK(BagProgram{.output = {1, 2, 0, 0, 10, 12}}.checked().findings.empty());  // row 2 is padding
  CHECK(BagProgram{.offsets = {0, 2, 3, 6}}.checked().findings.empty());         // with the last offset
  const Report wrong = BagProgram{.output = {6, 8, 5, 6.001f, 15, 18}}.checked();
  CHECK(has(first_message(wrong),
            "1 of 3 bags are not the sum of its weight's rows; the first is bag 1, whose column 1 is 6.001, not 6"));
}

TEST_CASE("bags that cannot be looked up are named") {
  CHECK(has(first_message(BagProgram{.offsets = {0, 4, 3}}.checked()), "the offset of bag 1 falls"));
  CHECK(has(first_message(BagProgram{.indices = {0, 2, 4, 1, 3, 2}}.checked()), "index 4 is beyond the 4 rows"));
  CHECK(has(first_message(BagProgram{.offsets = {0, 2}}.checked()), "do not fit together"));
}

TEST_CASE("a product of integers is exact, or it is wrong") {
  CHECK(integer_product(1147).findings.empty());
  CHECK_FALSE(integer_product(1147 + 16, "fc#1").same());
  const Report wrong = integer_product(1147 + 16);
  CHECK_FALSE(wrong.same());
  CHECK(has(first_message(wrong), "is not its input times its weight: row 1, column 1 is 1163, not 1147; 1 of 2 rows"));
}

TEST_SUITE_END();
