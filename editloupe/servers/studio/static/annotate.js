import { ask, onKeys, onSubmit, say } from "./common.js";
import { connectBoxList } from "./boxes.js";
import { Viewer } from "./viewer.js";

const HIDDEN = "The judge’s verdict and the labels of others appear here once you have given all your labels.";

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
    this.answersWaiting = 0;
    this.questions = [...root.querySelectorAll(".question")].filter((one) => one.querySelector(".option, [data-number]"));
    const pictures = root.querySelector("[data-viewer]");
    this.viewer = pictures ? new Viewer(pictures, this.leaving.signal) : null;
    this.refreshBoxes = this.viewer
      ? connectBoxList(this.viewer, this.find("box-list"), this.find("box-add"), (boxes) => this.save({ boxes }))
      : () => {};
    root.addEventListener("click", (event) => { const option = event.target.closest(".option"); if (option) this.choose(option); });
    root.addEventListener("click", (event) => { const doubt = event.target.closest("[data-unsure]"); if (doubt) this.doubt(doubt.closest(".question")); });
    root.addEventListener("change", (event) => { if (event.target.matches("[data-number]")) this.number(event.target); });
    this.comment = this.find("comment");
    this.comment.addEventListener("change", () => this.save({ comment: this.comment.value }));
    this.comment.addEventListener("keydown", (event) => { if (event.key === "Escape") this.comment.blur(); });
    this.find("skip").addEventListener("click", () => this.skip());
    this.find("undo").addEventListener("click", () => this.undo());
    for (const link of document.querySelectorAll("[data-next], [data-previous], [data-following]")) {
      link.addEventListener("click", (event) => { if (!event.ctrlKey && !event.metaKey) { event.preventDefault(); go(link.href); } });
    }
    document.querySelector("details.people")?.addEventListener("toggle", loadAnnotators);
    // An edit opens with its instruction and pictures in sight, also where the questions stand below them.
    this.show({ ...JSON.parse(root.dataset.state), boxes: null }, false);
    this.focusOpen(false);
  }

  find(name) { return this.root.querySelector(`[data-${name}]`); }

  show(state, scroll = true) {
    for (const question of this.questions) {
      const { criterion, check } = question.dataset;
      const label = check ? state.checks?.[criterion]?.[check] : state.labels[criterion];
      question.classList.toggle("done", label !== undefined);
      this.mark(question, (state.unsure ?? []).includes(criterion));
      const number = question.querySelector("[data-number]");
      if (number && number !== document.activeElement) number.value = label ?? "";
      for (const option of question.querySelectorAll(".option")) option.setAttribute("aria-checked", String(option.dataset.label === label));
    }
    for (const total of this.root.querySelectorAll("[data-total]")) {
      const score = state.labels[total.dataset.total];
      total.textContent = score === undefined ? "" : `Score of the list: ${Number(score).toFixed(2)} of 1`;
    }
    this.find("skip").setAttribute("aria-pressed", String(Boolean(state.skipped)));
    this.find("skip").textContent = state.skipped ? "Skipped" : "Skip";
    if (this.comment !== document.activeElement) this.comment.value = state.comment ?? "";
    const reveal = this.find("reveal");
    reveal.classList.toggle("shown", Boolean(state.verdicts));
    if (state.verdicts) { reveal.innerHTML = state.verdicts; if (scroll) reveal.scrollIntoView({ block: "nearest" }); }
    else reveal.replaceChildren(line(HIDDEN));
    if (state.boxes && this.viewer) { this.viewer.setTargets(state.boxes); this.refreshBoxes(); }
  }

  mark(question, unsure) {
    question.classList.toggle("unsure", unsure);
    question.querySelector("[data-unsure]")?.setAttribute("aria-pressed", String(unsure));
  }

  // Before a label is given, a doubt waits for it; afterwards it is saved at once.
  doubt(question) {
    if (!question) return;
    const { criterion } = question.dataset;
    const unsure = !question.classList.contains("unsure");
    const parts = this.questions.filter((one) => one.dataset.criterion === criterion);
    for (const part of parts) this.mark(part, unsure);
    if (parts.some((part) => part.classList.contains("done"))) this.record({ criterion, unsure });
  }

  skip() {
    const skip = this.find("skip").getAttribute("aria-pressed") !== "true";
    this.record({ skip });
    if (skip) go(href("[data-next], [data-following]"));
  }

  number(field) {
    if (!field.value || !field.reportValidity()) return;
    const question = field.closest(".question");
    this.answer(question, { label: field.value });
  }

  focusOpen(scroll = true) {
    const open = this.questions.findIndex((one) => !one.classList.contains("done"));
    this.focus(open === -1 ? 0 : open, scroll);
  }

  focus(number, scroll = true) {
    this.current = number;
    this.questions.forEach((one, at) => { one.classList.remove("opening"); one.classList.toggle("current", at === number); one.toggleAttribute("aria-current", at === number); });
    if (scroll) this.questions[number]?.scrollIntoView({ block: "nearest" });
  }

  save(body, after = () => {}) {
    const { run, edit, annotator, work } = this.root.dataset;
    waiting += 1;
    this.find("saved").textContent = "Saving…";
    queue = queue.then(async () => {
      try {
        const state = await ask(`/runs/${run}/labels`, { body: { annotator, work, edit, ...body } });
        waiting -= 1;
        if (!waiting) this.find("saved").textContent = "Saved";
        after(state);
      } catch (error) {
        waiting -= 1;
        this.find("saved").textContent = `Not saved: ${error.message}`;
        say(`Not saved: ${error.message}`);
      }
    });
    return queue;
  }

  // What was answered after this is not in its reply yet: only the last reply is shown, else the next key would go to a question
  // that is answered already.
  record(body) {
    this.answersWaiting += 1;
    this.save(body, (state) => { if (this.answersWaiting === 1) this.show(state); }).then(() => { this.answersWaiting -= 1; });
  }

  choose(option) {
    const question = option.closest(".question");
    for (const one of question.querySelectorAll(".option")) one.setAttribute("aria-checked", String(one === option));
    this.answer(question, { label: option.dataset.label });
  }

  answer(question, said) {
    question.classList.add("done");
    const next = this.questions.findIndex((one) => !one.classList.contains("done"));
    this.focus(next === -1 ? this.questions.indexOf(question) : next);
    const { criterion, check } = question.dataset;
    const unsure = question.classList.contains("unsure") || null;
    this.record({ criterion, ...(check ? { check } : {}), ...(unsure ? { unsure } : {}), ...said });
  }

  press(key) {
    const option = this.questions[this.current]?.querySelector(`.option[data-digit="${key}"]`);
    if (option) this.choose(option);
    const number = this.questions[this.current]?.querySelector("[data-number]");
    if (number) { number.value = ""; number.focus(); return false; }
    return Boolean(option);
  }

  undo() {
    const { run, edit, annotator, work } = this.root.dataset;
    this.save({ undo: true }, (state) => {
      const place = `/runs/${run}/annotate?${new URLSearchParams({ annotator, ...(work ? { work } : {}), edit: state.moved_to })}`;
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

// Counts what was just pressed, too: it may still be on its way.
async function loadAnnotators() {
  await queue;
  for (const place of document.querySelectorAll("[data-annotators]")) {
    if (place.closest("details") && !place.closest("details").open) continue;
    try { place.innerHTML = await ask(place.dataset.annotators, { headers: { accept: "application/json" } }); } catch (error) { place.textContent = error.message; }
  }
}

const subset = document.querySelector("[data-subset]");
if (subset) onSubmit(subset, async () => {
  const wanted = Object.fromEntries([...new FormData(subset)].map(([name, value]) => [name, Number(value)]));
  try {
    const { work } = await ask(subset.dataset.subset, { body: wanted });
    location.assign(`?${new URLSearchParams({ work })}`);
  } catch (error) { say(error.message); }
});

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
  i: soon(() => { form.doubt(form.questions[form.current]); }),
  k: soon(() => { form.skip(); }),
  c: soon(() => { form.comment.focus(); }),
  q: soon(() => { form.focus((form.current + 1) % form.questions.length); }),
});
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA)$/.test(event.target.tagName);
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && !typing && form) { event.preventDefault(); form.undo(); }
});
addEventListener("popstate", () => { if (!location.hash) go(location.href, false); });
mount();
