// `ttrace calibrate`: how much do matrix products round on this platform? V-ABFT's protocol (section 3.6).
#include "ttrace/abft/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "terminal/write_file.h"
#include "ttrace/error.h"
#include "ttrace/load/calibration_file.h"

namespace ttrace::cli {
namespace {

constexpr std::int64_t kLargestSize = 1 << 15;

[[noreturn]] void refuse(const std::string& what) {
  throw InputError(fmt::format("stdin: {}; expected what ttrace_torch/calibrate.py writes", what));
}

CalibrationFile read_header() {
  std::string line;
  std::getline(std::cin, line);
  const auto header = nlohmann::json::parse(line, nullptr, false);
  CalibrationFile file;
  try {
    header.at("platform").get_to(file.platform);
    header.at("trials").get_to(file.trials);
    header.at("sizes").get_to(file.sizes);
  } catch (const nlohmann::json::exception&) {
    refuse("no line of JSON with platform, trials and sizes");
  }
  return file;
}

std::vector<std::byte> read_matrix(std::int64_t bytes) {
  std::vector<std::byte> data(static_cast<std::size_t>(bytes));
  std::cin.read(reinterpret_cast<char*>(data.data()), bytes);
  if (std::cin.gcount() != bytes) refuse("ends within a matrix");
  return data;
}

// The relative error of the product that `head`, its line `DTYPE N`, stands before.
std::pair<Dtype, double> read_product(const std::string& head) {
  const std::size_t space = std::min(head.find(' '), head.size());
  const auto dtype = dtype_from_name(head.substr(0, space));
  const std::int64_t size = std::atoll(head.c_str() + space);
  if (!dtype || !is_floating(*dtype) || size < 1 || size > kLargestSize) {
    refuse(fmt::format("'{}' is no dtype and size", head));
  }
  const std::int64_t bytes = size * size * size_of(*dtype);
  const std::vector<std::byte> a = read_matrix(bytes), b = read_matrix(bytes), c = read_matrix(bytes);
  const auto view = [&](const std::vector<std::byte>& matrix) {
    return abft::row_major(matrix.data(), *dtype, size, size);
  };
  const double error = abft::relative_error({.terms = {{view(a), view(b)}}, .c = view(c)});
  if (!std::isfinite(error)) refuse(fmt::format("a product of {} is not finite", head));
  return {*dtype, error};
}

int run(const std::string& output) {
  CalibrationFile file = read_header();
  std::string head;
  while (std::getline(std::cin, head) && head != "end") {
    const auto [dtype, error] = read_product(head);
    double& e_max = file.e_max[dtype];
    e_max = std::max(e_max, abft::kCalibrationMargin * error);
  }
  if (head != "end") refuse("ends before the last product");
  if (file.e_max.empty()) refuse("has no product");
  write_file(output, to_yaml(file));
  for (const auto& [dtype, e_max] : file.e_max) {
    std::cout << fmt::format("{:12} e_max {:.2e}, {:.2f} times the unit roundoff\n", name_of(dtype), e_max,
                             e_max / abft::unit_roundoff(dtype));
  }
  return kExitSame;
}

}  // namespace

void add_calibrate(CLI::App& app, Run& run_command) {
  auto output = std::make_shared<std::string>();
  CLI::App* calibrate = app.add_subcommand("calibrate", "Measure what products round on this platform, for abft");
  calibrate->add_option("-o,--output", *output, "File to write, for `ttrace abft --e-max`")->required();
  calibrate->footer(
      "Reads products of positive random matrices from stdin, as your platform computes them, and writes V-ABFT's\n"
      "e_max of each dtype: the largest relative error of a row's sum, with a margin of 20 % (section 3.6). The "
      "script\n"
      "that makes them stands beside the program, in share/ttrace/ttrace_torch/; --device cuda runs it on a GPU.\n"
      "\n"
      "Examples:\n"
      "  python share/ttrace/ttrace_torch/calibrate.py | ttrace calibrate -o e_max.yaml\n"
      "  ttrace abft candidate -a gpt.yaml --e-max e_max.yaml\n"
      "\n"
      "Exit codes: 0 written, 2 could not look.");
  calibrate->callback([output, &run_command] { run_command = [output] { return run(*output); }; });
}

}  // namespace ttrace::cli
