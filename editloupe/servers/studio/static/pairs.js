// Pairs: keys for the three choices; the form itself needs no script.
import { onKeys } from "./common.js";

const press = (key) => () => {
  const button = document.querySelector(`[data-press="${key}"]`);
  if (!button) return false;
  button.click();
  return true;
};
// The first digit rates candidate A, the second rates B and sends both; u takes the ratings back.
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
  return checked.length > 0;
};
onKeys({ 1: rate(1), 2: rate(2), 3: rate(3), 4: rate(4), 5: rate(5), u: takeBack });
onKeys({ a: press("a"), b: press("b"), t: press("t") });
