#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "selfcheck/selfcheck.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("selfcheck");

namespace {

constexpr std::int64_t kRows = 6, kSamples = 2, kHeadSize = 8;
constexpr float kInf = std::numeric_limits<float>::infinity();

using Values = std::vector<float>;

// A matrix for each [sample][head], row-major.
struct Matrices {
  std::int64_t heads = 0, rows = 0, cols = 0;
  Values values;

  Matrices(std::int64_t heads_, std::int64_t rows_, std::int64_t cols_, int seed = -1)
      : heads(heads_), rows(rows_), cols(cols_), values(static_cast<std::size_t>(kSamples * heads_ * rows_ * cols_)) {
    if (seed < 0) return;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(std::sin(static_cast<double>(i + 1) * 0.7 + seed * 1.3));
    }
  }
  float& at(std::int64_t sample, std::int64_t head, std::int64_t row, std::int64_t col) {
    return values[static_cast<std::size_t>(((sample * heads + head) * rows + row) * cols + col)];
  }
};

// A run of causal attention on two ranks, each of which records half of the heads.
struct AttentionProgram {
  std::int64_t heads = 4, kv_heads = 4;
  float scale = 1 / std::sqrt(static_cast<float>(kHeadSize));
  float masked = 0;           // recorded in place of masked scores; 0: they are masked inside the softmax
  bool sample_first = false;  // [b, heads, s, d] rather than [s, b, heads, d]
  bool with_softmax = true;
  std::function<void(const std::string& what, Matrices&)> damage = [](const std::string&, Matrices&) {};

  Trace run() const {
    Matrices query(heads, kRows, kHeadSize, 1), key(kv_heads, kRows, kHeadSize, 2),
        value(kv_heads, kRows, kHeadSize, 3);
    Matrices scores(heads, kRows, kRows), probabilities(heads, kRows, kRows), context(heads, kRows, kHeadSize);
    for (const auto& [what, matrices] : {std::pair{"query", &query}, {"key", &key}, {"value", &value}}) {
      damage(what, *matrices);
    }
    for_each([&](std::int64_t b, std::int64_t h, std::int64_t row) {
      for (std::int64_t col = 0; col < kRows; ++col) {
        float sum = 0;
        for (std::int64_t k = 0; k < kHeadSize; ++k) sum += query.at(b, h, row, k) * key.at(b, kv(h), col, k);
        scores.at(b, h, row, col) = masked != 0 && col > row ? masked : sum * scale;
      }
    });
    damage("scores", scores);
    for_each([&](std::int64_t b, std::int64_t h, std::int64_t row) {
      float sum = 0;
      for (std::int64_t col = 0; col <= row; ++col) sum += std::exp(scores.at(b, h, row, col));
      for (std::int64_t col = 0; col <= row; ++col) {
        probabilities.at(b, h, row, col) = std::exp(scores.at(b, h, row, col)) / sum;
      }
    });
    damage("probabilities", probabilities);
    for_each([&](std::int64_t b, std::int64_t h, std::int64_t row) {
      for (std::int64_t d = 0; d < kHeadSize; ++d) {
        for (std::int64_t col = 0; col < kRows; ++col) {
          context.at(b, h, row, d) += probabilities.at(b, h, row, col) * value.at(b, kv(h), col, d);
        }
      }
    });
    damage("context", context);
    Trace trace = mesh_trace("tp=2", 2);
    for (std::int32_t rank = 0; rank < 2; ++rank) {
      record(trace, rank, Kind::kInput, "core:0", "Attention", query, !sample_first);
      record(trace, rank, Kind::kInput, "core:1", "Attention", key, !sample_first);
      record(trace, rank, Kind::kInput, "core:2", "Attention", value, !sample_first);
      if (with_softmax) {
        record(trace, rank, Kind::kInput, "core.softmax", "Softmax", scores, false);
        record(trace, rank, Kind::kOutput, "core.softmax", "Softmax", probabilities, false);
      }
      record(trace, rank, Kind::kOutput, "core", "Attention", context, !sample_first);
    }
    return trace;
  }

