#include "selfcheck/selfcheck.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <tuple>

#include "support/aligned.h"
#include "support/matrices.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("selfcheck");

namespace {

constexpr std::int64_t kTokens = 6, kIn = 8, kOut = 4;

using Values = std::vector<float>;
using Damage = std::function<void(const std::string& what, std::int32_t rank, Values& values)>;

// Returns numbers that depend on `seed` alone.
Values drawn(int seed, std::int64_t count) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(std::sin(static_cast<double>(i + 1) * 0.7 + seed * 1.3)));
  }
  return values;
}

float& at(Values& values, std::int64_t i) { return values[static_cast<std::size_t>(i)]; }
float at(const Values& values, std::int64_t i) { return values[static_cast<std::size_t>(i)]; }

// Multiplies [rows, inner] by [inner, cols].
Values times(const Values& a, const Values& b, std::int64_t rows, std::int64_t inner, std::int64_t cols) {
  Values c(static_cast<std::size_t>(rows * cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = 0; k < inner; ++k) {
      for (std::int64_t i = 0; i < cols; ++i) at(c, r * cols + i) += at(a, r * inner + k) * at(b, k * cols + i);
    }
  }
  return c;
}

Values transposed(const Values& a, std::int64_t rows, std::int64_t cols) {
  Values t(a.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) at(t, c * rows + r) = at(a, r * cols + c);
  }
  return t;
}

// Returns the half of the columns that a rank holds.
Values half_of(const Values& a, std::int64_t cols, std::int32_t rank) { return part_of_columns(a, cols, rank, 2); }

// A row-parallel linear `fc` on two ranks, forward and backward of two micro-batches.
struct Program {
  Values weight = drawn(1, kOut* kIn), bias = drawn(2, kOut);
  Damage damage = [](const std::string&, std::int32_t, Values&) {};
  bool with_weight = true;
  std::set<std::int32_t> skip_bias_in = {};  // micro-batches
  std::string module_class = "my.Linear";

  Trace run() const {
    Trace trace = mesh_trace("tp=2", 2);
    for (std::int32_t rank = 0; rank < 2; ++rank) run_rank(trace, rank);
    return trace;
  }

  void run_rank(Trace& trace, std::int32_t rank) const {
    const auto add = [&](Kind kind, const std::string& name, std::int32_t batch, Shape shape, Values values) {
      damage(std::string(name_of(kind)) + " " + name + (batch == 1 ? " 1" : ""), rank, values);
      add_tensor(trace, static_cast<std::size_t>(rank), tensor_id(kind, name, batch), std::move(shape),
                 std::move(values));
      trace.ranks[static_cast<std::size_t>(rank)].entries.back().module_class = module_class;
    };
    constexpr std::int64_t kHalf = kIn / 2;
    if (with_weight) add(Kind::kParam, "fc.weight", kNoMicrobatch, {kOut, kHalf}, half_of(weight, kIn, rank));
    add(Kind::kParam, "fc.bias", kNoMicrobatch, {kOut}, bias);
    Values sum(static_cast<std::size_t>(kOut * kHalf));
    for (std::int32_t batch = 0; batch < 2; ++batch) {
      const Values x = drawn(10 + batch, kTokens * kIn), dy = drawn(20 + batch, kTokens * kOut);
      Values y = times(x, transposed(weight, kOut, kIn), kTokens, kIn, kOut);
      for (std::size_t i = 0; i < y.size() && !skip_bias_in.contains(batch); ++i) y[i] += bias[i % kOut];
      const Values dx = times(dy, weight, kTokens, kOut, kIn);
      const Values dw = half_of(times(transposed(dy, kTokens, kOut), x, kOut, kTokens, kIn), kIn, rank);
      add(Kind::kInput, "fc", batch, {kTokens, kHalf}, half_of(x, kIn, rank));
      add(Kind::kOutput, "fc", batch, {kTokens, kOut}, y);
      add(Kind::kGradOutput, "fc", batch, {kTokens, kOut}, dy);
      add(Kind::kGradInput, "fc", batch, {kTokens, kHalf}, half_of(dx, kIn, rank));
      add(Kind::kParamGrad, "fc.weight", batch, {kOut, kHalf}, dw);
      for (std::size_t i = 0; i < dw.size(); ++i) sum[i] += dw[i] / 2;
    }
    add(Kind::kMainGrad, "fc.weight", kNoMicrobatch, {kOut, kHalf}, sum);
  }
};

