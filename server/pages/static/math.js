// Formulas. One that KaTeX does not understand stays as it is written.
window.formula = (element) => {
  if (element.dataset.source !== undefined || !element.textContent.startsWith("$")) {
    return;
  }
  const source = element.dataset.source = element.textContent;
  const displayMode = source.startsWith("$$");
  const marks = displayMode ? 2 : 1;
  try {
    katex.render(source.slice(marks, -marks), element, { displayMode, trust: false });
  } catch {
    element.textContent = source;
  }
};
