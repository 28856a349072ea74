// A program's inputs and outputs in the first micro-batch, by name.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "align/aligned_trace.h"
#include "correspond/name_pattern.h"

namespace ttrace {

class FirstActivations {
 public:
  explicit FirstActivations(const AlignedTrace& aligned);

  // Returns the tensor of the first call; null where there is none. A module's name stands for its first argument or
  // result.
  const LogicalTensor* find(const std::string& name, Kind kind) const;

  // All of them, in order of execution.
  const std::vector<const LogicalTensor*>& of(Kind kind) const;

  // The members that a module has, with their ':'.
  std::vector<std::string> members(const std::string& module, Kind kind) const;

  // Returns how a rule would name the tensor: without its member where the module's name stands for it.
  std::string short_name(const std::string& name, Kind kind) const;

  // Counts the calls of a tensor, in any micro-batch; gradients count for themselves.
  std::size_t calls(const std::string& name, Kind kind) const;

  const std::set<std::string>& modules() const { return modules_; }

 private:
  std::string full_name(const std::string& name, Kind kind) const;

  FirstMembers first_members_;
  std::map<std::pair<Kind, std::string>, const LogicalTensor*> first_;
  std::map<Kind, std::vector<const LogicalTensor*>> in_order_;
  std::map<std::pair<Kind, std::string>, std::set<std::string>> calls_;
  std::set<std::string> modules_;
};

}  // namespace ttrace
