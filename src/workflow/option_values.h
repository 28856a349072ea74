// Turns the values of options into words and back: what is printed sets the same value where it is typed.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "workflow/options.h"

namespace ttrace {

// Returns the words that make the options what they are, but for those that are as they are by default:
// {"--reference", "a", "--strict"}.
std::vector<std::string> to_words(const CheckOptions& options);
std::vector<std::string> to_words(const CollectOptions& options);  // without the command
std::vector<std::string> to_words(const RecordingSelection& selection);

// Returns the names of the options that are set, and that `ttrace localize` does not have.
std::vector<std::string> unknown_to_localize(const CheckOptions& options);

// Returns a command line of the same check; it finds the same with any number of threads, so that these are left out.
std::string command_of(const CheckOptions& options);
// Returns that of `ttrace localize` after it. An empty `output` is not said.
std::string localize_command_of(const CheckOptions& options, const std::filesystem::path& output);

// Returns the texts of a value, one each time that the option stands in a command line.
std::vector<std::string> texts_of(const Option& option, const std::string& value);
std::vector<std::string> texts_of(const Option& option, const std::filesystem::path& value);
std::vector<std::string> texts_of(const Option& option, bool value);  // "true" or "false"
std::vector<std::string> texts_of(const Option& option, int value);
std::vector<std::string> texts_of(const Option& option, std::size_t value);
std::vector<std::string> texts_of(const Option& option, std::chrono::seconds value);
std::vector<std::string> texts_of(const Option& option, Estimator value);
std::vector<std::string> texts_of(const Option& option, const std::vector<std::string>& value);
std::vector<std::string> texts_of(const Option& option, const std::vector<std::int32_t>& value);
std::vector<std::string> texts_of(const Option& option, const std::set<std::int32_t>& value);
std::vector<std::string> texts_of(const Option& option, const std::optional<std::int32_t>& value);
std::vector<std::string> texts_of(const Option& option, const std::optional<std::uint64_t>& value);

// Reads a value of one word that is more than a text or a number. Throws InputError.
void read_value(const Option& option, const std::string& text, Estimator& value);
void read_value(const Option& option, const std::string& text, std::vector<std::string>& kinds);
void read_value(const Option& option, const std::string& text, std::vector<std::int32_t>& iterations);
void read_value(const Option& option, const std::string& text, std::set<std::int32_t>& iterations);

}  // namespace ttrace