  Report checked() const {
    const std::string dim = sample_first ? "1" : "2";
    const std::string rules = "core:\n  input: {tp_dim: " + dim + "}\n  output: {tp_dim: " + dim +
                              "}\ncore.softmax:\n  input: {tp_dim: 1}\n  output: {tp_dim: 1}\n";
    const Trace trace = run();
    return self_check(align(trace, annotations(rules), {}), {.threads = 1});
  }

 private:
  std::int64_t kv(std::int64_t head) const { return head * kv_heads / heads; }

  template <class Visit>
  void for_each(Visit visit) const {
    for (std::int64_t b = 0; b < kSamples; ++b) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t row = 0; row < kRows; ++row) visit(b, h, row);
      }
    }
  }

  static void record(Trace& trace, std::int32_t rank, Kind kind, const std::string& name, const std::string& module,
                     Matrices all, bool rows_first) {
    const std::int64_t heads = all.heads / 2;
    Values values;
    const auto add = [&](std::int64_t b, std::int64_t h, std::int64_t row) {
      for (std::int64_t col = 0; col < all.cols; ++col) values.push_back(all.at(b, rank * heads + h, row, col));
    };
    if (rows_first) {
      for (std::int64_t row = 0; row < all.rows; ++row) {
        for (std::int64_t i = 0; i < kSamples * heads; ++i) add(i / heads, i % heads, row);
      }
    } else {
      for (std::int64_t i = 0; i < kSamples * heads * all.rows; ++i)
        add(i / all.rows / heads, i / all.rows % heads, i % all.rows);
    }
    Shape shape = rows_first ? Shape{all.rows, kSamples, heads, all.cols} : Shape{kSamples, heads, all.rows, all.cols};
    add_tensor(trace, static_cast<std::size_t>(rank), tensor_id(kind, name, 0), std::move(shape), std::move(values));
    trace.ranks[static_cast<std::size_t>(rank)].entries.back().module_class = "model." + module;
  }
};

// Changes one element in row 3 of a matrix, in sample 1 and head 2.
Report damaged(const std::string& where, std::int64_t col, float value, AttentionProgram program = {}) {
  program.damage = [=](const std::string& what, Matrices& matrices) {
    if (what == where) matrices.at(1, 2, 3, col) = value;
  };
  return program.checked();
}

std::string first_tensor_of(const Report& report) {
  const Finding* first = report.first_wrong();
  return first == nullptr ? ""
                          : first->id.name.get() + " " + std::string(name_of(first->id.kind)) + ": " +
                                std::string(name_of(first->reason));
}

// Returns why a tensor of the trace was not checked.
std::string refusal_in(const Report& report) {
  for (const Finding& finding : report.findings) {
    if (finding.reason == Reason::kNotCheckable) return finding.message;
  }
  return "";
}

}  // namespace

TEST_CASE("right attention is verified: plain, masked, with shared keys, samples first") {
  for (const float masked : {0.0f, -kInf, -10000.0f}) {
    for (const std::int64_t kv_heads : {4, 2}) {
      for (const bool sample_first : {false, true}) {
        const Report report =
            AttentionProgram{.kv_heads = kv_heads, .masked = masked, .sample_first = sample_first}.checked();
        CHECK(report.findings.empty());
        CHECK(report.totals.counts.pass == 3);
      }
    }
  }
}

TEST_CASE("a wrong element of attention is found in its matrix, head and rank") {
  const Report scores = damaged("scores", 1, 3.5f);
  CHECK(first_tensor_of(scores) == "core.softmax input: product-differs");
  CHECK(has(scores.first_wrong()->message,
            "head 2 of sample 1 is not its queries times its keys, times 0.353553: row 3, column 1 is 3.5"));
  CHECK(scores.first_wrong()->ranks == std::vector<std::int32_t>{1});
  const Report probabilities = damaged("probabilities", 1, 0.9f);
  CHECK(first_tensor_of(probabilities) == "core.softmax output: sum-differs");
  CHECK(has(probabilities.first_wrong()->message, "head 2 of sample 1 has row 3 with the sum "));
  CHECK(probabilities.first_wrong()->ranks == std::vector<std::int32_t>{1});
  const Report context = damaged("context", 4, -2);
  CHECK(first_tensor_of(context) == "core output: product-differs");
  CHECK(has(context.first_wrong()->message, "row 3, column 4 is -2, not "));
}

