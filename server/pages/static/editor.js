// The editor of a worksheet: keys that save, and a warning before an unsaved text is lost.
const editor = document.querySelector("form[data-editor]");
const text = editor.elements.text;
let leaving = false;

editor.addEventListener("submit", () => { leaving = true; });

addEventListener("beforeunload", (event) => {
  if (!leaving && (text.value !== text.defaultValue || "unsaved" in editor.dataset)) {
    event.preventDefault();
  }
});

editor.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && (event.key === "s" || event.key === "Enter")) {
    event.preventDefault();
    editor.requestSubmit(editor.querySelector("button[value=save]"));
  }
});
