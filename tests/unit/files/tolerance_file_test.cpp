#include "files/tolerance_file.h"

#include <doctest/doctest.h>

#include <fstream>
#include <limits>

#include "base/error.h"
#include "support/temporary_directory.h"

using namespace ttrace;

namespace {

// A file with one field a line; the tests replace one line.
const std::string kWhole =
    "ttrace_tolerance: 4\n"
    "reference: 2f6c\n"
    "digest: 9f86d081884c7d65\n"
    "perturbed:\n"
    "  - {run: 81aa, seed: 1}\n"
    "  - {run: 82aa, seed: 2}\n"
    "  - {run: 83aa, seed: 3}\n"
    "rerun: 97d0\n"
    "compute_dtype: bfloat16\n"
    "epsilon: 0.0078125\n"
    "margin: 3\n"
    "notes: []\n"
    "overrides:\n"
    "  - {pattern: mlp.router, kind: output, allowed: 0.2, reason: a token near a tie may be re-routed}\n"
    "tensors:\n"
    "  output:\n"
    "    embedding: {samples: [0.003, 0.002, 0.001], rerun: 0, estimate: 0.003, floor: 0.0078125, allowed: "
    "0.0234375}\n";

std::string with(const std::string& part, const std::string& other) {
  std::string text = kWhole;
  const std::size_t at = text.find(part);
  REQUIRE(at != std::string::npos);
  return text.replace(at, part.size(), other);
}

std::string tolerance_error(const std::string& text) {
  try {
    parse_tolerances(text, "t.yaml");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

void check_equal(const ToleranceFile& a, const ToleranceFile& b) {
  CHECK(a.reference_run == b.reference_run);
  CHECK(a.reference_digest == b.reference_digest);
  CHECK(a.perturbed_runs == b.perturbed_runs);
  CHECK(a.seeds == b.seeds);
  CHECK(a.rerun == b.rerun);
  CHECK(a.estimator == b.estimator);
  CHECK(a.compute_dtype == b.compute_dtype);
  CHECK(a.epsilon == b.epsilon);
  CHECK(a.margin == b.margin);
  CHECK(a.notes == b.notes);
  REQUIRE(a.overrides.size() == b.overrides.size());
  for (std::size_t i = 0; i < a.overrides.size(); ++i) {
    CHECK(a.overrides[i].pattern == b.overrides[i].pattern);
    CHECK(a.overrides[i].kind == b.overrides[i].kind);
    CHECK(a.overrides[i].allowed == b.overrides[i].allowed);
    CHECK(a.overrides[i].reason == b.overrides[i].reason);
  }
  REQUIRE(a.tensors.size() == b.tensors.size());
  for (auto one = a.tensors.begin(), other = b.tensors.begin(); one != a.tensors.end(); ++one, ++other) {
    CHECK(one->first == other->first);
    CHECK(one->second.samples == other->second.samples);
    CHECK(one->second.rerun == other->second.rerun);
    CHECK(one->second.estimate == other->second.estimate);
    CHECK(one->second.floor == other->second.floor);
    CHECK(one->second.allowed == other->second.allowed);
    REQUIRE(one->second.statistics.size() == other->second.statistics.size());
    for (const auto& [statistic, said] : one->second.statistics) {
      const StatisticTolerance& same = other->second.statistics.at(statistic);
      CHECK(said.samples == same.samples);
      CHECK(said.rerun == same.rerun);
      CHECK(said.estimate == same.estimate);
      CHECK(said.responses == same.responses);
      CHECK(said.floor == same.floor);
      CHECK(said.allowed == same.allowed);
    }
  }
}

}  // namespace

TEST_SUITE_BEGIN("files");

TEST_CASE("every field of a tolerance file is read") {
  const ToleranceFile file = parse_tolerances(kWhole, "t.yaml");
  CHECK(file.path == "t.yaml");
  CHECK(file.reference_run == "2f6c");
  CHECK(file.reference_digest == "9f86d081884c7d65");
  CHECK(file.perturbed_runs == std::vector<std::string>{"81aa", "82aa", "83aa"});
  CHECK(file.seeds == std::vector<std::uint64_t>{1, 2, 3});
  CHECK(file.rerun == "97d0");
  CHECK(file.compute_dtype == "bfloat16");
  CHECK(file.epsilon == 0.0078125);
  CHECK(file.margin == 3);
  REQUIRE(file.overrides.size() == 1);
  CHECK(file.overrides[0].pattern == "mlp.router");
  CHECK(file.overrides[0].kind == Kind::kOutput);
  CHECK(file.overrides[0].allowed == 0.2);
  CHECK(file.overrides[0].reason == "a token near a tie may be re-routed");
  CHECK(file.overrides[0].line == 14);
  REQUIRE(file.tensors.size() == 1);
  const Tolerance& tolerance = file.tensors.at({Kind::kOutput, "embedding"});
  CHECK(tolerance.samples == std::vector<double>{0.003, 0.002, 0.001});
  CHECK(tolerance.rerun == 0);
  CHECK(tolerance.allowed == 0.0234375);
}

TEST_CASE("what is written reads back the same, whatever the names and the numbers") {
  ToleranceFile file = parse_tolerances(kWhole, "t.yaml");
  file.seeds = {std::numeric_limits<std::uint64_t>::max(), 0, 1};
  file.perturbed_runs = {"null", "~", "1e5"};
  file.rerun = std::nullopt;
  file.estimator = Estimator::kModules;
  file.notes = {"one: \"two\" \\ # three", "", "tab\tline\nend"};
  file.overrides.push_back({"*:attn#1", std::nullopt, 0, "- {a: b}", 0});
  for (const char* name : {"null", "yes", "~", "1e5", "a: b", "shared:1#2", "\x01\x1b[2J", "\xc3\xa9", "\xc2\x85",
                           "\xe2\x80\xa8x", "\xef\xbf\xbf", "0.mlp", "-", "a'\"b"}) {
    file.tensors[{Kind::kParamDelta, name}] = {
        {1.0 / 3, std::numeric_limits<double>::denorm_min(), 0},
        std::nullopt,
        1.0 / 3,
        1e-300,
        1.0,
        {{Statistic::kScale,
          {{-1e-5, 1.0 / 7, -1.0 / 3}, -1e-7, 0.25, 6, 1e-300, factor_of(Statistic::kScale, 6, 3) * 0.25}},
         {Statistic::kElement, {{1, 2, 1.0 / 3}, std::nullopt, 2, 3, 0, 12}}}};
  }
  const std::string text = to_yaml(file);
  const ToleranceFile back = parse_tolerances(text, "t.yaml");
  check_equal(file, back);
  CHECK(to_yaml(back) == text);
}

TEST_CASE("what is said of a statistic must follow from its samples, and from those of its group") {
  const std::string line =
      "    embedding: {samples: [0.003, 0.002, 0.001], rerun: 0, estimate: 0.003, floor: 0.0078125, allowed: 0.0234375";
  const auto saying = [&](const std::string& statistic) {
    return tolerance_error(with(line + "}", line + ", " + statistic + "}"));
  };
  CHECK(saying("row: {samples: [0.1, 0.2, 0.1], estimate: 0.2, responses: 3, floor: 0.01, allowed: 1.2}") == "");
  CHECK(saying("row: {samples: [0.1, 0.2, 0.1], estimate: 0.2, responses: 3, floor: 0.01, allowed: 0.7}")
            .starts_with("t.yaml:17: 'allowed' of row of 'embedding' is 0.7; expected 1.2"));
  CHECK(saying("row: {samples: [0.1, 0.2, 0.1], estimate: 0.3, responses: 3, floor: 0.01, allowed: 1.8}")
            .starts_with("t.yaml: 'estimate' of row of embedding output is 0.3; expected at most 0.2, the largest of "
                         "the samples"));
  CHECK(saying("scale: {samples: [-0.1, 0.1], estimate: 0.1, responses: 3, floor: 0, allowed: 28.043}")
            .starts_with("t.yaml:17: scale of 'embedding' has 2 samples and 3 responses; expected 3 samples"));
  CHECK(saying("scale: {samples: [-0.1, 0.1, 0], estimate: 0.1, responses: 3, floor: 0, allowed: 28.043}")
            .starts_with("t.yaml:17: 'allowed' of scale of 'embedding' is 28.043; expected 60.41"));
}

TEST_CASE("a file without tensors, notes and overrides reads back") {
  ToleranceFile file = parse_tolerances(kWhole, "t.yaml");
  file.tensors.clear();
  file.overrides.clear();
  check_equal(file, parse_tolerances(to_yaml(file), "t.yaml"));
}

TEST_CASE("a written tolerance file is one line a tensor") {
  const std::string text = to_yaml(parse_tolerances(kWhole, "t.yaml"));
  const std::size_t seal = text.find("seal: x");
  REQUIRE(seal != std::string::npos);
  CHECK(text.substr(seal + 23, 1) == "\n");
  CHECK(text.substr(0, seal) + text.substr(seal + 24) ==
        "# What each tensor may differ by in `ttrace check`: allowed = margin * max(estimate, floor), where\n"
        "# estimate is the largest of `samples` (the perturbed runs) and `rerun`. What `scale`, `row` and `element`\n"
        "# may be comes from the samples of all tensors of a kind whose names differ in numbers. To allow something\n"
        "# else, add an override: {pattern: mlp.router, kind: output, allowed: 0.2, reason: ...}\n"
        "ttrace_tolerance: 4\n"
        "reference: \"2f6c\"\n"
        "digest: \"9f86d081884c7d65\"\n"
        "perturbed:\n"
        "  - {run: \"81aa\", seed: 1}\n"
        "  - {run: \"82aa\", seed: 2}\n"
        "  - {run: \"83aa\", seed: 3}\n"
        "rerun: \"97d0\"\n"
        "estimator: input\n"
        "compute_dtype: bfloat16\n"
        "epsilon: 0.0078125\n"
        "margin: 3\n"
        "notes: []\n"
        "overrides:\n"
        "  - {pattern: mlp.router, kind: output, allowed: 0.2, reason: \"a token near a tie may be re-routed\"}\n"
        "tensors:\n"
        "  output:\n"
        "    embedding: {samples: [0.003, 0.002, 0.001], rerun: 0, estimate: 0.003, floor: 0.0078125, allowed: "
        "0.0234375}\n");
}

TEST_CASE("numbers that were changed to fit each other are refused by the seal; overrides and comments may change") {
  const std::string text = to_yaml(parse_tolerances(kWhole, "t.yaml"));
  const auto changed = [&](const std::string& part, const std::string& other) {
    std::string result = text;
    const std::size_t at = result.find(part);
    REQUIRE(at != std::string::npos);
    return tolerance_error(result.replace(at, part.size(), other));
  };
  CHECK(tolerance_error(text).empty());
  const std::string refused =
      changed("[0.003, 0.002, 0.001], rerun: 0, estimate: 0.003, floor: 0.0078125, allowed: 0.0234375",
              "[0.3, 0.002, 0.001], rerun: 0, estimate: 0.3, floor: 0.0078125, allowed: 0.9");
  CHECK(refused.find("they are not those that `ttrace estimate-tolerance` wrote") != std::string::npos);
  CHECK_FALSE(changed("margin: 3", "margin: 3.0").empty());
  CHECK_FALSE(changed("digest: \"9f", "digest: \"8f").empty());
  CHECK(changed("allowed: 0.2,", "allowed: 0.3,").empty());
  CHECK(changed("overrides:\n", "overrides:\n# mine\n  - {pattern: mlp, allowed: 0.1, reason: why}\n\n").empty());
  CHECK(changed("notes: []\n", "notes: []  \r\n").empty());
}

TEST_CASE("how far options may be from the reference's is read back, and never much") {
  const std::string section =
      "options:\n"
      "  torch.optim.adam.Adam:\n"
      "    1: {eps: [0, 0, 0.5, 0], lr: [1.5e-05, 0, 2e-06, 0]}\n";
  const ToleranceFile file = parse_tolerances(with("tensors:\n", section + "tensors:\n"), "t.yaml");
  const OptionSamples& options = file.options.at({"torch.optim.adam.Adam", 1});
  CHECK(allowed_for_option(options.at("lr")) == doctest::Approx(1.5e-4));
  CHECK(allowed_for_option(options.at("eps")) == 0.01);
  CHECK(parse_tolerances(to_yaml(file), "t.yaml").options == file.options);
  CHECK(tolerance_error(with("tensors:\n", "options: {mine.Lion: {1: {lr: 3}}}\ntensors:\n")) ==
        "t.yaml:15: 'lr' is no list; expected one");
  CHECK(tolerance_error(with("tensors:\n", "options: {mine.Lion: {1: {lr: [3]}}}\ntensors:\n")) ==
        "t.yaml:15: 'lr' has 1 samples; expected 4, one for each perturbed run and the rerun");
}

TEST_CASE("how far updates may be from the reference's is read back, and refused where nothing measures it so") {
  const std::string section =
      "updates:\n"
      "  mine.Lion:\n"
      "    0: {pool: [0, 1e-08, 0, 0], tensor: [1e-06, 0, 0, 0], decay: [0, 0, 0, 0], norm: [1, 1, 1, 1], "
      "still_above: [0, 0, 0, 0], still: [0, 0, 0, 0.25]}\n"
      "    2: {pool: [0, 1e-07, 0, 0], tensor: [1e-06, 0, 0, 0], decay: [0, 0, 0, 0], norm: [1, 1, 1, 1], "
      "still_above: [0, 0, 0, 0], still: [0, 0, 0, 0]}\n";
  const auto error_with = [&](const std::string& part, const std::string& other) {
    std::string changed = section;
    const std::size_t at = changed.find(part);
    REQUIRE(at != std::string::npos);
    return tolerance_error(with("tensors:\n", changed.replace(at, part.size(), other) + "tensors:\n"));
  };
  const ToleranceFile file = parse_tolerances(with("tensors:\n", section + "tensors:\n"), "t.yaml");
  REQUIRE(file.updates.size() == 2);
  const UpdateTolerance& first = file.updates.at({"mine.Lion", 0});
  CHECK(allowed_for(first, UpdateMeasure::kPool) == 0x1p-22);  // its least
  CHECK(allowed_for(first, UpdateMeasure::kTensor) == doctest::Approx(5e-6));
  CHECK(allowed_for(first, UpdateMeasure::kStill) == 0.75);
  CHECK(allowed_for(first, UpdateMeasure::kStillAbove) == 0.01);
  CHECK(parse_tolerances(to_yaml(file), "t.yaml").updates == file.updates);
  CHECK(error_with("pool: [0, 1e-08, 0, 0]", "pool: [0, 2, 0, 0]") ==
        "t.yaml:17: 'pool' has the sample 2; expected at most 1");
  CHECK(error_with("pool: [0, 1e-08, 0, 0]", "pool: [0, 0, 0]") ==
        "t.yaml:17: 'pool' has 3 samples; expected 4, one for each perturbed run and the rerun");
  CHECK(error_with("pool: [0, 1e-08, 0, 0]", "pool: [0, .nan, 0, 0]").find("expected a finite number from 0") !=
        std::string::npos);
  CHECK(error_with("    2:", "    -2:") == "t.yaml:18: '-2' is no iteration; expected an integer from 0");
  CHECK(error_with("    2:", "    0:") == "t.yaml:18: 'mine.Lion' has '0' twice; expected it once");
  CHECK(error_with("pool: [0, 1e-08, 0, 0], ", "") ==
        "t.yaml:17: iteration 0 of 'mine.Lion' has no 'pool'; expected one");
}

TEST_CASE("the header's mistakes are refused with their line") {
  CHECK(tolerance_error(with("ttrace_tolerance: 4", "ttrace_tolerance: 3")) ==
        "t.yaml:1: tolerance file version 3; expected 4: run `ttrace estimate-tolerance` again");
  CHECK(tolerance_error(with("digest: 9f86d081884c7d65\n", "")) == "t.yaml:1: the file has no 'digest'; expected one");
  CHECK(tolerance_error(with("reference: 2f6c\n", "")) == "t.yaml:1: the file has no 'reference'; expected one");
  CHECK(tolerance_error(with("reference: 2f6c", "reference: []")) ==
        "t.yaml:2: 'reference' of the file is no word; expected one");
  CHECK(tolerance_error(with("margin: 3", "margin: 3\nmargin: 4")) ==
        "t.yaml:12: the file has 'margin' twice; expected it once");
  CHECK(tolerance_error(with("margin: 3", "margin: 3\nmargn: 4")) ==
        "t.yaml:12: the file has an unknown key 'margn'; expected ttrace_tolerance, reference, digest, anchor, "
        "perturbed, rerun, estimator, compute_dtype, epsilon, margin, notes, overrides, tensors, coherence, updates, "
        "options, seal, seal_by_key");
  CHECK(tolerance_error(with("notes: []", "notes: none")) == "t.yaml:12: 'notes' of the file is no list; expected one");
  CHECK(tolerance_error(with("seed: 1", "seed: -1")) == "t.yaml:5: seed '-1'; expected an integer from 0");
  CHECK(tolerance_error(with("seed: 1", "seed: 18446744073709551616")) ==
        "t.yaml:5: seed '18446744073709551616'; expected an integer from 0");
  CHECK(tolerance_error(with(", seed: 1", "")) == "t.yaml:5: a perturbed run has no 'seed'; expected one");
}

TEST_CASE("an estimator that is none is refused; a file that names none is of the first activation's") {
  CHECK(parse_tolerances(kWhole, "t.yaml").estimator == Estimator::kInput);
  CHECK(tolerance_error(with("rerun: 97d0\n", "rerun: 97d0\nestimator: outputs\n")) ==
        "t.yaml:9: estimator is 'outputs'; expected one of input, modules, rewritten");
}

TEST_CASE("an epsilon that is not the compute dtype's is refused") {
  CHECK(tolerance_error(with("compute_dtype: bfloat16", "compute_dtype: int64")) ==
        "t.yaml:9: compute_dtype is 'int64'; expected a floating-point one, such as bfloat16");
  CHECK(tolerance_error(with("compute_dtype: bfloat16", "compute_dtype: bf16")) ==
        "t.yaml:9: compute_dtype is 'bf16'; expected a floating-point one, such as bfloat16");
  CHECK(tolerance_error(with("epsilon: 0.0078125", "epsilon: 0.5")) ==
        "t.yaml:10: epsilon is 0.5; expected 0.0078125, that of bfloat16");
}

TEST_CASE("numbers that are not finite, negative or no numbers are refused") {
  for (const char* word : {"-3", "inf", ".inf", "nan", ".nan", "1e999", "3x", "0x3", "''", "[3]"}) {
    const bool scalar = std::string(word) != "''" && std::string(word) != "[3]";
    CHECK(tolerance_error(with("margin: 3", std::string("margin: ") + word)) ==
          std::string("t.yaml:11: 'margin' of the file is '") + (scalar ? word : "") +
              "'; expected a finite number from 0");
  }
  CHECK(tolerance_error(with("samples: [0.003, 0.002, 0.001]", "samples: [0.003, 0.002, -1]")) ==
        "t.yaml:17: 'samples' of 'embedding' is '-1'; expected a finite number from 0");
  CHECK(tolerance_error(with("allowed: 0.0234375", "allowed: nan")) ==
        "t.yaml:17: 'allowed' of 'embedding' is 'nan'; expected a finite number from 0");
}

TEST_CASE("numbers that do not follow from the others are refused: an override is the place for them") {
  const std::string remedy = ": to allow something else, add an override with a reason";
  CHECK(tolerance_error(with("allowed: 0.0234375", "allowed: 0.9")) ==
        "t.yaml:17: 'allowed' of 'embedding' is 0.9; expected 0.0234375, margin * max(estimate, floor)" + remedy);
  CHECK(tolerance_error(with("allowed: 0.0234375", "allowed: 0.02")) ==
        "t.yaml:17: 'allowed' of 'embedding' is 0.02; expected 0.0234375, margin * max(estimate, floor)" + remedy);
  CHECK(tolerance_error(with("estimate: 0.003", "estimate: 0.3")) ==
        "t.yaml:17: 'estimate' of 'embedding' is 0.3; expected 0.003, the largest of its samples and rerun" + remedy);
  CHECK(tolerance_error(with("margin: 3", "margin: 0.5")) == "t.yaml:11: margin is 0.5; expected 1 or more");
  CHECK(tolerance_error(with("allowed: 0.0234375", "allowed: 2.34375e-2")).empty());
}

TEST_CASE("a file of too few perturbed runs, or of other numbers of samples, is refused") {
  CHECK(tolerance_error(with("  - {run: 83aa, seed: 3}\n", "")) ==
        "t.yaml:4: 2 different perturbed runs of 2; expected 3 or more, each once");
  CHECK(tolerance_error(with("83aa", "81aa")) ==
        "t.yaml:4: 2 different perturbed runs of 3; expected 3 or more, each once");
  CHECK(tolerance_error(with("[0.003, 0.002, 0.001]", "[0.003]")) ==
        "t.yaml:17: 'embedding' has 1 samples; expected 3, one for each perturbed run");
}

TEST_CASE("an override needs a pattern, a number and a reason, and a kind that exists") {
  CHECK(tolerance_error(with(", reason: a token near a tie may be re-routed", "")) ==
        "t.yaml:14: an override has no 'reason'; expected one");
  CHECK(tolerance_error(with("reason: a token near a tie may be re-routed", "reason: ''")) ==
        "t.yaml:14: 'reason' of an override is no word; expected one");
  CHECK(tolerance_error(with("allowed: 0.2", "allowed: any")) ==
        "t.yaml:14: 'allowed' of an override is 'any'; expected a finite number from 0");
  CHECK(tolerance_error(with("pattern: mlp.router, ", "")) == "t.yaml:14: an override has no 'pattern'; expected one");
  CHECK(tolerance_error(with("kind: output", "kind: outputs")) ==
        "t.yaml:14: 'outputs' is no kind of tensor; expected output, main_grad, ...");
  CHECK(tolerance_error(with("kind: output", "iteration: 0")) ==
        "t.yaml:14: an override has an unknown key 'iteration'; expected pattern, allowed, reason, kind");
  CHECK(tolerance_error(with("  - {pattern: mlp.router, kind: output, allowed: 0.2, reason: a token near a tie may be "
                             "re-routed}",
                             "  - mlp.router")) == "t.yaml:14: an override is no mapping; expected `key: value`");
}

TEST_CASE("a tensor's entry is complete and there once") {
  CHECK(tolerance_error(with("  output:\n", "  outputs:\n")) ==
        "t.yaml:16: 'outputs' is no kind of tensor; expected output, main_grad, ...");
  CHECK(tolerance_error(with(", allowed: 0.0234375", "")) == "t.yaml:17: 'embedding' has no 'allowed'; expected one");
  CHECK(tolerance_error(with("floor: 0.0078125", "floor: 0.0078125, scales: 2")) ==
        "t.yaml:17: 'embedding' has an unknown key 'scales'; expected samples, rerun, estimate, floor, allowed, scale, "
        "row, element, cell, light, of_zero");
  CHECK(tolerance_error(kWhole + "    embedding: {}\n") ==
        "t.yaml:18: 'output' has 'embedding' twice; expected it once");
  CHECK(tolerance_error(kWhole + "  output: {}\n") == "t.yaml:18: 'tensors' has 'output' twice; expected it once");
  CHECK(tolerance_error(kWhole + "    mlp: 0.5\n") == "t.yaml:18: 'mlp' is no mapping; expected `key: value`");
}

TEST_CASE("what is no tolerance file is refused") {
  const std::string refusal = "t.yaml: not one YAML mapping; expected a file of `ttrace estimate-tolerance`";
  CHECK(tolerance_error("") == refusal);
  CHECK(tolerance_error("- 1\n") == refusal);
  CHECK(tolerance_error("reference: [1\nmargin: 2\n") ==
        "t.yaml:2: end of sequence flow not found; expected YAML as `ttrace estimate-tolerance` writes it");
}

TEST_CASE("a tolerance file is read from disk, and refused by name when it cannot be") {
  const test::TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "t.yaml";
  std::ofstream(path) << kWhole;
  const ToleranceFile file = read_tolerances(path);
  CHECK(file.path == path.string());
  CHECK(file.tensors.size() == 1);
  const auto refusal_of = [](const std::filesystem::path& other, const std::string& what) {
    const std::string refusal = other.string() + ": " + what + "; expected a file of `ttrace estimate-tolerance`";
    CHECK_THROWS_WITH_AS(read_tolerances(other), refusal.c_str(), InputError);
  };
  refusal_of(directory.path() / "none.yaml", "No such file or directory");
  refusal_of(directory.path(), "not a regular file");
}
