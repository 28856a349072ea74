// The page of a report: its overview, or one tensor's page (`#tensor/12`). A run's page has several reports
// (`#candidate/1`, `#candidate/1/tensor/12`).
import { curves } from "./curves";
import { type Content, type RunIndex, unpackJson, unpackReport } from "./data";
import { el, type View, visible } from "./dom";
import { heatmaps } from "./heatmap";
import { type History, historySection } from "./history";
import { listing } from "./listing";
import { runPage } from "./run";
import { type Sdc, sdcPage } from "./sdc";
import { notesSection, summary } from "./summary";
import { tensorPage } from "./tensor";

const nextFrame = (): Promise<void> => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));

function overview({ report, table }: Content, open: (row: number) => void): View {
  const element = el("div", {}, summary(report, table, open));
  const draw = async (): Promise<void> => {
    if (!table.rows) return;
    await nextFrame(); // the summary is there before the pictures are
    const heat = heatmaps(report, table, open);
    const parts = [heat, curves(report, table, open)].filter((part) => part !== null);
    element.append(...parts.map((part) => part.view), listing(table, open));
    const notes = notesSection(report);
    if (notes) heat.view.after(notes);
    for (const part of parts) part.draw();
  };
  return { element, draw };
}

interface Route {
  candidate: number; // -1: none
  row: number; // -1: the overview
}

function routeOf(hash: string): Route {
  const match = /^#(?:candidate\/(\d+))?\/?(?:tensor\/(\d+))?$/.exec(hash);
  return { candidate: Number(match?.[1] ?? -1), row: Number(match?.[2] ?? -1) };
}

class Page {
  private readonly contents = new Map<number, Content>();
  private readonly overviews = new Map<string, HTMLElement>(); // kept, with their filters
  private readonly scrolled = new Map<string, number>();
  private shown = "";
  private homeIsDrawn = false;

  // `home` is the overview of a run with several reports.
  constructor(
    private readonly place: HTMLElement,
    private readonly header: HTMLElement,
    private readonly packed: string[],
    private readonly home: View | null,
  ) {}

  async show(): Promise<void> {
    if (this.overviews.has(this.shown)) this.scrolled.set(this.shown, scrollY);
    const route = routeOf(location.hash);
    const at = this.home ? route.candidate : 0;
    const packed = this.packed[at];
    if (packed) {
      const content = this.contents.get(at) ?? (await unpackReport(packed));
      this.contents.set(at, content);
      await this.showReport(content, at, route.row);
    } else if (this.home) {
      this.header.hidden = false;
      this.display(this.home.element);
      this.shown = "";
      if (!this.homeIsDrawn) await this.home.draw();
      this.homeIsDrawn = true;
    }
  }

  // Overviews stay where they are, hidden, with their charts; a tensor's page goes.
  private display(element: HTMLElement): void {
    for (const child of [...this.place.children] as HTMLElement[]) {
      if (child.classList.contains("tensor")) child.remove();
      child.hidden = true;
    }
    this.place.append(element);
    element.hidden = false;
  }

  private async showReport(content: Content, at: number, row: number): Promise<void> {
    const { report, table } = content;
    const prefix = this.home ? `candidate/${at}` : "";
    const open = (to: number): void => {
      location.hash = `${prefix}${prefix ? "/" : ""}tensor/${to}`;
    };
    if (row >= 0 && row < table.rows) {
      const { view, draw } = tensorPage(report, table, row, open, `#${prefix}`);
      this.header.hidden = true;
      this.display(view);
      this.shown = location.hash;
      draw();
      scrollTo(0, 0);
      view.querySelector<HTMLElement>("h1")?.focus({ preventScroll: true });
      return;
    }
    this.header.hidden = this.home !== null;
    this.shown = prefix || "report";
    const known = this.overviews.get(this.shown);
    if (known) {
      this.display(known);
    } else {
      const { element, draw } = overview(content, open);
      if (this.home) {
        const title = el("header", {}, el("p", {}, el("a", { href: "#" }, "← All candidates")), el("h1", {}, report.headline));
        element.prepend(title);
        element.dataset.verdict = report.verdict;
      }
      this.overviews.set(this.shown, element);
      this.display(element);
      await draw();
    }
    scrollTo(0, this.scrolled.get(this.shown) ?? 0);
  }
}

// The page of one thing, which has no pages within.
async function showOne(place: HTMLElement, view: View): Promise<void> {
  place.replaceChildren(view.element);
  await nextFrame();
  await view.draw();
}

async function historyPage(packed: string): Promise<View> {
  const { view, draw } = historySection(await unpackJson<History>(packed));
  return { element: view, draw };
}

async function showReports(place: HTMLElement, header: HTMLElement, packed: string[], isRun: boolean): Promise<void> {
  const index = isRun ? await unpackJson<RunIndex>(packed[0] ?? "") : null;
  const reports = index ? packed.slice(1).map((line) => (line === "-" ? "" : line)) : packed;
  place.replaceChildren();
  const page = new Page(place, header, reports, index && runPage(index));
  addEventListener("hashchange", () => void page.show());
  await page.show();
}

async function start(): Promise<void> {
  const place = document.getElementById("page");
  const data = document.getElementById("data");
  const header = document.querySelector("header");
  if (!place || !data || !header) return;
  // A line each: of a run its index first, then the reports of the candidates.
  const packed = (data.textContent ?? "").trim().split("\n");
  const content = data.dataset.content;
  data.remove();
  document.body.dataset.verdict = document.querySelector("h1")?.textContent?.split(/[:,]/)[0] ?? "";
  try {
    if (content === "sdc") await showOne(place, sdcPage(await unpackJson<Sdc>(packed[0] ?? "")));
    else if (content === "history") await showOne(place, await historyPage(packed[0] ?? ""));
    else await showReports(place, header, packed, content === "run");
  } catch (error) {
    place.replaceChildren(el("p", {}, visible(`This browser could not read the report: ${String(error)}`)));
  }
  place.setAttribute("aria-busy", "false");
  performance.mark("ttrace-drawn");
}

void start();
