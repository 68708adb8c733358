import { ask, onKeys, say, step } from "./common.js";
import { Viewer, connectSteps } from "./viewer.js";

const root = document.querySelector("[data-viewer]");
const steps = document.querySelector(".columns-steps");
const viewer = root && new Viewer(root);
if (viewer && steps) connectSteps(viewer, steps);

// Steps are collapsed to their first line, one by one or all together; a link to a step opens it.
function fold(step, open) {
  step.classList.toggle("folded", !open);
  step.querySelector("[data-fold]").setAttribute("aria-expanded", String(open));
}
document.addEventListener("click", (event) => {
  const { foldAll } = event.target.closest("[data-fold-all]")?.dataset ?? {};
  if (foldAll) for (const each of event.target.closest(".timeline").querySelectorAll(".step")) fold(each, foldAll === "true");
  const button = event.target.closest("[data-fold]");
  if (button) fold(button.closest(".step"), button.getAttribute("aria-expanded") === "false");
  const link = event.target.closest(".overview a");
  if (link) fold(document.getElementById(link.hash.slice(1)), true);
});
const current = () => document.activeElement?.closest(".step");
const press = (selector) => { const button = current()?.querySelector(selector); button?.click(); return Boolean(button); };

onKeys({ o: () => press("[data-fold]"), r: () => press("[data-raw]"), j: () => step(document.querySelectorAll(".step"), 1), k: () => step(document.querySelectorAll(".step"), -1) });

// The raw request and reply of a step, in a pane over the page, with copy and find.
const pane = document.querySelector("dialog.raw-pane");
const texts = pane ? [...pane.querySelectorAll("[data-part]")] : [];
const find = pane?.querySelector("[name=find]");
let raw = {};
let hits = [];
let hit = 0;

function search() {
  const wanted = find.value.toLowerCase();
  hits = [];
  for (const text of texts) {
    const whole = text.textContent;
    const lower = whole.toLowerCase();
    const parts = [];
    let from = 0;
    for (let at = wanted ? lower.indexOf(wanted) : -1; at >= 0; at = lower.indexOf(wanted, from)) {
      const mark = document.createElement("mark");
      mark.textContent = whole.slice(at, at + wanted.length);
      parts.push(whole.slice(from, at), mark);
      hits.push(mark);
      from = at + wanted.length;
    }
    text.replaceChildren(...parts, whole.slice(from));
  }
  goTo(0);
}

function goTo(number) {
  hits[hit]?.classList.remove("here");
  hit = hits.length ? (number + hits.length) % hits.length : 0;
  hits[hit]?.classList.add("here");
  hits[hit]?.scrollIntoView({ block: "center" });
  pane.querySelector("output").textContent = find.value ? (hits.length ? `${hit + 1} of ${hits.length}` : "not found") : "";
}

async function openRaw(button) {
  try {
    const content = await ask(button.dataset.raw);
    pane.querySelector("h2").textContent = `${button.dataset.title}: raw request and reply`;
    raw = content;
    // Line breaks of texts are shown as such; what is copied is the JSON as it is.
    for (const text of texts) text.textContent = JSON.stringify(content[text.dataset.part], null, 2).replaceAll("\\n", "\n");
    const note = pane.querySelector("[data-raw-note]");
    note.hidden = !content.note;
    note.textContent = content.note ?? "";
    pane.showModal();
    search();
    for (const text of texts) text.scrollTop = 0;
  } catch (error) { say(error.message); }
}

document.addEventListener("click", (event) => { const button = event.target.closest("[data-raw]"); if (button) openRaw(button); });
find?.addEventListener("input", search);
pane?.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target === find) { event.preventDefault(); goTo(hit + (event.shiftKey ? -1 : 1)); } });
pane?.addEventListener("click", async (event) => {
  if (event.target === pane) pane.close();
  const { hit: by, copy } = event.target.closest("button")?.dataset ?? {};
  if (by) goTo(hit + Number(by));
  if (!copy) return;
  try {
    await navigator.clipboard.writeText(JSON.stringify(raw[copy], null, 2));
    event.target.textContent = "Copied";
    setTimeout(() => { event.target.textContent = "Copy"; }, 1500);
  } catch { event.target.textContent = "Select the text instead: the browser does not allow copying here"; }
});
