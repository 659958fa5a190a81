
// The letters of MathML's variants, which most browsers show only by characters of their own (MathML Core): the place of A in
// Unicode, that of 0 if there are digits, and the letters that are elsewhere.
const variants = {
  "bold": [0x1d400, 0x1d7ce], "bold-italic": [0x1d468], "script": [0x1d49c, 0, "BℬEℰFℱHℋIℐLℒMℳRℛeℯgℊoℴ"],
  "fraktur": [0x1d504, 0, "CℭHℌIℑRℜZℨ"], "double-struck": [0x1d538, 0x1d7d8, "CℂHℍNℕPℙQℚRℝZℤ"], "bold-fraktur": [0x1d56c],
  "sans-serif": [0x1d5a0, 0x1d7e2], "bold-sans-serif": [0x1d5d4, 0x1d7ec], "sans-serif-italic": [0x1d608],
  "sans-serif-bold-italic": [0x1d63c], "monospace": [0x1d670, 0x1d7f6],
};

function letter(c, [a, zero, elsewhere]) {
  const at = (elsewhere || "").indexOf(c);
  if (at >= 0) {
    return elsewhere[at + 1];
  }
  if (/^[A-Za-z]$/.test(c)) {
    return String.fromCodePoint(a + (c < "a" ? c.charCodeAt() - 65 : c.charCodeAt() - 71));
  }
  return zero && /^[0-9]$/.test(c) ? String.fromCodePoint(zero + Number(c)) : c;
}

// A formula that KaTeX does not understand stays as it is written.
for (const element of document.querySelectorAll(".math")) {
  const source = element.textContent;
  const displayMode = source.startsWith("$$");
  const marks = displayMode ? 2 : 1;
  try {
    katex.render(source.slice(marks, -marks), element, { displayMode, output: "mathml", trust: false });
    for (const one of element.querySelectorAll("[mathvariant]")) {
      const variant = variants[one.getAttribute("mathvariant")];
      if (variant && one.children.length === 0) {
        const text = one.textContent;
        one.textContent = Array.from(text, (c) => letter(c, variant)).join("");
        if (one.textContent === text && one.getAttribute("mathvariant").startsWith("bold")) { // Greek, for example
          one.style.fontWeight = "bold";
        }
        one.setAttribute("mathvariant", "normal"); // and not in italics
      }
    }
  } catch {
    element.textContent = source;
  }
}
