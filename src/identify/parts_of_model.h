// Gives the parts of a model that ranks call by themselves, as pipelines call their stages, the names that they have
// inside of the reference's model.
#pragma once

#include <string>
#include <vector>

#include "base/trace.h"

namespace ttrace {

// Gives a candidate's models, of which hardly any parameter has a name of the reference's, the names that they have there.
// A model may be a module of the reference's, or hold some of its modules: that of which most parameters have these names
// inside, and begin with these bytes; of several, the one that is not inside of what is found already. A child without
// parameters that goes by a number is as far from its neighbours as there, and of the same class. What was a whole model
// is the module then, and the reference's model as well where this hands on the same bits. Models of a rank that are parts
// of one of the reference's become one model. A rank of which some child is not found keeps its names, and a reference of
// several ranks says nothing. Returns a note where there are such.
std::vector<std::string> name_parts_as_in_whole(const Trace& reference, Trace& candidate);

}  // namespace ttrace
