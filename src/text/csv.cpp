#include "text/csv.h"

#include "base/trace.h"

namespace ttrace {

std::string csv_field(std::string_view text) {
  std::string plain = printable(text);
  // A spreadsheet takes such a cell for a formula, and runs it.
  if (plain.find_first_of("=+-@") == 0) plain.insert(0, 1, '\'');
  if (plain.find_first_of(",;\"") == plain.npos) return plain;  // ';' parts cells where ',' is the decimal point
  std::string quoted = "\"";
  for (const char c : plain) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace ttrace