TEST_CASE("an extreme value says by its pattern where the fault struck") {
  for (const float extreme : {kInf, std::nanf(""), 3e20f}) {
    CHECK(has(damaged("scores", 1, extreme).first_wrong()->message, "the fault struck these"));
    const Report query = damaged("query", 1, extreme);
    CHECK(first_tensor_of(query) == "core:0 input: not-finite");
    CHECK(has(query.first_wrong()->message, "in one element (0D) of the queries"));
  }
}

TEST_CASE("minus infinity in one head is no mask") {
  CHECK(first_tensor_of(damaged("scores", 1, -kInf, {.masked = -kInf})) == "core.softmax input: product-differs");
}

TEST_CASE("rows of fused attention are computed again, in each layout and with fewer heads of keys") {
  for (const bool sample_first : {false, true}) {
    for (const std::int64_t kv_heads : {2, 4}) {
      const Report right =
          AttentionProgram{.kv_heads = kv_heads, .sample_first = sample_first, .with_softmax = false}.checked();
      CHECK(right.totals.counts.fail == 0);
      REQUIRE(right.passed.size() > 0);
      CHECK(std::any_of(right.passed.begin(), right.passed.end(), [](const Finding& finding) {
        return finding.message ==
               "core output, iteration 0, micro-batch 0: is softmax(q k) v, causal, in 6 of 6 rows, "
               "in 8 heads";
      }));
      AttentionProgram program{.kv_heads = kv_heads, .sample_first = sample_first, .with_softmax = false};
      program.damage = [](const std::string& what, Matrices& matrices) {
        if (what == "context") matrices.at(1, 2, 3, 4) += 0.01F;
      };
      const Report wrong = program.checked();
      REQUIRE(wrong.first_wrong() != nullptr);
      CHECK(first_tensor_of(wrong) == "core output: product-differs");
      CHECK(has(wrong.first_wrong()->message, "head 2 of sample 1 is not softmax(q k) v in row 3"));
      CHECK(wrong.first_wrong()->ranks == std::vector<std::int32_t>{1});
    }
  }
}

TEST_CASE("fused attention with another scale, mask or dropout is not verified, and not called wrong") {
  CHECK(has(refusal_in(AttentionProgram{.scale = 0.2F, .with_softmax = false}.checked()), "it is fused, and not"));
  AttentionProgram window{.with_softmax = false};
  window.damage = [](const std::string& what, Matrices& matrices) {
    if (what != "probabilities") return;
    for (std::int64_t b = 0; b < kSamples; ++b) {
      for (std::int64_t h = 0; h < matrices.heads; ++h) matrices.at(b, h, 5, 0) = 0;  // the last row forgets the first
    }
  };
  CHECK(window.checked().totals.counts.fail == 0);
  CHECK(has(refusal_in(window.checked()), "it is fused, and not"));
  AttentionProgram all_wrong{.with_softmax = false};
  all_wrong.damage = [](const std::string& what, Matrices& matrices) {
    if (what != "context") return;
    for (float& value : matrices.values) value *= 1.5F;
  };
  CHECK(all_wrong.checked().totals.counts.fail == 0);
  CHECK(has(refusal_in(all_wrong.checked()), "or is wrong in all heads"));
}

TEST_CASE("attention that cannot be checked is named, and not verified") {
  const Report scaled = AttentionProgram{.scale = 0.2f}.checked();
  CHECK(has(refusal_in(scaled), "about 0.2 times queries times keys"));
  AttentionProgram biased;
  biased.damage = [](const std::string& what, Matrices& matrices) {
    if (what != "scores") return;
    for (std::size_t i = 0; i < matrices.values.size(); ++i) matrices.values[i] += static_cast<float>(i % 7);
  };
  CHECK(has(refusal_in(biased.checked()), "as if something were added"));
  AttentionProgram lost;
  lost.damage = [](const std::string& what, Matrices& matrices) {
    if (what == "query" || what == "key" || what == "value")
      matrices.values.assign(matrices.values.size(), std::nanf(""));
  };
  const Report nothing = lost.checked();
  CHECK(nothing.totals.counts.pass == 0);
  CHECK(nothing.totals.counts.untrusted == 3);
}

TEST_SUITE_END();
