// Puts a page together: the template, a sentence, data.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/outcome.h"

namespace ttrace {

// Says what the browser makes of the data: src/page/web/main.ts has a page for each.
enum class PageContent { kReport, kRun, kSdc, kHistory };

// Renders the page. `data` is what `pack` gave, one line for each part; `sentence` is any text, and its title.
std::string page_of(PageContent content, const std::string& sentence, const std::string& data);

// Returns the sentence with the verdict before it, cut where it holds a name that fills a page.
std::string title_of(RunVerdict verdict, const std::string& sentence);

// Returns a JSON text after its length in 8 hexadecimal digits.
std::string with_length(const nlohmann::ordered_json& json);

// Returns a number in four digits, for what is drawn: null where it is not finite.
nlohmann::ordered_json short_number(double value);

}  // namespace ttrace
