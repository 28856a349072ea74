#include "files/calibration_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "files/yaml_fields.h"
#include "text/yaml.h"

namespace ttrace {
namespace {

constexpr const char* kCalibrationFile = "a file of `ttrace calibrate`";
constexpr std::string_view kVersion = "1";

CalibrationFile read_fields(const std::string& where, Fields& fields) {
  CalibrationFile file;
  if (const std::string version = fields.take_word("ttrace_calibration"); version != kVersion) {
    fail_at(where, fields.last_line(), fmt::format("calibration file version {}; expected {}", version, kVersion));
  }
  file.platform = fields.take_word("platform");
  file.trials = static_cast<std::int64_t>(fields.take_number("trials"));
  for (const YamlNode& size : fields.take_list("sizes")) {
    file.sizes.push_back(static_cast<std::int64_t>(fields.number_of(size, "sizes")));
  }
  const YamlNode values = fields.take("e_max");
  Fields dtypes(where, values, fields.last_line(), "'e_max'");
  dtypes.take_each([&](const std::string& name, const YamlNode& value) {
    const double e_max = dtypes.number_of(value, name);
    const auto dtype = dtype_from_name(name);
    if (!dtype || !is_floating(*dtype) || e_max <= 0) {
      fail_at(where, dtypes.last_line(),
              fmt::format("'{}: {}'; expected a floating dtype and a positive number", name, e_max));
    }
    file.e_max[*dtype] = e_max;
  });
  fields.done();
  return file;
}

}  // namespace

CalibrationFile parse_calibration(const std::string& text, const std::string& where) {
  CalibrationFile file;
  read_mapping(text, where, kCalibrationFile, "YAML as `ttrace calibrate` writes it",
               [&](Fields& fields) { file = read_fields(where, fields); });
  return file;
}

CalibrationFile read_calibration(const std::filesystem::path& path) {
  return parse_calibration(read_text_file(path, kCalibrationFile), path.string());
}

std::string to_yaml(const CalibrationFile& file) {
  std::string text = fmt::format(
      "# V-ABFT's e_max: 1.2 times the largest |E| / |checksum| of products of |N(1, 1)| elements (section 3.6).\n"
      "# `ttrace abft --e-max` takes it for products of these dtypes.\n"
      "ttrace_calibration: {}\nplatform: {}\ntrials: {}\nsizes: [{}]\ne_max:\n",
      kVersion, yaml_word(file.platform), file.trials, fmt::join(file.sizes, ", "));
  for (const auto& [dtype, e_max] : file.e_max) text += fmt::format("  {}: {}\n", name_of(dtype), e_max);
  return text;
}

}  // namespace ttrace
