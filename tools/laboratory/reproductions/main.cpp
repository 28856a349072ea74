#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "reproductions/papers.h"

int main(int argc, char** argv) {
  using namespace ttrace::reproductions;
  const std::map<std::string, std::vector<void (*)()>> papers = {
      {"v-abft", {v_abft_tightness, v_abft_detection, v_abft_sensitivity}},
      {"dlrm", {dlrm}},
      {"attnchecker", {attnchecker}},
      {"sdc-llm", {sdc_llm}}};
  std::vector<std::string> names(argv + 1, argv + argc);
  if (names.empty()) names = {"v-abft", "dlrm", "attnchecker", "sdc-llm"};
  for (const std::string& name : names) {
    if (papers.contains(name)) continue;
    std::fprintf(stderr, "reproduce: '%s' is no paper; v-abft, dlrm, attnchecker or sdc-llm were expected\n",
                 name.c_str());
    return 2;
  }
  for (const std::string& name : names) {
    for (void (*print)() : papers.at(name)) print();
  }
  return 0;
}
