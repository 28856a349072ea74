#include "text/table.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/trace.h"
#include "text/wrap.h"

namespace ttrace {
namespace {

constexpr std::size_t kGap = 2;

}  // namespace

TextTable::TextTable(std::vector<TableColumn> columns, std::size_t indent)
    : columns_(std::move(columns)), indent_(indent) {
  for (TableColumn& column : columns_) column.width = std::max(column.width, width_of(column.title));
}

void TextTable::add(Row row) {
  fit(row);
  rows_.push_back(std::move(row));
}

std::string TextTable::text() const {
  std::string text = titles();
  for (const Row& row : rows_) text += line(row);
  return text;
}

void TextTable::fit(const Row& row) {
  assert(row.size() == columns_.size());
  for (std::size_t i = 0; i < row.size(); ++i) {
    columns_[i].width = std::max(columns_[i].width, width_of(printable(row[i])));
  }
}

std::string TextTable::titles() const {
  Row row;
  for (const TableColumn& column : columns_) row.push_back(column.title);
  return line(row);
}

std::string TextTable::line(const Row& row) const {
  assert(row.size() == columns_.size());
  std::string line(indent_, ' ');
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::string cell = printable(row[i]);
    const std::string padding(columns_[i].width - std::min(columns_[i].width, width_of(cell)), ' ');
    line += columns_[i].justify == Justify::kLeft ? cell + padding : padding + cell;
    line.append(kGap, ' ');
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace ttrace
