// Prints tables on a terminal.
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
  std::size_t width = 0;  // the least width; the title and the widest cell may need more
};

// A table has one cell for each column in every row, two spaces between columns, and no space at the end of a line.
// Control characters in cells are escaped.
class TextTable {
 public:
  using Row = std::vector<std::string>;

  explicit TextTable(std::vector<TableColumn> columns, std::size_t indent = 0);

  void add(Row row);
  // Returns the titles and all rows, one line each.
  std::string text() const;

  // These print a table while its rows are made: first `fit` every row, which widens the columns; then print the titles
  // and each row with `line`.
  void fit(const Row& row);
  std::string titles() const;
  std::string line(const Row& row) const;

 private:
  std::vector<TableColumn> columns_;
  std::size_t indent_;
  std::vector<Row> rows_;
};

}  // namespace ttrace
