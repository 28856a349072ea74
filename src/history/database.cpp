#include "history/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include "base/error.h"
#include "base/trace.h"

namespace ttrace {
namespace {

constexpr int kPatienceMilliseconds = 10'000;  // how long to wait while another check writes

}  // namespace

Database::Database(const std::filesystem::path& file, Mode mode) : file_(file.string()) {
  // SQLite would wait for who writes to a pipe, and for the end of a device.
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(file, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) fail("not a regular file");
  const int flags = mode == Mode::kRead ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(file_.c_str(), &handle, flags, nullptr);
  handle_.reset(handle, sqlite3_close_v2);
  if (code != SQLITE_OK) fail(handle == nullptr ? "out of memory" : sqlite3_errmsg(handle));
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, kPatienceMilliseconds);
  // The file may come from anywhere: nothing in its schema may do more than hold data.
  sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
}

void Database::fail(const std::string& what) const {
  throw InputError(
      fmt::format("{}: {}; expected a history that `ttrace check --history` made", file_, printable(what)));
}

void Database::run(std::string_view sql) {
  const std::string text(sql);
  if (sqlite3_exec(handle_.get(), text.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    fail(sqlite3_errmsg(handle_.get()));
  }
}

Statement Database::prepare(std::string_view sql) { return Statement(*this, handle_.get(), sql); }

std::int64_t Database::last_row() const { return sqlite3_last_insert_rowid(handle_.get()); }

Statement::Statement(const Database& database, sqlite3* handle, std::string_view sql) : database_(database) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(handle, sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  statement_.reset(statement, sqlite3_finalize);
  if (code != SQLITE_OK) database_.fail(sqlite3_errmsg(handle));
}

void Statement::check(int code) const {
  if (code != SQLITE_OK) database_.fail(sqlite3_errmsg(sqlite3_db_handle(statement_.get())));
}

Statement& Statement::bind(int parameter, std::int64_t value) {
  check(sqlite3_bind_int64(statement_.get(), parameter + 1, value));
  return *this;
}

Statement& Statement::bind(int parameter, const std::string& value) {
  check(sqlite3_bind_text(statement_.get(), parameter + 1, value.data(), static_cast<int>(value.size()),
                          SQLITE_TRANSIENT));
  return *this;
}

Statement& Statement::bind(int parameter, const std::optional<double>& value) {
  check(value ? sqlite3_bind_double(statement_.get(), parameter + 1, *value)
              : sqlite3_bind_null(statement_.get(), parameter + 1));
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(statement_.get());
  if (code != SQLITE_ROW && code != SQLITE_DONE) database_.fail(sqlite3_errmsg(sqlite3_db_handle(statement_.get())));
  return code == SQLITE_ROW;
}

void Statement::run() {
  while (step()) {
  }
  check(sqlite3_reset(statement_.get()));
}

std::int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }

std::string Statement::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  return text == nullptr ? std::string()
                         : std::string(text, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column)));
}

std::optional<double> Statement::number(int column) const {
  if (sqlite3_column_type(statement_.get(), column) == SQLITE_NULL) return std::nullopt;
  return sqlite3_column_double(statement_.get(), column);
}

}  // namespace ttrace
