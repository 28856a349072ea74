// JUnit suites of reports.
#pragma once

#include <pugixml.hpp>
#include <string>
#include <string_view>

#include "ttrace/outcome.h"

namespace ttrace {

// `group` stands before the kind in the class names of the cases: empty, or as in `tp2.`.
void append_suite(pugi::xml_node suites, std::string_view name, std::string_view group, const Report& report);

// A suite of one case that could not be looked at.
void append_error_suite(pugi::xml_node suites, std::string_view name, const std::string& problem);

std::string to_text(const pugi::xml_document& document);

}  // namespace ttrace