Report checked(const Program& program) {
  const std::string rules = "fc.weight: {tp_dim: 1}\nfc:\n  input: {tp_dim: 1}\n  output: {}\n";
  return self_check(align(program.run(), annotations(rules), {}), {.threads = 1});
}

Report damaged(Damage damage) {
  Program program;
  program.damage = std::move(damage);
  return checked(program);
}

std::string first_of(const Report& report) {
  const Finding* first = report.first_wrong();
  return first == nullptr ? "" : to_string(first->id) + ": " + std::string(name_of(first->reason));
}

// Changes one element of what a rank recorded, or of what every rank did.
Damage set(const std::string& what, std::size_t element, float value, std::int32_t only_rank = -1) {
  return [=](const std::string& name, std::int32_t rank, Values& values) {
    if (name == what && (only_rank < 0 || rank == only_rank)) values[element] = value;
  };
}

}  // namespace

TEST_CASE("a right trace is right by itself, across ranks") {
  const Report report = checked({});
  CHECK(report.same());
  CHECK(report.findings.empty());
  CHECK(report.totals.counts.pass > 6);  // three products of each micro-batch, and more
}

TEST_CASE("a module that returns its bias instead of adding it is right, and named") {
  Program program;
  program.skip_bias_in = {0, 1};
  const Report report = checked(program);
  CHECK(report.same());
  CHECK(std::count(report.notes.begin(), report.notes.end(),
                   "1 modules return their product without adding their bias, as with Megatron-LM's skip_bias_add; "
                   "whether it is added later is not checked: fc") == 1);
}

TEST_CASE("a bias that is forgotten in one call of many, or by PyTorch's own linear, is found") {
  Program program;
  program.skip_bias_in = {1};
  CHECK(first_of(checked(program)) == "fc output, iteration 0, micro-batch 1: product-differs");
  program.skip_bias_in = {0, 1};
  program.module_class = "torch.nn.modules.linear.Linear";
  CHECK(first_of(checked(program)) == "fc output, iteration 0, micro-batch 0: product-differs");
}

TEST_CASE("a weight that is stored the other way round is found out, and so is what is no product") {
  const Values weight = drawn(1, kIn * kIn), bias = drawn(2, kIn);
  const auto report_of = [&](const std::string& module_class, float factor) {
    Trace trace = mesh_trace("", 1);
    const auto add = [&](Kind kind, const std::string& name, std::int32_t batch, Shape shape, const Values& values) {
      add_tensor(trace, 0, tensor_id(kind, name, batch), std::move(shape), values);
      trace.ranks[0].entries.back().module_class = module_class;
    };
    add(Kind::kParam, "fc.weight", kNoMicrobatch, {kIn, kIn}, weight);
    add(Kind::kParam, "fc.bias", kNoMicrobatch, {kIn}, bias);
    for (std::int32_t batch = 0; batch < 2; ++batch) {
      const Values x = drawn(10 + batch, kTokens * kIn), dy = drawn(20 + batch, kTokens * kIn);
      Values y = times(x, weight, kTokens, kIn, kIn);
      for (std::size_t i = 0; i < y.size(); ++i) y[i] = factor * (y[i] + bias[i % kIn]);
      add(Kind::kInput, "fc", batch, {kTokens, kIn}, x);
      add(Kind::kOutput, "fc", batch, {kTokens, kIn}, y);
      add(Kind::kGradOutput, "fc", batch, {kTokens, kIn}, dy);
      add(Kind::kGradInput, "fc", batch, {kTokens, kIn}, times(dy, transposed(weight, kIn, kIn), kTokens, kIn, kIn));
      add(Kind::kParamGrad, "fc.weight", batch, {kIn, kIn}, times(transposed(x, kTokens, kIn), dy, kIn, kTokens, kIn));
    }
    return self_check(align(trace, annotations(""), {}), {.threads = 1});
  };
  const Report conv = report_of("transformers.pytorch_utils.Conv1D", 1);
  CHECK(conv.same());
  CHECK(conv.totals.counts.pass == 6);
  const Report scaled = report_of("my.Router", 0.5F);
  CHECK(scaled.totals.counts.fail == 0);
  CHECK(scaled.totals.counts.untrusted == 2);
  CHECK(first_of(report_of("torch.nn.modules.linear.Linear", 1)) ==
        "fc output, iteration 0, micro-batch 0: product-differs");
}

