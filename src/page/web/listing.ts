// The table of all tensors: searched, filtered, sorted and paged.
import { findingAt, isWrong, reasonOf, type Table } from "./data";
import { clip, el, scrolling } from "./dom";
import { count, plural, short } from "./numbers";
import { verdictPill, when } from "./tensor";

const PAGE = 50;

type Order = "execution" | "ratio" | "rel_err";

interface State {
  search: string;
  verdict: string;
  kind: string;
  order: Order;
  page: number;
}

export function listing(table: Table, open: (row: number) => void): HTMLElement {
  const rows = Array.from({ length: table.rows }, (_, row) => row);
  const wrong = rows.filter((row) => isWrong(findingAt(table, row)));
  const state: State = { search: "", verdict: wrong.length ? "wrong" : "all", kind: "", order: "execution", page: 0 };
  const lower = table.texts("name").map((name) => name.toLowerCase());

  const select = (label: string, id: string, options: [string, string][], change: (value: string) => void): HTMLElement => {
    const box = el("select", { id }, options.map(([value, text]) => el("option", { value }, text)));
    box.addEventListener("change", () => {
      change(box.value);
      show(0);
    });
    return el("span", { class: "filter" }, el("label", { for: id }, label), box);
  };
  const search = el("input", { id: "search", type: "search", placeholder: "part of a name", autocomplete: "off" });
  search.addEventListener("input", () => {
    state.search = search.value.toLowerCase();
    show(0);
  });
  const kinds = [...new Set(rows.map((row) => table.place("kind", row)))].sort((a, b) => a - b).map((place) => table.texts("kind")[place] ?? "");
  const verdicts = [...new Set(rows.map((row) => table.text("verdict", row)))];
  const first: [string, string][] = wrong.length ? [["wrong", "wrong"]] : [];
  const filters = el(
    "div",
    { class: "filters", role: "search" },
    el("span", { class: "filter" }, el("label", { for: "search" }, "Name"), search),
    select("Verdict", "verdict", [...first, ["all", "all"], ...verdicts.map((word): [string, string] => [word, word])], (value) => (state.verdict = value)),
    select("Kind", "kind", [["", "all"], ...kinds.filter(Boolean).map((kind): [string, string] => [kind, kind])], (value) => (state.kind = value)),
  );

  const chosen = (): number[] => {
    const found = (state.verdict === "wrong" ? wrong : rows).filter(
      (row) =>
        (!state.search || (lower[table.place("name", row)] ?? "").includes(state.search)) &&
        (state.verdict === "wrong" || state.verdict === "all" || table.text("verdict", row) === state.verdict) &&
        (!state.kind || table.text("kind", row) === state.kind),
    );
    const { order } = state;
    if (order === "execution") return found;
    const size = (row: number): number => table.number(order, row) ?? Number.NEGATIVE_INFINITY;
    return found.sort((a, b) => size(b) - size(a) || a - b);
  };

  const heading = (title: string, order: Order): HTMLElement => {
    const button = el("button", { type: "button", class: "sort" }, title, state.order === order ? " ▼" : "");
    button.addEventListener("click", () => {
      state.order = order;
      show(0);
      document.getElementById("tensors")?.querySelector<HTMLElement>("[aria-sort] button")?.focus();
    });
    return el("th", { scope: "col", "aria-sort": state.order === order ? (order === "execution" ? "ascending" : "descending") : null }, button);
  };

  const body = el("div");
  const show = (page: number): void => {
    const found = chosen();
    const pages = Math.max(Math.ceil(found.length / PAGE), 1);
    state.page = Math.min(Math.max(page, 0), pages - 1);
    const head = el(
      "tr",
      {},
      heading("#", "execution"),
      ["verdict", "tensor", "kind", "when"].map((title) => el("th", { scope: "col" }, title)),
      heading("rel_err", "rel_err"),
      el("th", { scope: "col" }, "allowed"),
      heading("ratio", "ratio"),
      ["ranks", "reason"].map((title) => el("th", { scope: "col" }, title)),
    );
    const lines = found.slice(state.page * PAGE, (state.page + 1) * PAGE).map((row) => {
      const finding = findingAt(table, row);
      const link = el("button", { type: "button", class: "link" }, clip(finding.name || "(about ranks)", 160));
      link.addEventListener("click", () => open(row));
      const ranks = table.text("ranks", row);
      const cells = [
        String(row + 1),
        verdictPill(finding),
        link,
        finding.kind,
        when(finding).replace("iteration ", "it. ").replace("micro-batch ", "mb. "),
        short(finding.error),
        short(finding.allowed),
        short(finding.ratio),
        ranks === "[]" ? "" : clip(ranks.slice(1, -1).replaceAll(",", ", "), 40),
        finding.reason === "none" ? "" : reasonOf(finding),
      ];
      return el("tr", {}, cells.map((cell) => el("td", {}, cell)));
    });
    const step = (title: string, to: number, disabled: boolean): HTMLElement => {
      const button = el("button", { type: "button", disabled }, title);
      button.addEventListener("click", () => show(to));
      return button;
    };
    body.replaceChildren(
      el("p", { role: "status", id: "listed" }, `${plural(found.length, "tensor")}, page ${count(state.page + 1)} of ${count(pages)}`),
      scrolling(el("table", { class: "numbers listing" }, el("thead", {}, head), el("tbody", {}, lines))),
      el(
        "nav",
        { class: "pages", "aria-label": "pages of the table" },
        step("First", 0, state.page === 0),
        step("Previous", state.page - 1, state.page === 0),
        step("Next", state.page + 1, state.page >= pages - 1),
        step("Last", pages - 1, state.page >= pages - 1),
      ),
    );
  };
  show(0);
  return el("section", { id: "tensors", "aria-labelledby": "tensors-title" }, el("h2", { id: "tensors-title" }, "All tensors"), filters, body);
}
