// A benchmark in the making: boxes are drawn, samples are reviewed; after each the next one is asked for.

import { ask, onKeys, say } from "./common.js";
import { connectBoxList } from "./boxes.js";
import { Viewer } from "./viewer.js";

const root = document.querySelector("[data-making]");
const pictures = root.querySelector("[data-viewer]");
const viewer = pictures ? new Viewer(pictures) : null;
const before = viewer ? JSON.stringify(viewer.targets) : "[]";
const saved = root.querySelector("[data-saved]");
const field = (name) => root.querySelector(`[data-${name}]`);
let busy = false;

if (viewer) {
  connectBoxList(viewer, field("box-list"), field("box-add"), () => {});
  viewer.panes.source.picture.addEventListener("load", () => { if (viewer.targets.length && root.dataset.making === "review") closer(); }, { once: true });
  if (root.dataset.making === "boxes") viewer.drawing.toggle(true);
}

// Small targets are looked at closely; 0 shows the whole picture again.
function closer() {
  const [x, y] = [0, 1].map((at) => Math.min(...viewer.targets.map((box) => box[at])));
  const [right, down] = [2, 3].map((at) => Math.max(...viewer.targets.map((box) => box[at])));
  viewer.focusOn([x - (right - x), y - (down - y), right + (right - x), down + (down - y)]);
}

function checks() {
  return Object.fromEntries([...root.querySelectorAll(".making-checks input")].map((one) => [one.name, one.checked]));
}

function corrections() {
  const changed = [...root.querySelectorAll("[data-field]")].filter((one) => one.value !== one.dataset.before);
  return Object.fromEntries(changed.map((one) => [one.dataset.field, one.value]));
}

async function give(what) {
  if (busy) return;
  const { name, sample, key, address } = root.dataset;
  const boxes = viewer ? viewer.targets.map((box) => [...box]) : [];
  const moved = JSON.stringify(boxes) !== before;
  let body = { name, sample, boxes: what === "none" ? [] : boxes };
  if (what === "boxes" && !boxes.length) { say("Draw a box first, or choose that it is not in the picture."); return; }
  if (root.dataset.making === "review") {
    const corrected = corrections();
    if (what === "accept" && (moved || Object.keys(corrected).length)) { say("Save the corrections first; the sample is then reviewed again."); return; }
    body = { name, sample, key, decision: what, checks: checks(), note: field("note").value };
    if (what === "correct") body = { ...body, corrected, boxes: moved ? boxes : null };
  }
  busy = true;
  saved.textContent = "Saving…";
  try {
    await ask(address, { body });
    location.assign(`${address}?${new URLSearchParams({ name })}`);
  } catch (error) {
    busy = false;
    saved.textContent = `Not saved: ${error.message}`;
    say(`Not saved: ${error.message}`);
  }
}

root.addEventListener("click", (event) => {
  const button = event.target.closest("[data-give]");
  if (button) give(button.dataset.give);
});

const toggle = (name) => { const box = root.querySelector(`.making-checks [name=${name}]`); box.checked = !box.checked; };
onKeys(root.dataset.making === "review"
  ? { 1: () => toggle("box"), 2: () => toggle("metadata"), 3: () => toggle("reference"), a: () => { give("accept"); }, c: () => { give("correct"); }, r: () => { give("regenerate"); } }
  : { Enter: (event) => { if (event.target.closest?.("a, button, summary")) return false; give("boxes"); return true; } });
root.dataset.ready = "";
