#include "sdc/tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/outcome.h"
#include "numeric/convert.h"

namespace ttrace {
namespace {

std::string hexadecimal(const std::byte* bytes, std::int64_t size) {
  std::string text = "0x";
  for (std::int64_t i = size; i-- > 0;) text += fmt::format("{:02x}", static_cast<unsigned>(bytes[i]));
  return text;
}

}  // namespace

Element first_element(const RecordedPair& pair) {
  const Entry& entry = *pair.healthy;
  Element element;
  element.index = index_at(pair.mismatch.first, entry.shape);
  const std::int64_t size = size_of(entry.dtype), offset = pair.mismatch.first * size;
  const std::byte* healthy = pair.rank->bytes_of(entry) + offset;
  const std::byte* suspect = pair.suspect_rank->bytes_of(*pair.suspect) + offset;
  widen(healthy, entry.dtype, 1, &element.healthy);
  widen(suspect, entry.dtype, 1, &element.suspect);
  element.healthy_bits = hexadecimal(healthy, size);
  element.suspect_bits = hexadecimal(suspect, size);
  return element;
}

std::vector<TypeRow> rows_by_type(const SdcReport& report) {
  std::vector<TypeRow> rows;  // `submodules` is sorted by type and direction
  for (const SubmoduleStep& step : report.submodules) {
    if (rows.empty() || rows.back().type != step.type || rows.back().direction != step.direction) {
      rows.push_back({.type = step.type, .direction = step.direction});
    }
    TypeRow& row = rows.back();
    ++row.steps;
    row.steps_hit += step.differing > 0;
    row.origins += step.origins;
    row.unbounded += step.unbounded;
    row.frequency_sum += step.frequency;
    row.frequency_max = std::max(row.frequency_max, step.frequency);
    row.severity_max = std::max(row.severity_max, step.severity);
  }
  return rows;
}

}  // namespace ttrace
