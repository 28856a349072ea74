// A history is an SQLite file that anybody may have made: it is read as `ttrace history` reads it, and added to.
#include <fmt/format.h>
#include <fuzzer/FuzzedDataProvider.h>
#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "history/history.h"
#include "support/reports.h"
#include "support/temporary_directory.h"
#include "target.h"

namespace ttrace::fuzz {
namespace {

namespace fs = std::filesystem;

CheckRecord run_number(int number) {
  CheckRecord check;
  check.reference_run = "reference";
  check.candidate_run = fmt::format("candidate {}", number);
  check.candidate = number % 2 == 0 ? "tp2" : "";
  return check;
}

Report report_number(int number) { return test::report_of({test::wrong(number % 2 == 0 ? "mlp" : "attention")}, 1); }

// A history of three checks.
const std::string& original() {
  static const std::string bytes = [] {
    const test::TemporaryDirectory directory;
    const fs::path file = directory.path() / "h.sqlite";
    for (int number = 0; number < 3; ++number) add_to_history(file, run_number(number), report_number(number));
    std::ifstream stream(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  }();
  return bytes;
}

void change_bytes(FuzzedDataProvider& input, std::string& file) {
  while (input.remaining_bytes() > 0 && !file.empty()) {
    const std::size_t at = input.ConsumeIntegral<std::uint16_t>() % file.size();
    if (input.ConsumeIntegral<std::uint8_t>() < 8) {
      file.resize(at);
      return;
    }
    const std::string bytes = input.ConsumeRandomLengthString(16);
    file.replace(at, std::min(bytes.size(), file.size() - at), bytes.substr(0, file.size() - at));
  }
}

// Lets SQLite make another file of it, as an attacker would; statements that are none change nothing.
void change_tables(const std::string& sql, const fs::path& file) {
  sqlite3* database = nullptr;
  if (sqlite3_open(file.c_str(), &database) == SQLITE_OK) {
    sqlite3_limit(database, SQLITE_LIMIT_LENGTH, 1 << 16);
    int steps = 100;  // of 1,000 instructions: some statements do not end
    const auto stop = [](void* left) { return --*static_cast<int*>(left) < 0 ? 1 : 0; };
    sqlite3_progress_handler(database, 1000, stop, &steps);
    sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr);
  }
  sqlite3_close(database);
}

}  // namespace

Outcome fuzz_history(std::string_view bytes) {
  static const test::TemporaryDirectory directory;
  const fs::path file = directory.path() / "h.sqlite";
  for (const char* more : {"-journal", "-wal", "-shm"}) fs::remove(file.string() + more);
  FuzzedDataProvider input(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  std::string content = original();
  const bool by_sql = input.ConsumeBool();
  if (!by_sql) change_bytes(input, content);
  std::ofstream(file, std::ios::binary) << content;
  if (by_sql) change_tables(input.ConsumeRemainingBytesAsString(), file);
  const auto size = fs::file_size(file);

  const auto before = read_checks(file);
  growths_of(read_ratios(file, ""));
  try {
    add_to_history(file, run_number(7), report_number(7));
  } catch (const InputError&) {
    // A check that could not be added leaves what was there.
    if (fs::file_size(file) < size) fail_promise("a history that is refused is shorter");
    throw;
  }
  const auto after = read_checks(file);
  const bool added = std::any_of(after.begin(), after.end(), [](const CheckRecord& check) {
    return check.candidate_run == run_number(7).candidate_run;
  });
  if (!added || after.size() < before.size())
    fail_silent_pass("a check was added and is not there, or another is lost");
  return Outcome::kSame;
}

}  // namespace ttrace::fuzz
