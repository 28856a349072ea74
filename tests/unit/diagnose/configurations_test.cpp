#include "diagnose/configurations.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/aligned.h"
#include "support/trace_builder.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

using Attributes = std::map<std::string, std::string>;

// A trace of one module `m`, each of whose ranks says that it is configured so.
Trace configured_as(const std::vector<Attributes>& by_rank, const std::string& module_class = "nn.Norm") {
  TraceBuilder builder;
  if (by_rank.size() > 1) builder.axes(fmt::format("tp={}", by_rank.size()));
  Trace trace =
      builder.tensor("m", Kind::kOutput, {2, 4}, [](std::int32_t, std::int64_t i) { return double(i); }).read();
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    ModuleConfigurations configurations;
    configurations.chunks.resize(1);
    configurations.chunks[0]["m"] =
        std::make_shared<ModuleConfiguration>(ModuleConfiguration{module_class, by_rank[rank]});
    trace.ranks[rank].configurations = std::make_shared<ModuleConfigurations>(std::move(configurations));
  }
  return trace;
}

ConfiguredOtherwise compared(const Trace& reference, const Trace& candidate) {
  const Alignment of_reference = align(reference, annotations(""), {});
  const Alignment of_candidate = align(candidate, annotations("m:\n  output: {}\n"), layout_of(of_reference));
  return compare_configurations(of_reference, reference, of_candidate, candidate);
}

// What is said of one module.
std::vector<std::string> remarks(const Trace& reference, const Trace& candidate) {
  std::vector<std::string> texts;
  for (const OtherAttribute& other : group_by_attribute(compared(reference, candidate)))
    texts.push_back(text_of(other));
  return texts;
}

using Texts = std::vector<std::string>;

// The same, beside a model that the program calls without gradients.
Trace with_teacher(Trace trace, const Attributes& teacher) {
  ModuleConfigurations configurations = *trace.ranks[0].configurations;
  for (const char* module : {"Teacher", "Teacher.drop"}) {
    configurations.without_grad[module] =
        std::make_shared<ModuleConfiguration>(ModuleConfiguration{"nn.Teacher", teacher});
  }
  trace.ranks[0].configurations = std::make_shared<ModuleConfigurations>(std::move(configurations));
  return trace;
}

}  // namespace

TEST_SUITE_BEGIN("diagnose");

TEST_CASE("attributes that both sides have are compared as numbers, or as Python writes them") {
  const Trace reference = configured_as({{{"eps", "1e-05"}, {"p", "1"}, {"act", "'gelu'"}, {"only", "1"}}});
  CHECK(remarks(reference, configured_as({{{"eps", "1e-06"}, {"p", "1.0"}, {"act", "'relu'"}}})) ==
        Texts{"act 'relu', reference 'gelu'", "eps 1e-06, reference 1e-05"});
  CHECK(remarks(reference, reference).empty());
}

TEST_CASE("a model that is called without gradients is compared, too, and named as such") {
  const Attributes module = {{"eps", "1e-05"}};
  const Trace right = with_teacher(configured_as({module}), {{"training", "False"}});
  const Trace wrong = with_teacher(configured_as({module}), {{"training", "True"}});
  CHECK(remarks(right, right).empty());
  CHECK(remarks(right, wrong) == Texts{"training True, reference False"});
  CHECK(configured_otherwise_without_grad(compared(right, wrong), wrong) ==
        "Teacher, and 1 more: training True, reference False");
  const Trace other = configured_as({{{"eps", "1e-06"}}});
  CHECK(configured_otherwise_without_grad(compared(configured_as({module}), other), other).empty());
  CHECK(models_without_grad(wrong) == Texts{"Teacher"});
  CHECK(models_without_grad(other).empty());
}