TEST_CASE("the gradient of a weight that is tied to another parameter is not one module's product") {
  const Values weight = drawn(1, kOut * kIn), x = drawn(3, kTokens * kIn), dy = drawn(4, kTokens * kOut);
  const auto report_of = [&](const Values& other) {
    Trace trace = mesh_trace("", 1);
    const auto add = [&](Kind kind, const std::string& name, Shape shape, const Values& values) {
      const bool is_parameter = kind == Kind::kParam;
      add_tensor(trace, 0, tensor_id(kind, name, is_parameter ? kNoMicrobatch : 0), std::move(shape), values);
    };
    add(Kind::kParam, "embedding.weight", {kOut, kIn}, other);
    add(Kind::kParam, "head.weight", {kOut, kIn}, weight);
    add(Kind::kInput, "head", {kTokens, kIn}, x);
    add(Kind::kOutput, "head", {kTokens, kOut}, times(x, transposed(weight, kOut, kIn), kTokens, kIn, kOut));
    add(Kind::kGradOutput, "head", {kTokens, kOut}, dy);
    const Values sum = drawn(9, kOut * kIn);
    for (const char* name : {"embedding.weight", "head.weight"}) add(Kind::kParamGrad, name, {kOut, kIn}, sum);
    return self_check(align(trace, annotations(""), {}), {.threads = 1});
  };
  CHECK(report_of(weight).totals.counts.fail == 0);
  CHECK(report_of(weight).totals.counts.untrusted == 1);
  CHECK(first_of(report_of(drawn(2, kOut * kIn))) ==
        "head.weight param_grad, iteration 0, micro-batch 0: product-differs");
}

namespace {

// Tensors of one rank, in two micro-batches.
struct Consumers {
  Trace trace = mesh_trace("", 1);

  void add(Kind kind, const std::string& name, std::int32_t batch, Shape shape, const Values& values) {
    add_tensor(trace, 0, tensor_id(kind, name, kind == Kind::kParam ? kNoMicrobatch : batch), std::move(shape), values);
  }
  // A linear with all that is recorded of it.
  void add_linear(const std::string& name, std::int32_t batch, const Values& x, const Values& weight, const Values& dy,
                  const Values& dx) {
    const std::int64_t in = std::ssize(x) / kTokens, out = std::ssize(dy) / kTokens;
    if (batch == 0) add(Kind::kParam, name + ".weight", batch, {out, in}, weight);
    add(Kind::kInput, name, batch, {kTokens, in}, x);
    add(Kind::kOutput, name, batch, {kTokens, out}, times(x, transposed(weight, out, in), kTokens, in, out));
    add(Kind::kGradOutput, name, batch, {kTokens, out}, dy);
    add(Kind::kGradInput, name, batch, {kTokens, in}, dx);
  }
  Report report() const { return self_check(align(trace, annotations(""), {}), {.threads = 1}); }
};

void add_to(Values& sum, const Values& values) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
}

}  // namespace

TEST_CASE("the gradient of an input that several linears were given is the sum of what they send back") {
  const Values q = drawn(1, kOut * kIn), k = drawn(2, kOut * kIn);
  const auto report_of = [&](const std::string& of_third, float damage) {
    Consumers program;
    for (const std::int32_t batch : {0, 1}) {
      const Values x = drawn(3 + batch, kTokens * kIn), dq = drawn(5 + batch, kTokens * kOut);
      const Values dk = drawn(7 + batch, kTokens * kOut);
      Values dx = times(dq, q, kTokens, kOut, kIn);
      add_to(dx, times(dk, k, kTokens, kOut, kIn));
      if (batch == 1 || !of_third.empty()) dx[3] += damage;
      program.add_linear("attn.q", batch, x, q, dq, dx);
      program.add_linear("attn.k", batch, x, k, dk, dx);
      for (const std::string& name : {std::string("attn"), of_third}) {
        if (name.empty()) continue;
        program.add(Kind::kInput, name, batch, {kTokens, kIn}, x);
        program.add(Kind::kGradInput, name, batch, {kTokens, kIn}, dx);
      }
    }
    return program.report();
  };
  CHECK(report_of("", 0).same());
  CHECK(report_of("", 0).totals.counts.pass == 8);
  CHECK(first_of(report_of("", 9)) == "attn.q grad_input, iteration 0, micro-batch 1: product-differs");
  const Report gate = report_of("attn.gate", 9);  // which may have sent back anything
  CHECK(gate.totals.counts.fail == 0);
  CHECK(gate.totals.counts.untrusted == 4);
}

