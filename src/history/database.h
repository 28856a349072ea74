// An SQLite database whose errors become InputErrors that name the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace ttrace {

class Statement;

class Database {
 public:
  enum class Mode { kRead, kWrite };
  // Throws InputError when the file cannot be opened; kWrite makes it if there is none.
  Database(const std::filesystem::path& file, Mode mode);

  void run(std::string_view sql);
  Statement prepare(std::string_view sql);
  std::int64_t last_row() const;
  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::string file_;
  std::shared_ptr<sqlite3> handle_;
};

// Parameters and columns count from 0.
class Statement {
 public:
  Statement(const Database& database, sqlite3* handle, std::string_view sql);

  Statement& bind(int parameter, std::int64_t value);
  Statement& bind(int parameter, const std::string& value);
  Statement& bind(int parameter, const std::optional<double>& value);
  bool step();  // to the next row; false after the last
  void run();   // to the end, and back to the beginning

  std::int64_t integer(int column) const;
  std::string text(int column) const;
  std::optional<double> number(int column) const;

 private:
  void check(int code) const;

  Database database_;
  std::shared_ptr<sqlite3_stmt> statement_;
};

}  // namespace ttrace
