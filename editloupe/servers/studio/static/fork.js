// The form of a fork: only what was changed is sent.
import { ask, onSubmit } from "./common.js";
import { Viewer } from "./viewer.js";

const form = document.querySelector("[data-fork]");
const failure = form.querySelector("[data-failure]");
const working = form.querySelector("[data-working]");
const button = form.querySelector("button[type=submit]");
const stop = form.querySelector("[data-stop]");
const note = form.querySelector("[data-stopped]");

function changed(field) {
  return field && field.value.trim() !== (field.dataset.was ?? "").trim() ? field.value.trim() : null;
}

// A box is drawn on its picture or typed in the call's coordinates; each follows the other.
for (const place of document.querySelectorAll("[data-call-box]")) {
  const field = form.querySelector(`[data-call="${place.dataset.callBox}"] [name=box]`);
  const units = place.dataset.units.split(" ").map(Number);
  const viewer = new Viewer(place.querySelector("[data-viewer]"));
  viewer.drawing.toggle(true);
  viewer.drawing.changed = (boxes) => {
    const box = boxes.at(-1);
    if (!box) { viewer.setTargets([read()].filter(Boolean)); return; }
    viewer.setTargets([box]);
    field.value = box.map((value, at) => Math.round(value / units[at % 2])).join(", ");
  };
  const read = () => {
    const values = field.value.split(/[\s,;]+/).filter(Boolean).map(Number);
    const good = values.length === 4 && values.every(Number.isFinite) && values[2] > values[0] && values[3] > values[1];
    return good ? values.map((value, at) => value * units[at % 2]) : null;
  };
  field.addEventListener("input", () => { const box = read(); if (box) viewer.setTargets([box]); });
}

async function wanted() {
  const fields = form.elements;
  const body = { ...JSON.parse(form.dataset.where), job: form.dataset.job, dropped: [], again: [], boxes: {}, pictures: {} };
  body.thought = changed(fields.thought);
  body.judge = changed(fields.judge) ?? "";
  body.mode = fields.mode.value;
  body.base_url = fields.base_url ? fields.base_url.value : "";
  for (const name of ["setup", "tools", "wording"]) body[name] = fields[name].value;
  body.times = fields.times.value === "" ? 1 : Number(fields.times.value);
  for (const call of form.querySelectorAll("[data-call]")) {
    const number = Number(call.dataset.call);
    const how = call.querySelector("[name=observation]").value;
    if (how === "drop") body.dropped.push(number);
    if (how === "again") body.again.push(number);
    const box = changed(call.querySelector("[name=box]"));
    if (box) body.boxes[number] = box;
    const file = call.querySelector("[name=picture]").files[0];
    if (file) body.pictures[number] = (await ask("/uploads", { body: file, type: "application/octet-stream" })).sha;
  }
  return body;
}

function busy(on) {
  working.hidden = stop.hidden = !on;
  stop.disabled = false;
  button.disabled = on;
}

// What was stopped: the sentence, and the way to those that had ended.
function tellStopped({ stopped, address }) {
  note.replaceChildren(`${stopped[0].toUpperCase()}${stopped.slice(1)}. `);
  if (address) {
    const link = document.createElement("a");
    link.href = address;
    link.textContent = "Open it";
    note.append(link);
  }
  note.hidden = false;
}

onSubmit(form, async () => {
  failure.hidden = note.hidden = true;
  busy(true);
  try {
    const made = await ask(form.dataset.fork, { body: await wanted() });
    if (made.stopped) tellStopped(made);
    else location.assign(made.address);
  } catch (error) {
    failure.textContent = error.message;
    failure.hidden = false;
  } finally {
    busy(false);
  }
});
// Asked again where the fork has not begun yet, until it has ended.
stop.addEventListener("click", async () => {
  stop.disabled = true;
  while (!stop.hidden) {
    const heard = await ask(`/forking/${encodeURIComponent(form.dataset.job)}/stop`, { method: "POST" }).catch(() => null);
    if (heard) return;
    await new Promise((done) => { setTimeout(done, 300); });
  }
});
