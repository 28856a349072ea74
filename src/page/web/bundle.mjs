// Bundles the page into one HTML template, and that into a C++ source: node bundle.mjs OUTPUT.cpp
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { build } from "esbuild";

const output = process.argv[2];
const bundle = async (entry) => {
  const result = await build({
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: "es2022",
    legalComments: "none",
    logLevel: "warning",
  });
  return result.outputFiles[0].text.trim();
};

const script = await bundle("main.ts");
const style = await bundle("style.css");
// No script but ours runs, whatever a name in a trace holds.
const hash = createHash("sha256").update(script).digest("base64");
const page = readFileSync("page.html", "utf8")
  .replace("{{hash}}", () => hash)
  .replace("{{style}}", () => style)
  .replace("{{script}}", () => script);
if (page.includes(')page"')) throw new Error("the page holds what ends a string of its C++ source");
mkdirSync(dirname(output), { recursive: true });
writeFileSync(
  output,
  `#include "page/page_template.h"

namespace ttrace {

using namespace std::string_view_literals;

const std::string_view kPageTemplate = R"page(${page})page"sv;

}  // namespace ttrace
`,
);
