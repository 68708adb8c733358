// What stands around one trace: the next and previous within the filter, tags and note, anchors of steps.
import { ask, onKeys, onSubmit, say } from "./common.js";

const press = (selector) => { const link = document.querySelector(selector); if (!link) return false; link.click(); return true; };
onKeys({
  "]": () => press(".within [rel=next]"),
  "[": () => press(".within [rel=prev]"),
  n: () => { const note = document.querySelector(".note-form"); if (!note) return false; note.open = true; note.querySelector("[name=tags]").focus(); return true; },
});

const note = document.querySelector("[data-note] form");
if (note) onSubmit(note, async () => {
  const { edit, criterion, repeat, asked } = note.dataset;
  const said = { tags: note.elements.tags.value, note: note.elements.note.value };
  try {
    const kept = await ask(note.parentElement.dataset.note, { body: { edit, criterion, repeat: Number(repeat), asked, ...said } });
    note.elements.tags.value = kept.tags;
    note.elements.note.value = kept.note;
    say("Kept.");
  } catch (error) {
    say(error.message);
  }
});

// A link to a step puts the focus on it, so that its boxes are lit.
const aim = () => { if (/^#([AB]-)?step-\d+$/.test(location.hash)) document.querySelector(location.hash)?.focus(); };
addEventListener("hashchange", aim);
aim();
