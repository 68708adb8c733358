// Pairs: the viewer, and keys for ratings and choices; the form itself needs no script.
import { onKeys } from "./common.js";
import { Viewer } from "./viewer.js";

const viewer = new Viewer(document.querySelector("[data-viewer]"));
const turnOver = () => {
  const choices = [...viewer.root.querySelectorAll("[data-over]")];
  const next = choices[(choices.findIndex((one) => one.getAttribute("aria-pressed") === "true") + 1) % choices.length];
  next?.click();
  return Boolean(next);
};

const press = (key) => () => {
  const button = document.querySelector(`[data-press="${key}"]`);
  if (!button) return false;
  button.click();
  return true;
};
// The first digit rates candidate A, the second rates B and sends both; u takes back what was said last.
const form = document.querySelector("[data-pair-form]");
const rate = (value) => () => {
  const side = ["a", "b"].find((name) => form?.elements[name] && !form.querySelector(`[name="${name}"]:checked`));
  if (!side) return false;
  form.querySelector(`[name="${side}"][value="${value}"]`).checked = true;
  if (side === "b") form.requestSubmit();
  return true;
};
const takeBack = () => {
  const checked = form ? [...form.querySelectorAll("input:checked")] : [];
  for (const input of checked) input.checked = false;
  const back = checked.length ? null : document.querySelector("[data-undo]");
  back?.click();
  return checked.length > 0 || back !== null;
};
onKeys({ 1: rate(1), 2: rate(2), 3: rate(3), 4: rate(4), 5: rate(5), u: takeBack, o: turnOver });
onKeys({ a: press("a"), b: press("b"), t: press("t") });
