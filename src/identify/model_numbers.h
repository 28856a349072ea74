// Tells which of the reference's models each rank runs. They are numbered as a process first calls them, and ranks that
// each hold some of them (an encoder on one, a decoder on the other) count on their own.
#pragma once

#include <string>
#include <vector>

#include "base/trace.h"

namespace ttrace {

// Gives the models of each of the candidate's ranks the reference's numbers, where the names of their parameters and the
// bytes that these begin with say so of one model each: a model that may be the one of its own number is. A rank about
// which they do not say it of all models that are otherwise misnamed keeps its numbers. Returns a note where one has
// others now.
std::vector<std::string> number_models_as_reference(const Trace& reference, Trace& candidate);

}  // namespace ttrace
