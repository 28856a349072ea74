#include "format/json_inspection.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace ttrace {
namespace {

using Json = nlohmann::json;

class Inspector : public nlohmann::json_sax<Json> {
 public:
  explicit Inspector(JsonInspection& inspection) : inspection_(inspection) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return begin(); }
  bool start_array(std::size_t) override { return begin(); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second && !inspection_.twice) inspection_.twice = name;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool begin() {
    keys_.emplace_back();
    inspection_.deepest = std::max(inspection_.deepest, static_cast<int>(keys_.size()));
    return true;
  }
  bool end() {
    keys_.pop_back();
    return true;
  }

  JsonInspection& inspection_;
  std::vector<std::set<std::string>> keys_;  // of the objects and lists that are open
};

}  // namespace

JsonInspection inspect_json(std::string_view text) {
  JsonInspection inspection;
  Inspector inspector(inspection);
  inspection.is_valid = Json::sax_parse(text.begin(), text.end(), &inspector);
  return inspection;
}

}  // namespace ttrace
