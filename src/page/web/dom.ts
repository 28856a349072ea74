// Makes elements. Text from a trace only ever becomes text, never markup.

type Attributes = Record<string, string | number | boolean | null | undefined | ((event: Event) => void)>;
// What is drawn once it is in the document.
export interface View {
  element: HTMLElement;
  draw: () => void | Promise<void>;
}

export type Child = Node | string | null | undefined | Child[];

// Control characters, those that turn the direction of writing and those that take no room, which would make a name look
// like another.
const HIDDEN =
  /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|\ud82f[\udca0-\udca3]|\ud834[\udd73-\udd7a]|[\udb40-\udb43][\udc00-\udfff]/g;

export function visible(text: string): string {
  const escape = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return text.replace(HIDDEN, (found) => found.split("").map(escape).join(""));
}

// A text that fits on a page; a tensor's own page shows all of its name.
export function clip(text: string, most = 240): string {
  return text.length <= most ? text : `${text.slice(0, most - 20)}… (${text.length.toLocaleString("en")} characters)`;
}

function append(parent: Node, child: Child): void {
  if (child === null || child === undefined) return;
  if (Array.isArray(child)) for (const one of child) append(parent, one);
  else parent.appendChild(typeof child === "string" ? document.createTextNode(visible(child)) : child);
}

function assign(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : visible(String(value)));
  }
}

export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  assign(element, attributes);
  append(element, children);
  return element;
}

export function svg(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  assign(element, attributes);
  append(element, children);
  return element;
}

export const code = (text: string): HTMLElement => el("code", {}, text);

export function announce(text: string): void {
  const place = document.getElementById("announcement");
  if (place) place.textContent = visible(text);
}

// A command with a button that copies it.
export function commandLine(command: string): HTMLElement {
  const button = el("button", { type: "button", class: "copy" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command);
    } catch {
      const area = el("textarea", {});
      area.value = command;
      document.body.append(area);
      area.select();
      document.execCommand("copy"); // pages from files may have no clipboard
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return el("div", { class: "command" }, scrolling(code(command), { class: "command-text" }), button);
}

// Keyboards reach what scrolls, and pass by what does not.
const widths = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth || target.scrollHeight > target.clientHeight) target.setAttribute("tabindex", "0");
    else target.removeAttribute("tabindex");
  }
});

// Puts what may be wider than a phone into a place that scrolls.
export function scrolling(child: Child, attributes: Attributes = {}): HTMLElement {
  const place = el("div", { class: "wide", ...attributes }, child);
  widths.observe(place);
  return place;
}

export function table(head: string[], rows: Child[][], attributes: Attributes = {}): HTMLElement {
  return scrolling(
    el(
      "table",
      attributes,
      el("thead", {}, el("tr", {}, head.map((title) => el("th", { scope: "col" }, title)))),
      el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell))))),
    ),
  );
}

// Details whose content is made when they are opened first.
export function lazyDetails(title: string, make: () => Node): HTMLDetailsElement {
  const details = el("details", {}, el("summary", {}, title));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(make());
  });
  return details;
}
