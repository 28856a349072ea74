// Takes names apart for the heat map: which layer, and what in it.

export interface Place {
  family: string; // what the layers are in: "decoder.layers"; empty outside of them
  layer: number; // -1 outside of layers
  module: string; // inside the layer, or the whole path; further numbers are *
}

const isNumber = (component: string): boolean => /^(0|[1-9]\d{0,8})$/.test(component);

// A further call of a module counts as the module's; the members of a tuple are apart.
export function placeOf(name: string): Place {
  const [withoutCall = ""] = name.split("#");
  const colon = withoutCall.indexOf(":");
  const path = colon < 0 ? withoutCall : withoutCall.slice(0, colon);
  const member = colon < 0 ? "" : withoutCall.slice(colon);
  const components = path.split(".");
  const at = components.findIndex((component, i) => i > 0 && isNumber(component));
  if (at < 0) return { family: "", layer: -1, module: path + member };
  const inside = components.slice(at + 1).map((component) => (isNumber(component) ? "*" : component));
  return {
    family: components.slice(0, at).join("."),
    layer: Number(components[at]),
    module: (inside.length ? inside.join(".") : "(layer)") + member,
  };
}

// What an optimizer holds before its step has kinds of its own, which come with the initial parameters.
const FORWARD = ["input", "output", "scalar"];
const BACKWARD = ["grad_output", "grad_input"];
const UPDATES = ["param_grad", "main_grad", "step_grad", "param_delta", "param_after", "buffer_after"];
export const KINDS = ["param", "buffer", ...FORWARD, ...BACKWARD, ...UPDATES];

export type Phase = "initial" | "forward" | "backward" | "updates";
export const PHASES: Record<Phase, string> = {
  initial: "Before",
  forward: "Forward",
  backward: "Backward",
  updates: "Parameters",
};

export function phaseOf(kind: string): Phase {
  if (FORWARD.includes(kind)) return "forward";
  if (BACKWARD.includes(kind)) return "backward";
  return UPDATES.includes(kind) ? "updates" : "initial";
}

// A label of a column: of a long path the first components become letters, since the last ones tell more.
export function shortLabel(label: string, most = 34): string {
  if (label.length > 400) return `…${label.slice(label.length - most + 1)}`;
  const [path = "", ...rest] = label.split(" ");
  const components = path.split(".");
  const text = (): string => [components.join("."), ...rest].join(" ");
  for (let i = 0; i < components.length - 1 && text().length > most; ++i) components[i] = (components[i] ?? "").slice(0, 1);
  const whole = text();
  return whole.length <= most ? whole : `…${whole.slice(whole.length - most + 1)}`;
}
