#include "text/csv.h"

#include "ttrace/trace.h"

namespace ttrace {

std::string csv_field(std::string_view text) {
  std::string plain = printable(text);
  if (plain.find_first_of(",\"") == plain.npos) return plain;
  std::string quoted = "\"";
  for (const char c : plain) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace ttrace
