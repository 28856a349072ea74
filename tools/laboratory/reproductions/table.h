// Tables on stdout, as Markdown.
#pragma once

#include <string>
#include <vector>

namespace ttrace::reproductions {

using Row = std::vector<std::string>;

// The first row is the head.
void print_table(const std::string& title, const std::vector<Row>& rows);
void print_note(const std::string& text);

}  // namespace ttrace::reproductions
