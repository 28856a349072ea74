#include "base/mesh.h"

#include <doctest/doctest.h>

#include "base/error.h"

using namespace ttrace;

namespace {

std::string error_of(const std::string& text, std::int32_t world_size) {
  try {
    parse_mesh(text, world_size, "--axes");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE_BEGIN("base");

TEST_CASE("axes are sizes, fastest first, and aliases") {
  const Mesh mesh = parse_mesh("tp=2,dp=3,sp=tp", 6, "--axes");
  CHECK(mesh.axes == Axes{{"tp", 2}, {"dp", 3}});
  CHECK(mesh.aliases == Aliases{{"sp", "tp"}});
  CHECK(to_string(mesh) == "tp=2,dp=3,sp=tp");
  CHECK(coordinates_of(mesh.axes, 5) == Coordinates{{"tp", 1}, {"dp", 2}});
  CHECK(size_of_axis(mesh, "sp") == 2);
  CHECK(size_of_axis(mesh, "dp") == 3);
  CHECK(size_of_axis(mesh, "pp") == 1);
}

TEST_CASE("one rank needs no axes") {
  CHECK(parse_mesh("", 1, "--axes").axes.empty());
  CHECK(error_of("", 2) == "--axes: the axes '' make 1 ranks; the run has 2");
}

TEST_CASE("axes that contradict the run are named") {
  CHECK(error_of("tp=2,dp=2", 8) == "--axes: the axes 'tp=2,dp=2' make 4 ranks; the run has 8");
  CHECK(error_of("tp=4,dp=4,pp=4", 8) == "--axes: the axes 'tp=4,dp=4,pp=4' make at least 16 ranks; the run has 8");
  CHECK(error_of("tp=0", 1) == "--axes: axis 'tp' has size 0; expected 1 to 1, the number of ranks");
  CHECK(error_of("tp=2,tp=2", 4) == "--axes: axis 'tp' appears twice; expected each axis once");
  CHECK(error_of("sp=tp,tp=2", 2) == "--axes: 'sp=tp': 'tp' is neither a size nor an axis named before it");
  CHECK(error_of("tp=99999999999999999999", 2) ==
        "--axes: 'tp=99999999999999999999': '99999999999999999999' is neither a size nor an axis named before it");
  CHECK(error_of("tp", 2) == "--axes: 'tp': expected name=size or name=axis, as in tp=2,dp=2,sp=tp");
  CHECK(error_of("TP=2", 2) == "--axes: 'TP=2': expected name=size or name=axis, as in tp=2,dp=2,sp=tp");
}

TEST_CASE("a text says for how many ranks it is") {
  CHECK(ranks_of_mesh("") == 1);
  CHECK(ranks_of_mesh("tp=2,sp=tp,dp=3/etp=1,ep=6") == 6);
  CHECK(ranks_of_mesh("tp=2,dp=x,pp=-1,cp=99999999999999999999") == 2);
}

TEST_CASE("after a slash follows another factoring of the same ranks") {
  const std::string text = "tp=2,dp=2,pp=2,sp=tp/etp=1,ep=2,edp=2,pp=2,tokens=ep";
  const Mesh mesh = parse_mesh(text, 8, "--axes");
  CHECK(mesh.axes == Axes{{"tp", 2}, {"dp", 2}, {"pp", 2}});
  CHECK(mesh.further_factorings == std::vector<Axes>{{{"etp", 1}, {"ep", 2}, {"edp", 2}, {"pp", 2}}});
  CHECK(mesh.aliases == Aliases{{"sp", "tp"}, {"tokens", "ep"}});
  CHECK(to_string(mesh) == text);
  CHECK(coordinates_of(mesh, 5) == Coordinates{{"tp", 1}, {"dp", 0}, {"pp", 1}, {"etp", 0}, {"ep", 1}, {"edp", 0}});
  CHECK(size_of_axis(mesh, "tokens") == 2);
}

TEST_CASE("factorings that contradict each other or the run are named") {
  CHECK(error_of("tp=2,dp=2/ep=2", 4) == "--axes: the axes 'ep=2' make 2 ranks; the run has 4");
  CHECK(error_of("tp=2/", 2) == "--axes: the axes '' make 1 ranks; the run has 2");
  CHECK(error_of("tp=2,pp=2/pp=2,ep=2", 4) ==
        "--axes: axis 'pp' has another size or place in 'pp=2,ep=2' than in 'tp=2,pp=2'; expected the same coordinate "
        "on every rank");
  CHECK(error_of("tp=2,pp=4/ep=4,pp=2", 8) ==
        "--axes: axis 'pp' has another size or place in 'ep=4,pp=2' than in 'tp=2,pp=4'; expected the same coordinate "
        "on every rank");
  CHECK(error_of("tp=2,ep=tp/ep=2", 2) == "--axes: axis 'ep' appears twice; expected each axis once");
  CHECK(error_of("tp=2/ep=2,tp=ep", 2) == "--axes: axis 'tp' appears twice; expected each axis once");
  CHECK(error_of("a=2/b=2/c=2/d=2/e=2", 2) ==
        "--axes: too many factorings of the ranks; expected at most 3 after the first");
}

TEST_SUITE_END();
