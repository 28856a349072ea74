#include "files/key.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "support/temporary_directory.h"
#include "workflow/fingerprint.h"

namespace {

using namespace ttrace;
namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_SUITE_BEGIN("files");

TEST_CASE("what was made fits while every part of its key is as it was, and says what is not") {
  const Key key = {{"command", "train"}, {"input a", "1"}};
  CHECK(compare_keys(std::nullopt, key).freshness == Freshness::kMissing);
  CHECK(compare_keys(key, key).freshness == Freshness::kFits);
  const CacheState state =
      compare_keys(Key{{"command", "train"}, {"input b", "2"}}, {{"command", "go\n"}, {"input a", "1"}});
  CHECK(state.freshness == Freshness::kStale);
  CHECK(describe(state) == "command: was train, is go\\x0a; input a: was none, is 1; input b: was 2, is none");
  CHECK(describe(compare_keys(Key{{"x", "1"}}, {{"a", "1"}, {"b", "1"}, {"c", "1"}, {"d", "1"}})) ==
        "a: was none, is 1; b: was none, is 1; c: was none, is 1; and 2 more");
}

TEST_CASE("inputs are files, directories and patterns; what a run generates is none") {
  const test::TemporaryDirectory directory;
  const fs::path root = directory.path();
  write(root / "a.py", "a");
  write(root / "model/b.py", "b");
  write(root / "model/deep/c.py", "c");
  write(root / "model/__pycache__/b.pyc", "b");
  write(root / "model/.hidden/d.py", "d");
  const auto names = [&](const std::vector<std::string>& inputs) {
    std::vector<std::string> full, found;
    for (const std::string& input : inputs) full.push_back(root / input);
    for (const auto& [path, print] : fingerprints_of(full)) found.push_back(fs::relative(path, root));
    return found;
  };
  using Names = std::vector<std::string>;
  CHECK(names({"model"}) == Names{"model/b.py", "model/deep/c.py"});
  write(root / "model/work/.gitignore", "*\n");
  write(root / "model/work/report.json", "{}");
  CHECK(names({"model"}) == Names{"model/b.py", "model/deep/c.py", "model/work/report.json"});
  CHECK(fingerprints_of({root / "model"}, fs::weakly_canonical(root / "model/work")).size() == 2);
  CHECK(names({"*.py", "model/?.py", "a.py"}) == Names{"a.py", "model/b.py"});
  CHECK_THROWS_AS(names({"*.txt"}), InputError);
  fs::create_directories(root / "empty");
  CHECK_THROWS_AS(names({"a.py", "empty"}), InputError);

  const std::string before = fingerprint_of(root / "a.py");
  CHECK(before == fingerprint("a"));
  write(root / "a.py", "A");
  CHECK(fingerprint_of(root / "a.py") != before);
}

TEST_SUITE_END();
