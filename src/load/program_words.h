// Reads what the programs of a trace's ranks say of how they are parallel.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/annotation.h"

namespace ttrace {

// Holds what one rank says: `Provenance::parallelism` of its file.
struct WordsOfRank {
  std::string path;  // of the file, for messages
  std::map<std::string, std::string> values;
};

// Puts together what the ranks say. A pipeline's stages may know different things; a key that two ranks disagree on is
// left out, with a note. Returns null where no rank says anything. Throws InputError, which names the file, for what
// the section `parallelism` of an annotation file may not say.
std::shared_ptr<const ProgramWords> read_program_words(const std::vector<WordsOfRank>& ranks);

}  // namespace ttrace
