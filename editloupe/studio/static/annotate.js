import { ask, onKeys, say } from "./common.js";
import { connectBoxList } from "./boxes.js";
import { Viewer } from "./viewer.js";

const HIDDEN = "The judge’s verdict appears here once you have given all your labels.";

// Saving goes one after the other, so that the file holds the keystrokes in their order.
let queue = Promise.resolve();
let waiting = 0;
// Keys pressed while the next edit is on its way are not lost: they wait for it.
let moving = false;
const pressed = [];
let form = null;

class LabelForm {
  constructor(root) {
    this.root = root;
    this.leaving = new AbortController();
    this.questions = [...root.querySelectorAll(".question")].filter((one) => one.querySelector(".option"));
    const pictures = root.querySelector("[data-viewer]");
    this.viewer = pictures ? new Viewer(pictures, this.leaving.signal) : null;
    this.refreshBoxes = this.viewer
      ? connectBoxList(this.viewer, this.find("box-list"), this.find("box-add"), (boxes) => this.save({ boxes }))
      : () => {};
    root.addEventListener("click", (event) => { const option = event.target.closest(".option"); if (option) this.choose(option); });
    this.find("undo").addEventListener("click", () => this.undo());
    for (const link of document.querySelectorAll("[data-next], [data-previous], [data-following]")) {
      link.addEventListener("click", (event) => { if (!event.ctrlKey && !event.metaKey) { event.preventDefault(); go(link.href); } });
    }
    document.querySelector("details.people")?.addEventListener("toggle", loadAnnotators);
    this.show({ ...JSON.parse(root.dataset.state), boxes: null });
    this.focusOpen();
  }

  find(name) { return this.root.querySelector(`[data-${name}]`); }

  show(state) {
    for (const question of this.questions) {
      const label = state.labels[question.dataset.criterion];
      question.classList.toggle("done", label !== undefined);
      for (const option of question.querySelectorAll(".option")) option.setAttribute("aria-checked", String(option.dataset.label === label));
    }
    const reveal = this.find("reveal");
    reveal.classList.toggle("shown", state.complete);
    if (state.complete) { reveal.innerHTML = state.verdicts; reveal.scrollIntoView({ block: "nearest" }); }
    else reveal.replaceChildren(line(HIDDEN));
    if (state.boxes && this.viewer) { this.viewer.setTargets(state.boxes); this.refreshBoxes(); }
  }

  focusOpen() {
    const open = this.questions.findIndex((one) => !one.classList.contains("done"));
    this.focus(open === -1 ? 0 : open);
  }

  focus(number) {
    this.current = number;
    this.questions.forEach((one, at) => { one.classList.remove("opening"); one.classList.toggle("current", at === number); one.toggleAttribute("aria-current", at === number); });
    this.questions[number]?.scrollIntoView({ block: "nearest" });
  }

  save(body, after = () => {}) {
    const { run, edit, annotator } = this.root.dataset;
    waiting += 1;
    this.find("saved").textContent = "Saving…";
    queue = queue.then(async () => {
      try {
        const state = await ask(`/runs/${run}/labels`, { body: { annotator, edit, ...body } });
        waiting -= 1;
        if (!waiting) this.find("saved").textContent = "Saved";
        after(state);
      } catch (error) {
        waiting -= 1;
        this.find("saved").textContent = `Not saved: ${error.message}`;
        say(`Not saved: ${error.message}`);
      }
    });
  }

  choose(option) {
    const question = option.closest(".question");
    for (const one of question.querySelectorAll(".option")) one.setAttribute("aria-checked", String(one === option));
    question.classList.add("done");
    const next = this.questions.findIndex((one) => !one.classList.contains("done"));
    this.focus(next === -1 ? this.questions.indexOf(question) : next);
    this.save({ criterion: question.dataset.criterion, label: option.dataset.label }, (state) => this.show(state));
  }

  press(key) {
    const option = this.questions[this.current]?.querySelector(`.option[data-key="${key}"]`);
    if (option) this.choose(option);
    return Boolean(option);
  }

  undo() {
    const { run, edit, annotator } = this.root.dataset;
    this.save({ undo: true }, (state) => {
      const place = `/runs/${run}/annotate?${new URLSearchParams({ annotator, edit: state.moved_to })}`;
      if (state.moved_to === null) say("There is nothing left to undo.");
      else if (state.moved_to !== edit || state.boxes === null) go(place);
      else { this.show(state); this.focusOpen(); }
    });
  }
}

function line(text) {
  const made = document.createElement("p");
  made.className = "small";
  made.textContent = text;
  return made;
}

async function loadAnnotators() {
  for (const place of document.querySelectorAll("[data-annotators]")) {
    if (place.closest("details") && !place.closest("details").open) continue;
    try { place.innerHTML = await ask(place.dataset.annotators, { headers: { accept: "application/json" } }); } catch (error) { place.textContent = error.message; }
  }
}

function mount() {
  const root = document.querySelector("[data-annotate]");
  form = root ? new LabelForm(root) : null;
  loadAnnotators();
}

// Opens another edit in this page, after everything is on disk; the address follows.
function go(address, keep = true) {
  if (!address) return false;
  moving = true;
  queue = queue.then(async () => {
    try {
      const answer = await fetch(address, { headers: { accept: "text/html" } });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      form?.leaving.abort();
      document.title = fresh.title;
      document.querySelector("main").replaceChildren(...fresh.querySelector("main").childNodes);
      if (keep) history.pushState(null, "", address);
      scrollTo(0, 0);
      mount();
    } catch { location.assign(address); }
    moving = false;
    while (pressed.length && !moving) pressed.shift()();
  });
  return true;
}

const href = (selector) => document.querySelector(selector)?.href;
const forward = () => go(href("[data-next], [data-following]")) || say("This is the last edit.");
const soon = (action) => (event) => {
  if (!moving) return form ? action(event) : false;
  pressed.push(() => action(event));
  return true;
};
onKeys({
  ...Object.fromEntries([..."1234567890"].map((key) => [key, soon(() => form.press(key))])),
  n: soon(() => { forward(); }),
  Enter: soon((event) => { if (event.target.closest?.("a, button, summary")) return false; forward(); return true; }),
  p: soon(() => go(href("[data-previous]"))),
  u: soon(() => { form.undo(); }),
  q: soon(() => { form.focus((form.current + 1) % form.questions.length); }),
});
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA)$/.test(event.target.tagName);
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && !typing && form) { event.preventDefault(); form.undo(); }
});
addEventListener("popstate", () => { if (!location.hash) go(location.href, false); });
mount();
