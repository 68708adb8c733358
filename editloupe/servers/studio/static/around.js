// What stands around one trace: the next and previous within the filter, tags and note, anchors of steps.
import { ask, onKeys, onSubmit, say } from "./common.js";

const press = (selector) => { const link = document.querySelector(selector); if (!link) return false; link.click(); return true; };
onKeys({
  "]": () => press(".within [rel=next]"),
  "[": () => press(".within [rel=prev]"),
  a: () => { const form = document.querySelector(".label-form"); if (!form) return false; form.open = true; form.querySelector("[name=annotator]").focus(); return true; },
  n: () => { const note = document.querySelector("[data-note]"); if (!note) return false; note.open = true; note.querySelector("[name=tags]").focus(); return true; },
});

const note = document.querySelector("[data-note] form");
if (note) onSubmit(note, async () => {
  const { edit, criterion, repeat, asked } = note.dataset;
  const said = { tags: note.elements.tags.value, note: note.elements.note.value };
  try {
    const kept = await ask(note.parentElement.dataset.note, { body: { edit, criterion, repeat: Number(repeat), asked, ...said } });
    note.elements.tags.value = kept.tags;
    note.elements.note.value = kept.note;
    say("Saved.");
  } catch (error) {
    say(error.message);
  }
});

// A label that a person gives while the verdict is in sight; the page then shows it next to the verdict.
const labelling = document.querySelector("[data-label-form] form");
if (labelling) {
  labelling.elements.annotator.value = localStorage.getItem("editloupe-annotator") ?? "";
  onSubmit(labelling, async (event) => {
    const { edit, criterion } = labelling.dataset;
    const annotator = labelling.elements.annotator.value;
    localStorage.setItem("editloupe-annotator", annotator);
    try {
      await ask(labelling.parentElement.dataset.labelForm, { body: { annotator, edit, criterion, label: event.submitter.value, seen: true } });
      location.reload();
    } catch (error) {
      say(error.message);
    }
  });
}

// A link to a step puts the focus on it, so that its boxes are lit.
const aim = () => { if (/^#([AB]-)?step-\d+$/.test(location.hash)) document.querySelector(location.hash)?.focus(); };
addEventListener("hashchange", aim);
aim();
