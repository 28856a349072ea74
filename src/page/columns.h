// A table as columns of bytes that compress well, and that a browser reads without parsing text.
//
// The encoding of a table, after what `describe` says of it in JSON:
//   text     u32 a row: the place of its text in `texts`, which has each once
//   integer  i32 a row, INT32_MIN where there is none
//   real     f32 a row, NaN where there is none, with as many bits of the significand as `add_real` was told to keep
// All are little-endian, and a column has first the lowest byte of all rows, then the next, and so on (the shuffle of
// HDF5): what is alike is then next to each other.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ttrace {

class Columns {
 public:
  // Reals of a table of many rows keep three digits.
  explicit Columns(std::size_t rows);

  // Sets a field of a row. A column is made when its first field is set, and is one of texts, of integers, or of
  // numbers that need not be integers. Null sets nothing; arrays are texts, in JSON; of an object each key is a column,
  // `object.key`.
  void set(std::size_t row, const std::string& column, const nlohmann::ordered_json& value);

  nlohmann::ordered_json describe() const;  // an array: `name`, `type` and, of texts, `texts`
  std::string bytes() const;                // of the columns, in the same order

 private:
  struct Column {
    bool is_text = false;
    std::vector<std::string> texts;
    std::map<std::string, std::uint32_t> place;  // of each text
    std::vector<std::uint32_t> indices;
    std::vector<double> numbers;
  };
  Column& find_or_add(const std::string& name, bool is_text);

  std::size_t rows_;
  std::vector<std::string> order_;
  std::map<std::string, Column> columns_;
};

}  // namespace ttrace
