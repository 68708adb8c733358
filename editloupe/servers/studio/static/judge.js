import { ask, onSubmit, say } from "./common.js";
import { connectBoxList } from "./boxes.js";
import { Viewer, connectSteps } from "./viewer.js";

const page = document.querySelector("[data-judge]");
const form = page.querySelector("[data-form]");
const find = (name) => page.querySelector(`[data-${name}]`);
const protocols = JSON.parse(page.dataset.protocols);
const asked = JSON.parse(page.dataset.asked);
const place = find("viewer-place");
const viewer = new Viewer(place.querySelector("[data-viewer]"));
const refreshBoxes = connectBoxList(viewer, find("box-list"), find("box-add"), () => {});
const gatherMarks = connectSteps(viewer, find("tracks"));
const slots = Object.fromEntries([...page.querySelectorAll("[data-slot]")].map((slot) => [slot.dataset.slot, slot]));
let name = asked.name;
let following = null;

// Pictures

function put(role, sha, words) {
  const slot = slots[role];
  slot.dataset.sha = sha;
  const picture = slot.querySelector("img");
  picture.hidden = !sha;
  picture.alt = sha ? `${role} picture` : "";
  if (sha) picture.src = `/pictures/${sha}/small`;
  slot.classList.toggle("filled", Boolean(sha));
  slot.querySelector("small").textContent = sha ? words || "Press to choose another" : slot.querySelector(".slot-clear") ? "Optional" : "Drop a picture, or press to choose";
  const clear = slot.querySelector(".slot-clear");
  if (clear) clear.hidden = !sha;
  const { source, edited } = shas();
  place.hidden = !source;
  if (source) viewer.show(source, edited || source);
}

// The pictures that count: slots of other protocols may hold some, which are not sent.
function shas() {
  const own = {}, more = {};
  for (const [role, slot] of Object.entries(slots)) if (!slot.hidden) (slot.closest("[data-further]") ? more : own)[role] = slot.dataset.sha;
  return { ...own, more };
}

async function take(role, file) {
  if (!file) return;
  const slot = slots[role];
  slot.setAttribute("aria-busy", "true");
  try {
    const { sha, width, height } = await ask("/uploads", { body: file, type: "application/octet-stream" });
    if (role === "source") { viewer.setTargets([]); refreshBoxes(); }
    if (role === "edited") name = file.name;
    put(role, sha, `${file.name}, ${width} × ${height}`);
    fail("");
  } catch (error) {
    fail(`${file.name}: ${error.message}`);
  }
  slot.removeAttribute("aria-busy");
}

for (const [role, slot] of Object.entries(slots)) {
  slot.querySelector("input").addEventListener("change", (event) => { take(role, event.target.files[0]); event.target.value = ""; });
  slot.addEventListener("dragover", (event) => { event.preventDefault(); slot.classList.add("over"); });
  slot.addEventListener("dragleave", () => slot.classList.remove("over"));
  slot.addEventListener("drop", (event) => {
    event.preventDefault();
    slot.classList.remove("over");
    const files = [...event.dataTransfer.files];
    if (files.length === 2 && role !== "reference") { take("source", files[0]); take("edited", files[1]); } else take(role, files[0]);
  });
  slot.querySelector(".slot-clear")?.addEventListener("click", () => put(role, ""));
}
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => event.preventDefault());

// Choices

function fillChoices(mode, type) {
  const protocol = protocols.find((one) => one.name === form.elements.protocol.value);
  form.elements.mode.replaceChildren(...protocol.modes.map((one) => new Option(one[0].toUpperCase() + one.slice(1), one, false, one === (mode || protocol.default))));
  hintMode();
  for (const slot of find("further").children) slot.hidden = !protocol.roles.includes(slot.dataset.slot);
  find("further").hidden = !protocol.roles.length;
  form.elements.instruction_type.replaceChildren(new Option("Not given", ""), ...protocol.types.map((one) => new Option(one, one, false, one === type)));
}
const MODES = {
  tools: "Tools: the judge may zoom in, compare and detect before it answers.",
  oracle: "Oracle: it sees the target boxes and the reference; both are needed.",
  plain: "Plain: it sees the two pictures and answers at once.",
};
function hintMode() { find("mode-hint").textContent = MODES[form.elements.mode.value] ?? ""; }
form.elements.mode.addEventListener("change", hintMode);
form.elements.protocol.addEventListener("change", () => fillChoices("", form.elements.instruction_type.value));