TEST_CASE("a residual connection around a linear is a term of its input's gradient") {
  const Values weight = drawn(1, kIn * kIn);
  const auto report_of = [&](float damage, float in_sum) {
    Consumers program;
    for (const std::int32_t batch : {0, 1}) {
      const Values x = drawn(3 + batch, kTokens * kIn), dz = drawn(5 + batch, kTokens * kIn);
      Values dx = times(dz, weight, kTokens, kIn, kIn), z = times(x, transposed(weight, kIn, kIn), kTokens, kIn, kIn);
      add_to(dx, dz);
      add_to(z, x);
      z[7] += in_sum;
      if (batch == 1) dx[3] += damage;
      program.add_linear("block.fc", batch, x, weight, dz, dx);
      program.add(Kind::kInput, "norm", batch, {kTokens, kIn}, z);
      program.add(Kind::kGradInput, "norm", batch, {kTokens, kIn}, dz);
    }
    return program.report();
  };
  CHECK(report_of(0, 0).same());
  CHECK(report_of(0, 0).totals.counts.pass == 4);
  const Report damaged = report_of(9, 0);
  CHECK(first_of(damaged) == "block.fc grad_input, iteration 0, micro-batch 1: product-differs");
  CHECK(has(damaged.first_wrong()->message, "row 0, column 3 is "));
  // A tensor that is no sum of the input and the output is no residual connection.
  CHECK(report_of(0, 2).totals.counts.fail == 0);
  CHECK(report_of(0, 2).totals.counts.untrusted == 2);
}

TEST_CASE("what an operation outside of modules sends back makes no linear wrong") {
  const Values weight = drawn(1, kOut * kIn);
  // `more` is what else was given the input of each micro-batch, and `scale` multiplies the gradient.
  const auto report_of = [&](std::set<std::int32_t> more, float scale) {
    Consumers program;
    for (const std::int32_t batch : {0, 1}) {
      const Values x = drawn(3 + batch, kTokens * kIn), dy = drawn(5 + batch, kTokens * kOut);
      Values dx = times(dy, weight, kTokens, kOut, kIn);
      if (more.contains(batch)) add_to(dx, drawn(9 + batch, kTokens * kIn));
      for (float& value : dx) value *= scale;
      program.add_linear("fc", batch, x, weight, dy, dx);
    }
    return program.report();
  };
  CHECK(report_of({}, 1).totals.counts.pass == 4);
  const Report always = report_of({0, 1}, 1);
  CHECK(always.totals.counts.fail == 0);
  CHECK(always.totals.counts.untrusted == 2);
  CHECK(has(always.findings[0].message, "nothing proves that no operation outside of modules was given its input"));
  CHECK(first_of(report_of({1}, 1)) == "fc grad_input, iteration 0, micro-batch 1: product-differs");
  const Report halved = report_of({}, 0.5f);
  CHECK(halved.totals.counts.fail == 2);
  CHECK(has(halved.first_wrong()->message, "it is 0.5 times that"));
  CHECK(report_of({}, 0).totals.counts.fail == 2);
}

TEST_CASE("a gradient of an input that was not summed over ranks is found") {
  const auto report_of = [](bool is_summed) {
    Trace trace = mesh_trace("tp=2", 2);
    const Values weight = drawn(1, kOut * kIn), x = drawn(2, kTokens * kIn), dy = drawn(3, kTokens * kOut);
    const Values y = times(x, transposed(weight, kOut, kIn), kTokens, kIn, kOut);
    for (const std::int32_t rank : {0, 1}) {
      const auto add = [&](Kind kind, const std::string& name, Shape shape, const Values& values) {
        const std::int32_t batch = kind == Kind::kParam ? kNoMicrobatch : 0;
        add_tensor(trace, static_cast<std::size_t>(rank), tensor_id(kind, name, batch), std::move(shape), values);
      };
      const std::int64_t half = kOut / 2;
      const Values part(weight.begin() + rank * half * kIn, weight.begin() + (rank + 1) * half * kIn);
      const Values dy_part = half_of(dy, kOut, rank);
      add(Kind::kParam, "fc.weight", {half, kIn}, part);
      add(Kind::kOutput, "fc", {kTokens, half}, half_of(y, kOut, rank));
      add(Kind::kGradOutput, "fc", {kTokens, half}, dy_part);
      // Each rank keeps its half of the tokens.
      const Values dx = is_summed ? times(dy, weight, kTokens, kOut, kIn) : times(dy_part, part, kTokens, half, kIn);
      const std::int64_t first = rank * kTokens / 2 * kIn, last = (rank + 1) * kTokens / 2 * kIn;
      add(Kind::kInput, "fc", {kTokens / 2, kIn}, Values(x.begin() + first, x.begin() + last));
      add(Kind::kGradInput, "fc", {kTokens / 2, kIn}, Values(dx.begin() + first, dx.begin() + last));
    }
    const std::string rules = "fc.weight: {tp_dim: 0}\nfc:\n  input: {tp_dim: 0}\n  output: {tp_dim: 1}\n";
    return self_check(align(trace, annotations(rules), {}), {.threads = 1});
  };
  CHECK(report_of(true).same());
  CHECK(report_of(true).totals.counts.untrusted == 0);
  const Report report = report_of(false);
  CHECK(first_of(report) == "fc grad_input, iteration 0, micro-batch 0: product-differs");
  CHECK(has(report.first_wrong()->message, "it was not summed over the ranks"));
}

