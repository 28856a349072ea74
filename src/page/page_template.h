// The page without its data, which the build makes of src/page/web/.
#pragma once

#include <string_view>

namespace ttrace {

// Has places to fill: kPageHeadline (in the title and in the body), kPageSentence (shown where no scripts run),
// kPageContent (of what it is a page: "report", "run", "sdc" or "history") and kPageData.
extern const std::string_view kPageTemplate;

inline constexpr std::string_view kPageHeadline = "{{headline}}";
inline constexpr std::string_view kPageSentence = "{{sentence}}";
inline constexpr std::string_view kPageContent = "{{content}}";
inline constexpr std::string_view kPageData = "{{data}}";

}  // namespace ttrace
