#include "ttrace/load/calibration_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "load/yaml_fields.h"
#include "ttrace/error.h"

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
  for (const YAML::Node& size : fields.take_list("sizes")) {
    file.sizes.push_back(static_cast<std::int64_t>(fields.number_of(size, "sizes")));
  }
  const YAML::Node values = fields.take("e_max");
  Fields dtypes(where, values, fields.last_line(), "'e_max'");
  for (const std::string& name : dtypes.keys()) {
    const double e_max = dtypes.take_number(name);
    const auto dtype = dtype_from_name(name);
    if (!dtype || !is_floating(*dtype) || e_max <= 0) {
      fail_at(where, dtypes.last_line(),
              fmt::format("'{}: {}'; expected a floating dtype and a positive number", name, e_max));
    }
    file.e_max[*dtype] = e_max;
  }
  dtypes.done();
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
  YAML::Emitter yaml;
  yaml << YAML::BeginMap;
  yaml << YAML::Key << "ttrace_calibration" << YAML::Value << std::string(kVersion);
  yaml << YAML::Key << "platform" << YAML::Value << file.platform;
  yaml << YAML::Key << "trials" << YAML::Value << file.trials;
  yaml << YAML::Key << "sizes" << YAML::Value << YAML::Flow << file.sizes;
  yaml << YAML::Key << "e_max" << YAML::Value << YAML::BeginMap;
  for (const auto& [dtype, e_max] : file.e_max) {
    yaml << YAML::Key << std::string(name_of(dtype)) << YAML::Value << fmt::format("{}", e_max);
  }
  yaml << YAML::EndMap << YAML::EndMap;
  return std::string(
             "# V-ABFT's e_max: 1.2 times the largest |E| / |checksum| of products of |N(1, 1)| elements (section "
             "3.6).\n"
             "# `ttrace abft --e-max` takes it for products of these dtypes.\n") +
         yaml.c_str() + "\n";
}

}  // namespace ttrace