TEST_CASE("ranks that hold different values are copies only where somebody says so") {
  const auto report_of = [](const std::string& rules) {
    Trace trace = mesh_trace("tp=2", 2);
    for (const std::size_t rank : {0, 1}) {
      add_tensor(trace, rank, tensor_id(Kind::kOutput, "act", 0), {4}, drawn(static_cast<int>(rank), 4));
      add_tensor(trace, rank, tensor_id(Kind::kOutput, "norm", 0), {4}, drawn(3, 4));
    }
    return self_check(align(trace, annotations(rules), {}), {.threads = 1});
  };
  const Report unplaced = report_of("");
  CHECK(unplaced.totals.counts.fail == 0);
  bool said = false;
  for (const Finding& finding : unplaced.findings) {
    said =
        said || (finding.id.name == "act" && has(finding.message, "no annotation says whether these are parts of it"));
  }
  CHECK(said);
  CHECK(first_of(report_of("act:\n  output: {tp: replicate}\n")) ==
        "act output, iteration 0, micro-batch 0: replicas-disagree");
}

TEST_CASE("products are held to the e_max that was calibrated for their dtype") {
  const std::string rules = "fc.weight: {tp_dim: 1}\nfc:\n  input: {tp_dim: 1}\n  output: {}\n";
  const Trace trace = Program().run();
  const Alignment tensors = align(trace, annotations(rules), {});
  const auto same_with = [&](Dtype dtype, double e_max) {
    SelfCheckOptions options;
    options.e_max[dtype] = e_max;
    return self_check(tensors, options).same();
  };
  CHECK(same_with(Dtype::kFloat32, 4e-7));
  CHECK_FALSE(same_with(Dtype::kFloat32, 1e-30));
  CHECK(same_with(Dtype::kBFloat16, 1e-30));
}

TEST_CASE("a wrong element is found in the product that it is in, with its place") {
  const Report forward = damaged(set("output fc", 9, 77));
  CHECK(first_of(forward) == "fc output, iteration 0, micro-batch 0: product-differs");
  CHECK(forward.first_wrong()->message.find("row 2, column 1 is 77, not ") != std::string::npos);
  CHECK(first_of(damaged(set("grad_input fc 1", 3, 50, 1))) ==
        "fc grad_input, iteration 0, micro-batch 1: product-differs");
  const Report gradient = damaged(set("param_grad fc.weight", 2, -40, 0));
  CHECK(first_of(gradient) == "fc.weight param_grad, iteration 0, micro-batch 0: product-differs");
  CHECK(gradient.first_wrong()->ranks == std::vector<std::int32_t>{0});
}

TEST_CASE("a sum over ranks that was not made is found without a reference") {
  const Report report = damaged([](const std::string& name, std::int32_t rank, Values& values) {
    if (name != "output fc") return;
    const Values x = half_of(drawn(10, kTokens * kIn), kIn, rank), w = half_of(drawn(1, kOut * kIn), kIn, rank);
    values = times(x, transposed(w, kOut, kIn / 2), kTokens, kIn / 2, kOut);
  });
  CHECK_FALSE(report.same());
  CHECK(report.first_wrong()->id.name == "fc");
}

