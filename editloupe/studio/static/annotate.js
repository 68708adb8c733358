import { ask, onKeys, say } from "./common.js";
import { connectBoxList } from "./boxes.js";
import { Viewer } from "./viewer.js";

async function loadAnnotators() {
  for (const place of document.querySelectorAll("[data-annotators]")) {
    if (place.closest("details") && !place.closest("details").open) continue;
    try { place.innerHTML = await ask(place.dataset.annotators, { headers: { accept: "text/html" } }); } catch (error) { place.textContent = error.message; }
  }
}
document.querySelector("details.people")?.addEventListener("toggle", loadAnnotators);
loadAnnotators();

const desk = document.querySelector("[data-annotate]");
if (desk) {
  const { run, edit, annotator } = desk.dataset;
  const find = (name) => desk.querySelector(`[data-${name}]`);
  const questions = [...desk.querySelectorAll(".question")].filter((one) => one.querySelector(".option"));
  const root = desk.querySelector("[data-viewer]");
  const viewer = root ? new Viewer(root) : null;
  let current = 0;
  let refreshBoxes = () => {};
  // Saving goes one after the other, so that the file holds the keystrokes in their order.
  let queue = Promise.resolve();
  let waiting = 0;

  const show = (state) => {
    for (const question of questions) {
      const label = state.labels[question.dataset.criterion];
      question.classList.toggle("done", label !== undefined);
      for (const option of question.querySelectorAll(".option")) option.setAttribute("aria-checked", String(option.dataset.label === label));
    }
    find("reveal").classList.toggle("shown", state.complete);
    if (state.complete) find("reveal").innerHTML = state.verdicts;
    else find("reveal").innerHTML = "<p class=\"small\">The judge’s verdict appears here once you have given all your labels.</p>";
    if (state.boxes && viewer) { viewer.setTargets(state.boxes); refreshBoxes(); }
  };

  const focusQuestion = (number) => {
    current = Math.max(0, Math.min(questions.length - 1, number));
    questions.forEach((one, at) => { one.classList.toggle("current", at === current); one.toggleAttribute("aria-current", at === current); });
    questions[current]?.scrollIntoView({ block: "nearest" });
  };

  const save = (body, after = () => {}) => {
    waiting += 1;
    find("saved").textContent = "Saving…";
    queue = queue.then(async () => {
      try {
        const state = await ask(`/runs/${run}/labels`, { body: { annotator, edit, ...body } });
        waiting -= 1;
        if (!waiting) find("saved").textContent = "Saved";
        after(state);
      } catch (error) {
        waiting -= 1;
        find("saved").textContent = `Not saved: ${error.message}`;
        say(`Not saved: ${error.message}`);
      }
    });
  };

  const choose = (option) => {
    const question = option.closest(".question");
    for (const one of question.querySelectorAll(".option")) one.setAttribute("aria-checked", String(one === option));
    question.classList.add("done");
    const next = questions.findIndex((one) => !one.classList.contains("done"));
    focusQuestion(next === -1 ? questions.indexOf(question) : next);
    save({ criterion: question.dataset.criterion, label: option.dataset.label }, show);
  };

  const press = (key) => {
    const option = questions[current]?.querySelector(`.option[data-key="${key}"]`);
    if (!option) return false;
    choose(option);
    return true;
  };

  const undo = () => save({ undo: true }, (state) => {
    if (state.moved_to === null) { say("There is nothing left to undo."); return; }
    if (state.moved_to !== edit) { location.assign(`/runs/${run}/annotate?${new URLSearchParams({ annotator, edit: state.moved_to })}`); return; }
    if (state.boxes === null) location.reload();
    show(state);
    focusQuestion(questions.findIndex((one) => !one.classList.contains("done")));
  });

  // The next page opens only after everything is on disk.
  const go = (link) => { if (!link) return false; queue.then(() => location.assign(link.href)); return true; };

  desk.addEventListener("click", (event) => { const option = event.target.closest(".option"); if (option) choose(option); });
  find("undo").addEventListener("click", undo);
  for (const link of document.querySelectorAll("[data-next], [data-previous], [data-following]")) {
    link.addEventListener("click", (event) => { if (event.ctrlKey || event.metaKey) return; event.preventDefault(); go(link); });
  }
  const forward = () => go(document.querySelector("[data-next], [data-following]")) || (say("This is the last edit."), true);
  onKeys({
    ...Object.fromEntries([..."123456789"].map((key) => [key, () => press(key)])),
    n: forward,
    Enter: (event) => (event.target.closest("a, button, summary") ? false : forward()),
    p: () => go(document.querySelector("[data-previous]")),
    u: undo,
    q: () => focusQuestion((current + 1) % questions.length),
  });
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "z" && !/^(INPUT|TEXTAREA)$/.test(event.target.tagName)) { event.preventDefault(); undo(); }
  });

  if (viewer) refreshBoxes = connectBoxList(viewer, find("box-list"), find("box-add"), (boxes) => save({ boxes }));
  const state = JSON.parse(desk.dataset.state);
  show({ ...state, boxes: null });
  const open = questions.findIndex((one) => !one.classList.contains("done"));
  focusQuestion(open === -1 ? 0 : open);
}
