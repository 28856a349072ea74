#include "files/calibration_file.h"

#include <doctest/doctest.h>

#include "base/error.h"

namespace {

using namespace ttrace;

TEST_SUITE("files") {
  TEST_CASE("a calibration file is read as it was written") {
    const CalibrationFile file{
        "torch 2.13, \"H200\": sm_90", 10'000, {64, 1024}, {{Dtype::kFloat32, 5.9e-8}, {Dtype::kBFloat16, 6.8e-4}}};
    const CalibrationFile read = parse_calibration(to_yaml(file), "e_max.yaml");
    CHECK(read.platform == file.platform);
    CHECK(read.trials == file.trials);
    CHECK(read.sizes == file.sizes);
    CHECK(read.e_max == file.e_max);
  }

  TEST_CASE("a calibration that would allow nothing, or is of no dtype, is refused with its line") {
    const std::string head = "ttrace_calibration: 1\nplatform: cpu\ntrials: 1\nsizes: [8]\ne_max:\n";
    CHECK_THROWS_WITH_AS(parse_calibration(head + "  float32: 0\n", "e.yaml"),
                         "e.yaml:6: 'float32: 0'; expected a floating dtype and a positive number", InputError);
    CHECK_THROWS_WITH_AS(parse_calibration(head + "  int8: 0.1\n", "e.yaml"),
                         "e.yaml:6: 'int8: 0.1'; expected a floating dtype and a positive number", InputError);
    CHECK_THROWS_AS(parse_calibration(head + "  float32: .inf\n", "e.yaml"), InputError);
    CHECK_THROWS_AS(parse_calibration("ttrace_tolerance: 1\n", "e.yaml"), InputError);
  }
}

}  // namespace
