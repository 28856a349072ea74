#include "files/run_file.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <chrono>

#include "base/annotation.h"
#include "base/error.h"
#include "base/mesh.h"

namespace ttrace {
namespace {

// Refuses a candidate's name that cannot be the name of its directory.
void require_file_name(const std::string& name, const std::string& file, int line) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+=,";
  if (!name.empty() && name[0] != '.' && name.size() <= 200 && name.find_first_not_of(kPlain) == name.npos) return;
  fail_at(
      file, line,
      fmt::format("the name '{}'; expected letters, digits and . _ - + = , and no dot at its begin", printable(name)));
}

// Refuses a name that only `include` gives and that no text uses in braces: it must be misspelt.
void require_use_of_included(const CandidateRule& rule, const std::string& file) {
  std::string texts = rule.job.name + " " + rule.job.axes;
  for (const std::string& word : rule.job.command) texts += " " + word;
  for (const std::string& input : rule.job.inputs) texts += " " + input;
  for (const std::string& parameter : rule.job.parameters) texts += " " + parameter;
  texts += " " + rule.job.annotations + " " + rule.job.tolerance;
  for (const JobMatrix::Entry& entry : rule.matrix.include) {
    for (const auto& [name, value] : entry.values) {
      const bool is_variable = std::any_of(rule.matrix.variables.begin(), rule.matrix.variables.end(),
                                           [&known = name](const auto& variable) { return variable.name == known; });
      if (is_variable || texts.find("{" + name + "}") != texts.npos) continue;
      fail_at(file, entry.line,
              fmt::format("include: '{0}' is no variable and used nowhere; expected {{{0}}} in the candidate", name));
    }
  }
}

// Characters that a shell takes as they are; it splits a line at spaces.
constexpr std::string_view kPlainToShell = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./=,:+@%- ";

bool is_shell_command(const std::vector<std::string>& command) {
  return command.size() == 3 && command == shell_command(command[2]);
}

// Refuses values of the matrix that a shell would not take as they are, where the command is a line for one.
void require_plain_values(const Job& job, const Combination& values, const std::string& file) {
  if (!is_shell_command(job.command)) return;
  for (const auto& [name, value] : values) {
    const bool is_plain = value.find_first_not_of(kPlainToShell) == value.npos;
    if (is_plain || job.command[2].find("{" + name + "}") == std::string::npos) continue;
    fail_at(file, job.line,
            fmt::format("{{{}}} in 'command' is '{}', which a shell would not take as it is; expected letters, digits, "
                        "spaces and . _ - / = , : + @ %, or the command as a list of words: [python, train.py, ...]",
                        name, printable(value)));
  }
}

Job substitute_all(const Job& job, Combination values, const std::string& file) {
  const std::string where = fmt::format("{}:{}", file, job.line);
  Job filled = job;
  filled.axes = substitute(job.axes, values, where);
  if (!filled.axes.empty()) values[kRanksName] = fmt::format("{}", ranks_of_mesh(filled.axes));
  filled.name = substitute(job.name, values, where);
  require_plain_values(job, values, file);
  for (std::string& word : filled.command) word = substitute(word, values, where);
  for (std::string& input : filled.inputs) input = substitute(input, values, where);
  for (std::string& parameter : filled.parameters) parameter = substitute(parameter, values, where);
  filled.annotations = substitute(job.annotations, values, where);
  filled.tolerance = substitute(job.tolerance, values, where);
  filled.command = without_needless_shell(filled.command);
  require_file_name(filled.name, file, job.line);
  return filled;
}

bool applies_to(const Waiver& waiver, const std::string& candidate) {
  return waiver.candidates.empty() ||
         std::any_of(waiver.candidates.begin(), waiver.candidates.end(),
                     [&](const std::string& pattern) { return fnmatch(pattern.c_str(), candidate.c_str(), 0) == 0; });
}

std::chrono::sys_days day_of(const std::string& date) {
  const auto number = [&](std::size_t at, std::size_t size) { return std::stoi(date.substr(at, size)); };
  return std::chrono::year_month_day(std::chrono::year(number(0, 4)),
                                     std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                     std::chrono::day(static_cast<unsigned>(number(8, 2))));
}

// Compares the dates as text, which is right for those of ISO 8601.
bool has_expired(const Waiver& waiver, const std::string& today) { return waiver.expires < today; }

}  // namespace

