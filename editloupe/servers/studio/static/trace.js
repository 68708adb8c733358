import { ask, onKeys, say, step } from "./common.js";
import { Viewer, connectSteps } from "./viewer.js";

const root = document.querySelector("[data-viewer]");
const steps = document.querySelector(".columns-steps");
if (root) connectSteps(new Viewer(root), steps);

onKeys({ j: () => step(steps.querySelectorAll(".step"), 1), k: () => step(steps.querySelectorAll(".step"), -1) });

for (const raw of document.querySelectorAll("details.raw")) {
  raw.addEventListener("toggle", async () => {
    if (!raw.open || raw.dataset.loaded) return;
    raw.dataset.loaded = "yes";
    const place = raw.querySelector("p");
    try {
      const content = await ask(raw.dataset.raw);
      const parts = ["request", "reply"].flatMap((name) => {
        const head = document.createElement("h4");
        head.textContent = name === "request" ? "Request, pictures by hash" : "Reply";
        const text = document.createElement("pre");
        text.className = "model";
        text.textContent = JSON.stringify(content[name], null, 2);
        const copy = document.createElement("button");
        copy.type = "button";
        copy.className = "quiet";
        copy.textContent = "Copy";
        copy.addEventListener("click", async () => {
          try { await navigator.clipboard.writeText(text.textContent); say("Copied."); } catch { say("The browser does not allow copying here; select the text instead."); }
        });
        head.append(copy);
        return [head, text];
      });
      if (content.note) {
        const note = document.createElement("p");
        note.className = "note small";
        note.textContent = content.note;
        parts.unshift(note);
      }
      place.replaceWith(...parts);
    } catch (error) {
      place.textContent = error.message;
      delete raw.dataset.loaded;
    }
  });
}
