// Reads and writes what `ttrace calibrate` found: V-ABFT's e_max of a platform, by the dtype of a product and its
// operands.
//
//   ttrace_calibration: 1
//   platform: torch 2.13.0+cpu, cpu
//   trials: 10000                          # rows of products of each size
//   sizes: [64, 256, 1024]
//   e_max:
//     float32: 5.9e-08
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "numeric/dtype.h"

namespace ttrace {

struct CalibrationFile {
  std::string platform;
  std::int64_t trials = 0;
  std::vector<std::int64_t> sizes;
  std::map<Dtype, double> e_max;
};

// Throws InputError with `file:line` for YAML that does not parse, keys that are unknown, missing or twice, names that
// are no floating dtype, numbers that are not finite or not positive.
CalibrationFile read_calibration(const std::filesystem::path& path);
CalibrationFile parse_calibration(const std::string& text, const std::string& where);
std::string to_yaml(const CalibrationFile& file);  // parses back to the same values

}  // namespace ttrace
