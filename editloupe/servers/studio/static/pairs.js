// Pairs: keys for the three choices; the form itself needs no script.
import { onKeys } from "./common.js";

const press = (key) => () => {
  const button = document.querySelector(`[data-press="${key}"]`);
  if (!button) return false;
  button.click();
  return true;
};
onKeys({ a: press("a"), b: press("b"), t: press("t") });
