#include <doctest/doctest.h>

#include "diagnose/root_causes.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

Finding wrong(const TensorId& id, Reason reason) {
  Finding finding;
  finding.id = id;
  finding.verdict = Verdict::kFail;
  finding.reason = reason;
  finding.message = to_string(id) + ": row 2 is off";
  return finding;
}

Report with_roots(std::vector<Finding> findings) {
  Report report;
  report.findings = std::move(findings);
  add_root_of_each_module(report);
  return report;
}

}  // namespace

TEST_SUITE_BEGIN("diagnose");

TEST_CASE("of a trace held against itself, the first wrong tensor of every module is a root") {
  const Report report = with_roots({wrong(tensor_id(Kind::kOutput, "embedding", 0), Reason::kProductDiffers),
                                    wrong(tensor_id(Kind::kOutput, "fc", 0), Reason::kProductDiffers),
                                    wrong(tensor_id(Kind::kParamGrad, "fc.weight", 0), Reason::kProductDiffers),
                                    wrong(tensor_id(Kind::kOutput, "fc", 1), Reason::kProductDiffers)});
  REQUIRE(report.explanation.roots.size() == 2);
  CHECK(report.explanation.roots[0].module == "embedding");
  CHECK(report.explanation.roots[0].sentence == "embedding, output, micro-batch 0: row 2 is off.");
  CHECK(report.explanation.roots[1].finding == 1);
  CHECK(report.explanation.roots[1].sentence ==
        "fc, output, micro-batch 0: row 2 is off; the same in 1 more micro-batch or iteration.");
  CHECK(report.explanation.roots[1].examined);
}

TEST_CASE("modules of many layers that are wrong in the same way are one root") {
  const Report report = with_roots({wrong(tensor_id(Kind::kOutput, "layers.0.fc", 0), Reason::kProductDiffers),
                                    wrong(tensor_id(Kind::kOutput, "layers.1.fc", 0), Reason::kProductDiffers),
                                    wrong(tensor_id(Kind::kOutput, "layers.2.fc", 0), Reason::kNotFinite)});
  REQUIRE(report.explanation.roots.size() == 2);
  CHECK(report.explanation.roots[0].alike == std::vector<std::string>{"layers.1.fc"});
  CHECK(report.explanation.roots[1].module == "layers.2.fc");
}

TEST_CASE("copies that differ behind a wrong tensor follow from it, and are a root where nothing is wrong before") {
  const Finding product = wrong(tensor_id(Kind::kOutput, "fc", 0), Reason::kProductDiffers);
  const Finding copies = wrong(tensor_id(Kind::kOutput, "norm", 0), Reason::kReplicasDisagree);
  CHECK(with_roots({product, copies}).explanation.roots.size() == 1);
  const Report report = with_roots({copies, product});
  REQUIRE(report.explanation.roots.size() == 2);
  CHECK(report.explanation.roots[0].module == "norm");
}
