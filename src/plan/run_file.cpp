#include "ttrace/plan/run_file.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "ttrace/error.h"

namespace ttrace {
namespace {

constexpr std::size_t kMostCombinations = 10'000;

[[noreturn]] void fail_at(const RunFile& file, int line, const std::string& what) {
  throw InputError(fmt::format("{}:{}: {}", file.path, line, what));
}

// Each combination of the matrix, the last axis fastest.
std::vector<PlanValues> combinations_of(const RunFile& file, const CandidateRule& rule) {
  std::vector<PlanValues> combinations = {{}};
  for (const auto& [name, values] : rule.matrix) {
    std::vector<PlanValues> longer;
    if (combinations.size() * values.size() > kMostCombinations) {
      fail_at(file, rule.job.line, fmt::format("a matrix of more than {} combinations", kMostCombinations));
    }
    for (const PlanValues& combination : combinations) {
      for (const PlanValue& value : values) {
        longer.push_back(combination);
        longer.back().emplace(name, value);
      }
    }
    combinations = std::move(longer);
  }
  return combinations;
}

// A candidate's directory has its name.
void require_file_name(const std::string& name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-+=,").find(c) != std::string_view::npos;
  };
  if (name.empty() || name[0] == '.' || name.size() > 200 || !std::all_of(name.begin(), name.end(), plain)) {
    throw InputError(fmt::format("the name '{}'; expected letters, digits and . _ - + = , and no dot at its begin",
                                 printable(name)));
  }
}

Job fill_in(const Job& job, const PlanValues& values) {
  Job filled = job;
  filled.name = substitute(job.name, values);
  filled.axes = substitute(job.axes, values);
  for (std::string& word : filled.command) word = substitute(word, values);
  filled.command = without_needless_shell(filled.command);
  for (std::string& input : filled.inputs) input = substitute(input, values);
  require_file_name(filled.name);
  return filled;
}

std::vector<Job> jobs_of(const RunFile& file, const CandidateRule& rule) {
  std::vector<Job> jobs;
  try {
    for (const PlanValues& values : combinations_of(file, rule)) {
      // All conditions are evaluated: a mistake in one shows wherever it stands.
      const auto failed = std::count_if(rule.where.begin(), rule.where.end(),
                                        [&](const std::string& condition) { return !holds(condition, values); });
      if (failed == 0) jobs.push_back(fill_in(rule.job, values));
    }
  } catch (const InputError& error) {
    const std::string message = error.what();
    if (message.starts_with(file.path + ":")) throw;
    fail_at(file, rule.job.line, message);
  }
  if (jobs.empty()) {
    fail_at(file, rule.job.line,
            fmt::format("no combination of '{}' fits its 'where'; expected one or more", rule.job.name));
  }
  return jobs;
}

bool speaks_of(const Waiver& waiver, const std::string& candidate) {
  return waiver.candidates.empty() ||
         std::any_of(waiver.candidates.begin(), waiver.candidates.end(),
                     [&](const std::string& pattern) { return fnmatch(pattern.c_str(), candidate.c_str(), 0) == 0; });
}

// Dates of ISO 8601 sort as text.
bool has_expired(const Waiver& waiver, const std::string& today) { return waiver.expires < today; }

}  // namespace

std::vector<std::string> shell_command(const std::string& line) { return {"/bin/sh", "-c", line}; }

std::vector<std::string> without_needless_shell(const std::vector<std::string>& command) {
  if (command.size() != 3 || command != shell_command(command[2])) return command;
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./=,:+@%- ";
  const std::set<std::string> built_in = {".", "cd", "command", "eval", "exec", "exit", "export", "set", "ulimit"};
  const std::string& line = command[2];
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < line.size();) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    if (end > begin) words.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  const bool needs_shell = words.empty() || line.find_first_not_of(kPlain) != line.npos ||
                           words[0].find('=') != words[0].npos || built_in.contains(words[0]);
  return needs_shell ? command : words;
}

std::vector<Job> expand(const RunFile& file) {
  std::vector<Job> all;
  std::set<std::string> names;
  for (const CandidateRule& rule : file.candidates) {
    for (Job& job : jobs_of(file, rule)) {
      if (!names.insert(job.name).second) {
        fail_at(file, job.line,
                fmt::format("two candidates are called '{}'; expected a name with what tells them apart, as in "
                            "tp{{tp}}-pp{{pp}}",
                            job.name));
      }
      all.push_back(std::move(job));
    }
  }
  return all;
}

std::vector<Waiver> waivers_for(const RunFile& file, const std::string& candidate, const std::string& today) {
  std::vector<Waiver> waivers;
  for (const Waiver& waiver : file.waivers) {
    if (speaks_of(waiver, candidate) && !has_expired(waiver, today)) waivers.push_back(waiver);
  }
  return waivers;
}

std::vector<std::string> waiver_remarks(const RunFile& file, const std::set<int>& used,
                                        const std::set<std::string>& checked, const std::string& today) {
  std::set<std::string> names;
  for (const Job& job : expand(file)) names.insert(job.name);
  std::vector<std::string> remarks;
  for (const Waiver& waiver : file.waivers) {
    const std::string what = fmt::format("{}:{}: the waiver of '{}'", file.path, waiver.line, waiver.pattern);
    const bool all_checked = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      return !speaks_of(waiver, name) || checked.contains(name);
    });
    if (has_expired(waiver, today)) {
      remarks.push_back(fmt::format("{} expired on {} and waives nothing: {}", what, waiver.expires, waiver.reason));
    } else if (all_checked && !used.contains(waiver.line)) {
      remarks.push_back(fmt::format("{} waived nothing; remove it ({})", what, waiver.reason));
    }
  }
  return remarks;
}

}  // namespace ttrace
