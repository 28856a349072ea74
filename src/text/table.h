// Tables for a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {

enum class Justify : std::uint8_t { kLeft, kRight };

struct TableColumn {
  std::string title;
  Justify justify = Justify::kLeft;
  std::size_t width = 0;  // at least this, and as much as the title and the widest cell take
};

// Rows of one cell per column, two spaces between columns, no space at the end of a line. Control characters in cells
// are escaped.
class TextTable {
 public:
  using Row = std::vector<std::string>;

  explicit TextTable(std::vector<TableColumn> columns, std::size_t indent = 0);

  void add(Row row);
  // The titles and all rows.
  std::string text() const;

  // For a table that is printed while its rows are made: all rows are fitted first, then each is a line.
  void fit(const Row& row);
  std::string titles() const;
  std::string line(const Row& row) const;

 private:
  std::vector<TableColumn> columns_;
  std::size_t indent_;
  std::vector<Row> rows_;
};

}  // namespace ttrace
