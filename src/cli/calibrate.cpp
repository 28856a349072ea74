// `ttrace calibrate`: how much do matrix products round on this platform? V-ABFT's protocol (section 3.6).
#include "abft/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "abft/threshold.h"
#include "base/error.h"
#include "cli/commands.h"
#include "files/calibration_file.h"
#include "host/installation.h"
#include "host/launch.h"
#include "host/shell_words.h"
#include "host/write_file.h"
#include "numeric/convert.h"
#include "numeric/dtype.h"

namespace ttrace::cli {
namespace {

constexpr std::int64_t kLargestSize = 1 << 15;

// The checksums of products that a command prints.
class Products {
 public:
  explicit Products(const std::vector<std::string>& command)
      : name_(shell_line(command)), pipe_(popen(shell_line(with_package(command)).c_str(), "r"), &pclose) {
    if (!pipe_) refuse("cannot be run");
  }

  // Returns the line without its end; empty where there is none.
  std::string read_line() {
    std::string line;
    for (int c = std::getc(pipe_.get()); c != EOF && c != '\n'; c = std::getc(pipe_.get())) {
      line += static_cast<char>(c);
    }
    return line;
  }

  std::vector<double> read_vector(Dtype dtype, std::int64_t size) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(size * size_of(dtype)));
    if (std::fread(bytes.data(), 1, bytes.size(), pipe_.get()) != bytes.size()) refuse("ends within a product");
    std::vector<double> values(static_cast<std::size_t>(size));
    widen(bytes.data(), dtype, size, values.data());
    return values;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw InputError(fmt::format("{}: {}; expected what `python -m ttrace_torch.calibrate` prints", name_, what));
  }

 private:
  // Python finds the package ttrace_torch, and nobody the key of seals.
  static std::vector<std::string> with_package(std::vector<std::string> command) {
    command.insert(command.begin(),
                   {"env", "-u", std::string(kSealKeyVariable), python_path_with(beside_program("share/ttrace"))});
    return command;
  }

  const std::string name_;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe_;
};

CalibrationFile read_header(Products& products) {
  const auto header = nlohmann::json::parse(products.read_line(), nullptr, false);
  CalibrationFile file;
  try {
    header.at("platform").get_to(file.platform);
    header.at("trials").get_to(file.trials);
    header.at("sizes").get_to(file.sizes);
  } catch (const nlohmann::json::exception&) {
    products.refuse("no line of JSON with platform, trials and sizes");
  }
  return file;
}

// The relative error of the product that `head`, its line `DTYPE N`, stands before.
std::pair<Dtype, double> read_product(Products& products, const std::string& head) {
  const std::size_t space = std::min(head.find(' '), head.size());
  const auto dtype = dtype_from_name(head.substr(0, space));
  std::int64_t size = 0;
  std::from_chars(std::min(head.data() + space + 1, head.data() + head.size()), head.data() + head.size(), size);
  if (!dtype || !is_floating(*dtype) || size < 1 || size > kLargestSize) {
    products.refuse(fmt::format("'{}' is no dtype and size", head));
  }
  const std::vector<double> sums = products.read_vector(*dtype, size), checksums = products.read_vector(*dtype, size);
  const double error = abft::relative_error(sums, checksums);
  if (!std::isfinite(error)) products.refuse(fmt::format("a product of {} is not finite", head));
  return {*dtype, error};
}

struct CalibrateOptions {
  std::string output;
  std::vector<std::string> command;
};

int run(const CalibrateOptions& options) {
  Products products(options.command);
  CalibrationFile file = read_header(products);
  std::string head = products.read_line();
  for (; !head.empty() && head != "end"; head = products.read_line()) {
    const auto [dtype, error] = read_product(products, head);
    double& e_max = file.e_max[dtype];
    e_max = std::max(e_max, abft::kCalibrationMargin * error);
  }
  if (head != "end") products.refuse("ends before the last product");
  if (file.e_max.empty()) products.refuse("has no product");
  write_file(options.output, to_yaml(file));
  for (const auto& [dtype, e_max] : file.e_max) {
    std::cout << fmt::format("{:12} e_max {:.2e}, {:.2f} times the unit roundoff\n", name_of(dtype), e_max,
                             e_max / abft::unit_roundoff(dtype));
  }
  return kExitSame;
}

}  // namespace

void add_calibrate(CLI::App& app, Run& run_command) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* calibrate = app.add_subcommand("calibrate", "Measure what products round on this platform, for abft");
  calibrate->add_option("COMMAND", options->command, "The command that computes products, after --")->required();
  calibrate->add_option("-o,--output", options->output, "File to write, for `ttrace abft --e-max`")
      ->type_name("FILE")
      ->required();
  calibrate->footer(R"(Runs the command, which multiplies positive random matrices on your platform and
prints the sums of each product's rows, and what they should be by its operands'
sums, both as the platform rounds them; writes V-ABFT's e_max of each dtype: the
largest relative difference, with a margin of 20 % (section 3.6). PyTorch's are
computed by `python -m ttrace_torch.calibrate`, which is there for every
Python below this command; it takes --device, --sizes, --dtypes and --trials.

Examples:
  ttrace calibrate -o e_max.yaml -- python -m ttrace_torch.calibrate
  ttrace calibrate -o e_max.yaml -- \
    python -m ttrace_torch.calibrate --device cuda --sizes 64 1024 4096
  ttrace abft candidate -a gpt.yaml --e-max e_max.yaml

Exit codes: 0 written, 2 could not look.)");
  calibrate->callback([options, &run_command] { run_command = [options] { return run(*options); }; });
}

}  // namespace ttrace::cli
