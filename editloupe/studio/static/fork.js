// The form of a fork: only what was changed is sent.
import { ask } from "./common.js";

const form = document.querySelector("[data-fork]");
const failure = form.querySelector("[data-failure]");
const working = form.querySelector("[data-working]");
const button = form.querySelector("button[type=submit]");

function changed(field) {
  return field && field.value.trim() !== (field.dataset.was ?? "").trim() ? field.value.trim() : null;
}

async function wanted() {
  const fields = form.elements;
  const body = { ...JSON.parse(form.dataset.where), dropped: [], again: [], boxes: {}, pictures: {} };
  body.thought = changed(fields.thought);
  body.judge = changed(fields.judge) ?? "";
  body.mode = fields.mode.value;
  body.base_url = fields.base_url ? fields.base_url.value : "";
  for (const name of ["setup", "tools", "wording"]) body[name] = fields[name].value;
  body.times = Number(fields.times.value) || 1;
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

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  failure.hidden = true;
  working.hidden = false;
  button.disabled = true;
  try {
    const made = await ask(form.dataset.fork, { body: await wanted() });
    location.assign(made.address);
  } catch (error) {
    failure.textContent = error.message;
    failure.hidden = false;
  } finally {
    working.hidden = true;
    button.disabled = false;
  }
});