TEST_CASE("sizes that are a rank's part, and what says how a program runs on ranks, may differ") {
  const Trace reference = configured_as({{{"out_features", "8"},
                                          {"num_heads", "4"},
                                          {"shape", "(8, 3)"},
                                          {"vocab_size", "11"},
                                          {"tp_size", "1"},
                                          {"sequence_parallel", "False"},
                                          {"process_group", "None"},
                                          {"config.batch_p2p_comm", "True"},
                                          {"apply_rope_fusion", "False"}}});
  const Attributes part = {{"out_features", "4"},
                           {"num_heads", "2"},
                           {"shape", "(4, 3)"},
                           {"vocab_size", "6"},
                           {"tp_size", "2"},
                           {"sequence_parallel", "True"},
                           {"process_group", "1"},
                           {"config.batch_p2p_comm", "False"},
                           {"apply_rope_fusion", "True"}};
  CHECK(remarks(reference, configured_as({part, part})).empty());
  CHECK(remarks(reference, configured_as({part})) == Texts{"num_heads 2, reference 4", "out_features 4, reference 8",
                                                           "shape (4, 3), reference (8, 3)",
                                                           "vocab_size 6, reference 11"});
}

TEST_CASE("a stage knows which one it is, and a function may be one that ranks call together") {
  const Attributes one = {{"last", "True"}, {"norm_first", "True"}, {"sample", "sample_vectors()"}};
  CHECK(remarks(configured_as({one}), configured_as({{{"last", "False"}}, {{"last", "False"}}})).empty());
  CHECK(remarks(configured_as({one}), configured_as({{{"norm_first", "False"}}, {{"norm_first", "False"}}})).size() ==
        1);
  CHECK(remarks(configured_as({one}), configured_as({{{"sample", "sample_vectors_distributed()"}}})).empty());
  CHECK(remarks(configured_as({one}), configured_as({{{"sample", "sample_rows()"}}})).size() == 1);
  CHECK(remarks(configured_as({one}), configured_as({{{"last", "False"}}})).size() == 1);  // one rank has no stages
  CHECK(remarks(configured_as({one}), configured_as({{{"sample", "sample_fused()"}}})).size() == 1);
}

TEST_CASE("what no rank has a part of differs on many ranks, too") {
  const Trace reference = configured_as({{{"kernel_size", "(4, 4)"}, {"top_k", "4"}, {"bias", "True"}}});
  const Attributes other = {{"kernel_size", "(2, 2)"}, {"top_k", "2"}, {"bias", "False"}};
  CHECK(remarks(reference, configured_as({other, other})).size() == 3);
}

TEST_CASE("one rank that is configured otherwise is named; whole numbers may be each rank's own") {
  const Trace reference = configured_as({{{"eps", "1e-05"}, {"offset", "0"}}});
  CHECK(remarks(reference, configured_as({{{"eps", "1e-05"}, {"offset", "0"}}, {{"eps", "1e-06"}, {"offset", "3"}}})) ==
        Texts{"eps 1e-06 on rank 1, reference 1e-05"});
}

TEST_CASE("of modules of two classes only numbers with a fraction are compared") {
  const Attributes one = {{"eps", "1e-05"}, {"bias", "True"}, {"width", "3"}},
                   other = {{"eps", "1e-06"}, {"bias", "False"}, {"width", "5"}};
  CHECK(remarks(configured_as({one}), configured_as({other}, "megatron.Norm")) == Texts{"eps 1e-06, reference 1e-05"});
}

TEST_CASE("dtypes may differ where the runs compute in different ones") {
  Trace reference = configured_as({{{"dtype", "torch.float32"}, {"softmax_in_fp32", "False"}}});
  Trace candidate = configured_as({{{"dtype", "torch.bfloat16"}, {"softmax_in_fp32", "True"}}});
  CHECK(remarks(reference, candidate).size() == 2);
  candidate.compute_dtype = "bfloat16";
  CHECK(remarks(reference, candidate).empty());
}

TEST_CASE("a module is the cause of what it computes, and not of what it is given") {
  const ConfiguredOtherwise configured =
      compared(configured_as({{{"eps", "1e-05"}}}), configured_as({{{"eps", "1e-06"}}}));
  CHECK(configured_otherwise(tensor_id(Kind::kOutput, "m", 0), configured) == "eps 1e-06, reference 1e-05");
  CHECK(configured_otherwise(tensor_id(Kind::kParamGrad, "m.weight", 0), configured) == "eps 1e-06, reference 1e-05");
  CHECK(configured_otherwise(tensor_id(Kind::kInput, "m", 0), configured).empty());
  CHECK(configured_otherwise(tensor_id(Kind::kParam, "m.weight", kNoMicrobatch), configured).empty());
  CHECK(configured_otherwise(tensor_id(Kind::kOutput, "n", 0), configured).empty());
}

TEST_SUITE_END();
