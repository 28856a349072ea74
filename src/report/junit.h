// Reports as JUnit suites.
#pragma once

#include <pugixml.hpp>
#include <string>
#include <string_view>

#include "ttrace/outcome.h"

namespace ttrace {

// Appends a suite with the cases of `report`. `group` is a prefix of the cases' class names, as in `tp2.output`, or
// empty.
void append_suite(pugi::xml_node suites, std::string_view name, std::string_view group, const Report& report);

// Appends a suite of one case, which is an error because of `problem`.
void append_error_suite(pugi::xml_node suites, std::string_view name, const std::string& problem);

std::string to_text(const pugi::xml_document& document);

}  // namespace ttrace
