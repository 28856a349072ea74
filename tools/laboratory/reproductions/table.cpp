#include "reproductions/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace ttrace::reproductions {

void print_table(const std::string& title, const std::vector<Row>& rows) {
  fmt::print("\n### {}\n\n", title);
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t i = 0; i < widths.size(); ++i) fmt::print("| {:<{}} ", rows[r][i], widths[i]);
    fmt::print("|\n");
    if (r > 0) continue;
    for (const std::size_t width : widths) fmt::print("|{:-<{}}", "", width + 2);
    fmt::print("|\n");
  }
  std::fflush(stdout);
}

void print_note(const std::string& text) { fmt::print("\n{}\n", text); }

}  // namespace ttrace::reproductions