std::vector<std::string> shell_command(const std::string& line) { return {"/bin/sh", "-c", line}; }

std::vector<std::string> without_needless_shell(const std::vector<std::string>& command) {
  if (!is_shell_command(command)) return command;
  const std::set<std::string> built_in = {".", "cd", "command", "eval", "exec", "exit", "export", "set", "ulimit"};
  const std::string& line = command[2];
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < line.size();) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    if (end > begin) words.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  const bool needs_shell = words.empty() || line.find_first_not_of(kPlainToShell) != line.npos ||
                           words[0].find('=') != words[0].npos || built_in.contains(words[0]);
  return needs_shell ? command : words;
}

std::vector<Job> candidate_jobs(const RunFile& file) {
  std::vector<Job> all;
  std::set<std::string> names;
  for (const CandidateRule& rule : file.candidates) {
    require_use_of_included(rule, file.path);
    for (const Combination& values : combinations_of(rule.matrix, file.path)) {
      Job job = substitute_all(rule.job, values, file.path);
      if (!names.insert(job.name).second) {
        fail_at(file.path, job.line,
                fmt::format("two candidates are called '{}'; expected a name with what tells them apart, as in "
                            "tp{{tp}}-pp{{pp}}",
                            job.name));
      }
      all.push_back(std::move(job));
    }
  }
  return all;
}

AnnotationSource annotations_for(const RunFile& file, const Job& job) {
  AnnotationSource annotations = job.annotations.empty() ? file.annotations : AnnotationSource{job.annotations, {}};
  annotations.settings.insert(annotations.settings.end(), job.parameters.begin(), job.parameters.end());
  return annotations;
}

AnnotationSource annotations_of_reference(const RunFile& file) {
  return file.correspondence.empty() ? file.annotations : AnnotationSource{.file = std::string(kNoAnnotations)};
}

std::vector<Waiver> waivers_for(const RunFile& file, const std::string& candidate, const std::string& today) {
  std::vector<Waiver> waivers;
  for (const Waiver& waiver : file.waivers) {
    if (applies_to(waiver, candidate) && !has_expired(waiver, today)) waivers.push_back(waiver);
  }
  return waivers;
}

void require_modest_waivers(const RunFile& file, const std::string& today) {
  if (file.accept_overrides) return;
  for (const Waiver& waiver : file.waivers) {
    if (is_all_wildcards(waiver.pattern)) {
      fail_at(file.path, waiver.line,
              fmt::format("the waiver of '{}' matches every tensor; expected a pattern with a name in it, or "
                          "accept_overrides: true",
                          waiver.pattern));
    }
    if (day_of(waiver.expires) - day_of(today) <= std::chrono::days(kLongestWaiverDays)) continue;
    fail_at(file.path, waiver.line,
            fmt::format("the waiver of '{}' expires on {}; expected a day in the next {}, or accept_overrides: true",
                        waiver.pattern, waiver.expires, kLongestWaiverDays));
  }
}

std::vector<std::string> waiver_remarks(const RunFile& file, const std::set<int>& used,
                                        const std::set<std::string>& checked, const std::string& today) {
  std::set<std::string> names;
  for (const Job& job : candidate_jobs(file)) names.insert(job.name);
  std::vector<std::string> remarks;
  for (const Waiver& waiver : file.waivers) {
    const std::string what = fmt::format("{}:{}: the waiver of '{}'", file.path, waiver.line, waiver.pattern);
    const bool all_checked = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      return !applies_to(waiver, name) || checked.contains(name);
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
