// The seal of a tolerance file that takes a key to make, for a CI that must not take anybody's tolerances. The key is in
// the environment (kSealKeyVariable), so that no file and no command line shows it.
#pragma once

#include <filesystem>
#include <string>

#include "tolerance/tolerance.h"

namespace ttrace {

// True where the environment has a key. Throws InputError for one of fewer than 16 characters, and for an empty one: a
// CI that keeps its secrets from a job gives it an empty variable, and nothing may be taken unsealed for that.
bool has_seal_key();

// Adds a last line to the text of a tolerance file, where there is a key: `seal_by_key: k`, and 64 hexadecimal digits of
// BLAKE2b over all bytes before it, overrides and comments too, keyed by the key's own hash. Takes away one that is there.
std::string sealed_by_key(std::string text);

// Reads a tolerance file as read_tolerances does. Throws InputError where there is a key and the file has no such line,
// or one of another key or of other bytes.
ToleranceFile read_sealed_tolerances(const std::filesystem::path& path);

// Seals the file that is there, as somebody has edited it. Throws InputError where there is no key, and for a file that
// is no whole one.
void seal_anew(const std::filesystem::path& path);

}  // namespace ttrace
