// Package katex has KaTeX, which shows formulas in browsers, for the pages of the server and those of exported worksheets.
package katex

import "embed"

// Files has KaTeX with its fonts below static/katex.
//
//go:embed static
var Files embed.FS

//go:embed static/katex/katex.min.js
var script string

//go:embed static/katex/license.txt
var license string

// Script is KaTeX alone, with its licence in a comment. It needs no other file to write MathML.
func Script() string { return "/*!\n" + license + "*/\n" + script }
