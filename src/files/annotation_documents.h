// Reads the files that make up annotations: one, and those that it includes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/annotation.h"
#include "files/annotation_yaml.h"

namespace ttrace::annotation_yaml {

inline constexpr std::string_view kInclude = "include";

struct Document {
  std::string path;         // for messages
  std::vector<Item> items;  // at its top level
  std::vector<Guess> guesses = {};
};

// Which files a file may include, beside presets: annotations may be anybody's, and read nothing elsewhere.
enum class Includes : std::uint8_t { kBeside, kAnywhere };

// Reads `file` and all that it includes, each once; an included file comes before the first that includes it. A file is
// looked for beside the one that includes it (`file` in the working directory) and then, where only its name is given,
// among the presets, with or without `.yaml`. With `with_guesses`, lines that begin with `#? ` are read without that,
// as if they were no comments. Throws InputError for a file that cannot be read or is no mapping, for
// files that include each other in a circle, or with `kBeside` one outside of their directory, and for more than 64
// files.
std::vector<Document> read_documents(const std::string& file, const std::filesystem::path& presets,
                                     bool with_guesses = false, Includes includes = Includes::kBeside);

// Does the same for `text`, which is taken for the content of `file`.
std::vector<Document> parse_documents(const std::string& text, const std::string& file,
                                      const std::filesystem::path& presets);

}  // namespace ttrace::annotation_yaml