function hint() {
  const rules = form.elements.judge.value.trim() === "rules";
  find("judge-hint").textContent = rules ? "“rules” decides from measured pixels, without a model or API key: a baseline, not an LMM." : "";
  form.elements.base_url.disabled = rules;
}
form.elements.judge.addEventListener("input", hint);

for (const button of page.querySelectorAll("[data-example]")) {
  button.addEventListener("click", async () => {
    find("start").disabled = true;  // nothing is judged before its pictures are there
    try {
      const example = await ask(`/examples/${encodeURIComponent(button.dataset.example)}`, { method: "POST" });
      name = example.name;
      form.elements.instruction.value = example.instruction;
      fillChoices(form.elements.mode.value, example.instruction_type);
      for (const role of Object.keys(slots)) put(role, example.pictures[role]?.sha ?? "", `${example.name}`);
      viewer.setTargets(example.boxes);
      refreshBoxes();
      clearResult();
      fail("");
      find("start").focus({ preventScroll: true });
    } catch (error) { fail(error.message); } finally { find("start").disabled = false; }
  });
}

// Judging

function fail(sentence) {
  const line = find("failure");
  line.textContent = sentence;
  line.hidden = !sentence;
}

function working(on) {
  find("stop").hidden = !on;
  find("working").hidden = !on;
  find("start").disabled = on;
}

function clearResult() {
  following?.close();
  working(false);
  for (const part of ["verdicts", "notes", "tracks"]) find(part).replaceChildren();
  find("result").hidden = true;
  gatherMarks();
}

function track(criterion, target, part) {
  const key = `${criterion}/${target}/${part}`;
  let column = [...find("tracks").children].find((one) => one.dataset.track === key);
  if (!column) {
    column = document.createElement("section");
    column.className = "timeline";
    column.dataset.track = key;
    const protocol = protocols.find((one) => one.name === form.elements.protocol.value);
    const head = document.createElement("h2");
    head.textContent = (protocol?.criteria[criterion] ?? criterion) + (target === null ? "" : `, target ${target + 1}`) + (part ? `, ${part}` : "");
    const steps = document.createElement("ol");
    steps.className = "steps";
    column.append(head, steps);
    const order = Object.keys(protocol?.criteria ?? {});
    const after = [...find("tracks").children].find((one) => order.indexOf(one.dataset.track.split("/")[0]) > order.indexOf(criterion));
    find("tracks").insertBefore(column, after ?? null);
  }
  return column.querySelector("ol");
}

function follow(job) {
  clearResult();
  find("result").hidden = false;
  working(true);
  following = new EventSource(`/jobs/${encodeURIComponent(job)}/events`);
  const on = (kind, action) => following.addEventListener(kind, (event) => action(JSON.parse(event.data)));
  on("begun", ({ notes }) => find("notes").replaceChildren(...notes.map((note) => { const line = document.createElement("li"); line.textContent = note; return line; })));
  on("step", ({ criterion, target, part, html }) => {
    const first = !find("tracks").children.length;
    track(criterion, target, part).insertAdjacentHTML("beforeend", html);
    gatherMarks();
    if (first && find("result").getBoundingClientRect().top > innerHeight * 0.8) find("result").scrollIntoView({ block: "start" });
  });
  on("verdicts", ({ html }) => { find("verdicts").innerHTML = html; });
  on("failed", ({ sentence }) => fail(sentence));
  on("stopped", ({ sentence }) => say(sentence));
  on("end", () => { following.close(); working(false); });
  following.onerror = () => { if (following.readyState === EventSource.CLOSED) { working(false); fail("The connection to the studio is gone."); } };
}

onSubmit(form, async () => {
  fail("");
  const values = Object.fromEntries(new FormData(form));
  find("start").disabled = true;
  try {
    const { job } = await ask("/judge", { body: { ...values, ...shas(), boxes: viewer.targets, name } });
    history.replaceState(null, "", `/judge?job=${encodeURIComponent(job)}`);
    page.dataset.job = job;
    follow(job);
  } catch (error) {
    fail(error.message);
    find("start").disabled = false;
  }
});
form.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(); });
find("stop").addEventListener("click", () => ask(`/jobs/${encodeURIComponent(page.dataset.job)}/stop`, { method: "POST" }).catch((error) => fail(error.message)));

fillChoices(asked.mode, asked.instruction_type);
hint();
for (const [role, slot] of Object.entries(slots)) if (slot.dataset.sha) put(role, slot.dataset.sha);
viewer.setTargets(asked.boxes.map((box) => [box.x1, box.y1, box.x2, box.y2]));
refreshBoxes();
if (page.dataset.job) follow(page.dataset.job);