TEST_CASE("a main gradient that is not its micro-batches' sum, and copies that differ") {
  const Report sum = damaged([](const std::string& name, std::int32_t, Values& values) {
    if (name == "main_grad fc.weight") values = Values(values.size(), 0.25f);
  });
  CHECK(first_of(sum) == "fc.weight main_grad, iteration 0: sum-differs");
  CHECK(first_of(damaged(set("param fc.bias", 0, 9, 1))) == "fc.bias param, iteration 0: replicas-disagree");
}

TEST_CASE("a main gradient is held to the rounding of its terms in fp32") {
  // Two terms are allowed 4 * 2 units of 2^-23: 9.5e-7 of the norm.
  const auto first_with = [](double error) {
    return first_of(damaged([=](const std::string& name, std::int32_t, Values& values) {
      if (name != "main_grad fc.weight") return;
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(values[i] * (1 + (i % 2 == 0 ? error : -error)));
      }
    }));
  };
  CHECK(first_with(2e-7).empty());
  CHECK(first_with(4e-6) == "fc.weight main_grad, iteration 0: sum-differs");
}

TEST_CASE("gradients that overflowed prove nothing, and what stays of them does") {
  const float inf = std::numeric_limits<float>::infinity();
  // Rank 0's gradient of one micro-batch overflows, and the sum with it.
  const Report report = damaged([=](const std::string& name, std::int32_t rank, Values& values) {
    if (rank == 0 && (name == "param_grad fc.weight" || name == "main_grad fc.weight")) values[0] = inf;
  });
  for (const Finding& finding : report.findings) CHECK(finding.reason != Reason::kSumDiffers);
  CHECK(first_of(damaged(set("main_grad fc.weight", 0, inf, 0))) == "fc.weight main_grad, iteration 0: sum-differs");
}

TEST_CASE("what is not finite is no product of finite operands") {
  CHECK(first_of(damaged(set("output fc", 4, std::nanf("")))) ==
        "fc output, iteration 0, micro-batch 0: product-differs");
}

TEST_CASE("the rank whose own product is wrong is named, also where another has the same right") {
  // `fc` once more, whole on both ranks.
  const auto replicated = [](std::int32_t wrong_rank) {
    Trace trace = mesh_trace("tp=2", 2);
    for (const std::int32_t rank : {0, 1}) {
      const Values x = drawn(1, kTokens * kIn), weight = drawn(2, kOut * kIn);
      Values y = times(x, transposed(weight, kOut, kIn), kTokens, kIn, kOut);
      if (rank == wrong_rank) y[5] = 30;
      const auto add = [&](Kind kind, const std::string& name, std::int32_t batch, Shape shape, const Values& values) {
        add_tensor(trace, static_cast<std::size_t>(rank), tensor_id(kind, name, batch), std::move(shape), values);
      };
      add(Kind::kParam, "fc.weight", kNoMicrobatch, {kOut, kIn}, weight);
      add(Kind::kInput, "fc", 0, {kTokens, kIn}, x);
      add(Kind::kOutput, "fc", 0, {kTokens, kOut}, y);
    }
    return self_check(align(trace, annotations("fc:\n  input: {}\n  output: {}\nfc.weight: {tp: replicate}\n"), {}),
                      {.threads = 1});
  };
  CHECK(replicated(-1).findings.empty());
  for (const std::int32_t rank : {0, 1}) {
    const Report report = replicated(rank);
    CHECK(first_of(report) == "fc output, iteration 0, micro-batch 0: product-differs");
    CHECK(report.first_wrong()->ranks == std::vector<std::int32_t>{rank});
    CHECK(report.first_wrong()->message.find("row 1, column 1 is 30, not ") != std::string::npos);
  }
}

TEST_CASE("sums over ranks are counted, not taken for one rank's product") {
  const Report report = checked({});
  CHECK(
      report.notes.front() ==
      "rank by rank, 8 products are right and 0 wrong; 4 were recorded after their sum over ranks, and are checked as "
      "a whole only");
}

TEST_CASE("what cannot be checked is said, and is not verified") {
  Program program;
  program.with_weight = false;
  const Report report = checked(program);
  bool said = false;
  for (const Finding& finding : report.findings) {
    said = said || (finding.reason == Reason::kNotCheckable && finding.id.name == "fc");
  }
  CHECK(said);
  CHECK(report.notes.size() == 1);  // nothing was checked rank by rank
  CHECK_THROWS_AS(self_check(Alignment(), {}), InputError);
}

TEST_SUITE_END();
